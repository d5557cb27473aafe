//! Builds the shuffle of samples that ranks hold in parts: each packs what it sends, an alltoallv follows, and each
//! unpacks what it receives; large shuffles run in chunks. Long samples are sent without copies from their old position
//! to their new one; those that stay on their rank are not moved.

use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective, InputError, shard};

use super::{BUFFERS, Periodic, work};
use crate::{After, Axis, AxisSet, Exchange, Members, Mesh, Op, Partition, Program, Role, SampleMove, Stream, Task};

impl Program {
    /// The shuffle of `samples` samples of `each` fp32 elements in messages; `None` where no sample ever moves.
    ///
    /// Which samples change ranks is drawn in a run. On average each rank keeps an equal share of its part and sends as
    /// much to every other rank of its group, and these messages have that size.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, random_model};
    /// let model = Arc::new(random_model(7, false));
    /// let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    /// let job = Job { sampling, node_sizes: Some(vec![1; 4]), ..Job::new(model, 4, 8) };
    /// let shuffle = job.program().unwrap().shuffle(400, 10).unwrap().unwrap();
    /// // 100 samples of 10 elements on each rank: 25 for each of four, and one of them is the rank itself.
    /// let (_, exchange) = shuffle.roles[0].exchanges().next().unwrap();
    /// assert_eq!(shuffle.schedule(exchange, 0).unwrap().elements_sent(0), 3 * 25 * 10);
    /// ```
    ///
    /// # Errors
    /// Groups too large for a table of counts.
    pub fn shuffle(&self, samples: u64, each: u64) -> Result<Option<Program>, InputError> {
        let Some(partition) = self.partition.as_ref().filter(|partition| partition.shuffle_every.is_some()) else {
            return Ok(None);
        };
        let sizes: Vec<u32> = partition.groups.iter().map(|group| group.count).collect();
        let mesh = Mesh::of_nodes(&sizes)?;
        let alike = sizes.iter().all(|size| *size == sizes[0]);
        let groups = if alike { &partition.groups[..1] } else { &partition.groups[..] };
        let mut longest = 0;
        let roles: Vec<Role> = groups
            .iter()
            .enumerate()
            .map(|(number, group)| {
                let (tasks, elements) = tasks(group.count, samples, each, partition);
                longest = longest.max(elements);
                let (first, count) = if alike { (0, self.workers()) } else { (group.first, group.count) };
                Role { name: format!("group {number}"), ranks: Members::range(first, count), tasks }
            })
            .collect();
        let mut buffers = [0; BUFFERS.len()];
        buffers[0] = longest;
        let program = work(self, self, mesh, roles, buffers);
        program.check()?;
        Ok(Some(program))
    }
}

/// The tasks of each of `members` ranks that hold `samples` samples together, and the most elements of a chunk.
fn tasks(members: u32, samples: u64, each: u64, partition: &Partition) -> (Vec<Task>, u64) {
    let block = |from: u64, to: u64| match from == to {
        true => 0,
        false => length(length(samples, members, from), members, to),
    };
    let all = 0..u64::from(members);
    let leaving = |from: u64| -> u64 { all.clone().map(|to| block(from, to)).sum() };
    let rounds = (leaving(0) * each).div_ceil(partition.chunk.max(1)).clamp(1, leaving(0).max(1));
    // The same in every round, so a chunk's share of a block is no whole number of samples.
    let share = |samples: u64| (samples * each).div_ceil(rounds);
    let counts: Arc<[u64]> = all
        .clone()
        .flat_map(|from| all.clone().map(move |to| (from, to)))
        .map(|(from, to)| share(block(from, to)))
        .collect();
    let row = |from: u64| all.clone().map(|to| counts[(from * u64::from(members) + to) as usize]).sum::<u64>();
    let column = |to: u64| all.clone().map(|from| counts[(from * u64::from(members) + to) as usize]).sum::<u64>();
    let longest = all.clone().map(|member| row(member).max(column(member))).max().unwrap_or(0);
    let (moved, axes) = (row(0), AxisSet::of(&[Axis::Device]));
    let exchange =
        Exchange::new(Collective::AllToAllV { counts }, Algorithm::pairwise(), axes, Periodic::SAMPLES, 0..longest);
    let exchange = ("shuffle samples", Op::Exchange(exchange), Stream::Exchange);
    let copy = |name, to| (name, Op::Samples { to, elements: moved }, Stream::Compute);
    let body = match each < partition.packed_below {
        true => vec![copy("pack samples", SampleMove::Pack), exchange, copy("unpack samples", SampleMove::Unpack)],
        false => vec![exchange],
    };
    let (count, length) = (rounds.try_into().unwrap_or(u32::MAX), body.len());
    let repeat = Op::Repeat { count, body: length, claimed: false };
    let first = usize::from(count > 1);
    let mut tasks = Vec::new();
    if first > 0 {
        tasks.push(Task { name: "chunks".to_owned(), op: repeat, stream: Stream::Compute, after: Vec::new() });
    }
    for (number, (name, op, stream)) in body.into_iter().enumerate() {
        let mut after: Vec<After> =
            number.checked_sub(1).map(|task| After { task: first + task, lag: 0 }).into_iter().collect();
        if first > 0 && number == 0 {
            // Memory for two chunks: one sent and one received, or two received.
            after.push(After { task: first + length - 1, lag: if length > 1 { 1 } else { 2 } });
        }
        tasks.push(Task { name: name.to_owned(), op, stream, after });
    }
    (tasks, longest)
}

fn length(samples: u64, members: u32, member: u64) -> u64 {
    let part = shard(samples, members.into(), member);
    part.end - part.start
}
