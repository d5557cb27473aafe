//! Builds the shuffle of samples that ranks hold in parts: each packs what it sends, an alltoallv follows, and each
//! unpacks what it receives; large shuffles run in chunks. Long samples are sent without copies from their old position
//! to their new one; those that stay on their rank are not moved.

use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective, Dtype, InputError, shard};

use super::{BUFFERS, Periodic, work};
use crate::{
    After, Axis, AxisSet, Exchange, Members, Mesh, Op, Partition, Program, RankRange, Role, SampleMove, Stream, Task,
};

impl Program {
    /// The shuffle of `samples` samples, of each of which messages carry so many elements of this format; `None` where no
    /// sample ever moves.
    ///
    /// Which samples change ranks is drawn in a run. On average each rank keeps an equal share of its part and sends as
    /// much to every other rank of its group, and these messages have that size.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, random_model};
    /// # use lockstep_topology::Dtype;
    /// let model = Arc::new(random_model(7, false));
    /// let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    /// let job = Job { sampling, node_sizes: Some(vec![1; 4]), ..Job::new(model, 4, 8) };
    /// let shuffle = job.program().unwrap().shuffle(400, (10, Dtype::U8)).unwrap().unwrap();
    /// // 100 samples of 10 elements on each rank: 25 for each of four, and one of them is the rank itself.
    /// let (_, exchange) = shuffle.roles[0].exchanges().next().unwrap();
    /// assert_eq!(shuffle.schedule(exchange, 0).unwrap().bytes_sent(0), 3 * 25 * 10);
    /// ```
    ///
    /// # Errors
    /// Groups too large for a table of counts.
    pub fn shuffle(&self, samples: u64, each: (u64, Dtype)) -> Result<Option<Program>, InputError> {
        let Some(partition) = self.partition.as_ref().filter(|partition| partition.shuffle_every.is_some()) else {
            return Ok(None);
        };
        let sizes: Vec<u32> = partition.groups.iter().map(|group| group.count).collect();
        let mesh = Mesh::of_nodes(&sizes)?;
        let alike = sizes.iter().all(|size| *size == sizes[0]);
        let groups = if alike { &partition.groups[..1] } else { &partition.groups[..] };
        let mut longest = 0;
        let mut roles = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let all = if alike { RankRange { first: 0, count: self.workers() } } else { *group };
            for (name, ranks) in parties(partition, all) {
                let member = ranks.first() - group.first;
                let (tasks, elements) = tasks((member, *group), samples, each, partition);
                longest = longest.max(elements);
                roles.push(Role { name: format!("{name}group {number}"), ranks, tasks });
            }
        }
        let mut buffers = [(0, Dtype::F32); BUFFERS.len()];
        buffers[0] = (longest, each.1);
        let program = work(self, self, mesh, roles, buffers);
        program.check()?;
        Ok(Some(program))
    }
}

/// The ranks of `all` that have the same tasks: all of them, or the first ranks of nodes and the others, which hold no
/// samples.
fn parties(partition: &Partition, all: RankRange) -> Vec<(String, Members)> {
    let nodes: Vec<RankRange> = partition.nodes.iter().filter(|node| all.contains(node.first)).copied().collect();
    let Some(each) = nodes.first().map(|node| node.count) else {
        return vec![(String::new(), Members::range(all.first, all.count))];
    };
    if nodes.iter().all(|node| node.count == each) {
        let along =
            |first, size| Members::along(all.first + first, [(nodes.len() as u32, each), (size, 1)].into_iter());
        let others = (each > 1).then(|| ("others of ".to_owned(), along(1, each - 1)));
        return [("firsts of ".to_owned(), along(0, 1))].into_iter().chain(others).collect();
    }
    let of_node = |(number, node): (usize, &RankRange)| {
        let first = (format!("first of node {number} of "), Members::range(node.first, 1));
        let others = (format!("others of node {number} of "), Members::range(node.first + 1, node.count - 1));
        [first].into_iter().chain((node.count > 1).then_some(others)).collect::<Vec<_>>()
    };
    nodes.iter().enumerate().flat_map(of_node).collect()
}

/// The tasks of `member` of a group whose ranks hold `samples` samples together, and the most elements of a chunk.
fn tasks(
    (member, group): (u32, RankRange),
    samples: u64,
    (each, dtype): (u64, Dtype),
    partition: &Partition,
) -> (Vec<Task>, u64) {
    let members = group.count;
    // The places among `of` samples of the workers whose samples a member holds.
    let held = |of: u64, member: u64| {
        let workers = partition.held_by(group.first + member as u32);
        let end = |worker: u32| if worker == 0 { 0 } else { shard(of, members.into(), u64::from(worker) - 1).end };
        let first = workers.first - group.first;
        end(first + workers.count) - end(first)
    };
    let block = |from: u64, to: u64| if from == to { 0 } else { held(held(samples, from), to) };
    let all = 0..u64::from(members);
    let leaving = |from: u64| -> u64 { all.clone().map(|to| block(from, to)).sum() };
    let rounds = dtype.bytes(leaving(0) * each).div_ceil(partition.chunk.max(1)).clamp(1, leaving(0).max(1));
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
    let (moved, axes) = (row(u64::from(member)), AxisSet::of(&[Axis::Device]));
    let exchange =
        Exchange::new(Collective::AllToAllV { counts }, Algorithm::pairwise(), axes, Periodic::SAMPLES, 0..longest);
    let exchange = ("shuffle samples", Op::Exchange(exchange), Stream::Exchange);
    let copy = |name, to| (name, Op::Samples { to, bytes: dtype.bytes(moved) }, Stream::Compute);
    let holds = partition.held_by(group.first + member).count > 0;
    let body = match dtype.bytes(each) < partition.packed_below && holds {
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
