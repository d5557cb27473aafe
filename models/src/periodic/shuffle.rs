//! The shuffle of samples that ranks hold in parts: each packs what leaves it, an alltoallv, each unpacks what it gets.

use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective, InputError, shard};

use super::{BUFFERS, Periodic, work};
use crate::{After, Axis, AxisSet, Exchange, Members, Mesh, Op, Program, Role, SampleMove, Stream, Task};

impl Program {
    /// The shuffle of `samples` samples that travel as `each` fp32 elements; `None` where no sample ever moves.
    ///
    /// Which samples change hands is drawn in a run. On average each rank sends an equal share of its part to every rank of its group,
    /// itself included, and that is what these messages carry.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, random_model};
    /// let model = Arc::new(random_model(7, false));
    /// let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    /// let job = Job { sampling, node_sizes: Some(vec![1; 4]), ..Job::new(model, 4, 8) };
    /// let shuffle = job.program().unwrap().shuffle(400, 10).unwrap().unwrap();
    /// // 100 samples of 10 elements on each rank: 25 for each of four.
    /// let (_, exchange) = shuffle.roles[0].exchanges().next().unwrap();
    /// assert_eq!(shuffle.schedule(exchange, 0).unwrap().elements_sent(0), 4 * 25 * 10);
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
                let (tasks, elements) = tasks(group.count, samples, each);
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

/// What each of `members` ranks does that hold `samples` samples together, and the elements of the longest part.
fn tasks(members: u32, samples: u64, each: u64) -> (Vec<Task>, u64) {
    let parts: Vec<u64> = (0..members).map(|member| length(samples, members, member) * each).collect();
    let block = |from: u64, to: u32| length(parts[from as usize] / each, members, to) * each;
    let counts: Arc<[u64]> = (0..u64::from(members))
        .flat_map(|from| (0..members).map(move |to| (from, to)))
        .map(|(from, to)| block(from, to))
        .collect();
    let columns = (0..members as usize).map(|to| counts.iter().skip(to).step_by(members as usize).sum::<u64>());
    let longest = columns.chain(parts.iter().copied()).max().unwrap_or(0);
    let axes = AxisSet::of(&[Axis::Device]);
    let exchange =
        Exchange::new(Collective::AllToAllV { counts }, Algorithm::pairwise(), axes, Periodic::SAMPLES, 0..longest);
    let moved = |to| Op::Samples { to, elements: parts[0] };
    let list = [
        ("pack samples", moved(SampleMove::Pack), Stream::Compute),
        ("shuffle samples", Op::Exchange(exchange), Stream::Exchange),
        ("unpack samples", moved(SampleMove::Unpack), Stream::Compute),
    ];
    let tasks = list.into_iter().enumerate().map(|(number, (name, op, stream))| {
        let after = number.checked_sub(1).map(|task| After { task, lag: 0 }).into_iter().collect();
        Task { name: name.to_owned(), op, stream, after }
    });
    (tasks.collect(), longest)
}

fn length(elements: u64, members: u32, member: u32) -> u64 {
    let part = shard(elements, members.into(), member.into());
    part.end - part.start
}
