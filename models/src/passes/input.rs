//! Adds input tasks before each load: reading, decoding and uploading its batch, on streams of their own beside the
//! compute stream.
//!
//! A rank has memory for some batches ahead: a batch is read when the load that many loads before has taken the batch
//! whose memory it will use. With none ahead a task of the compute stream, which takes no time, requests the batch at
//! the load's own position.

use std::sync::Arc;

use lockstep_topology::Time;

use crate::{After, Op, Program, Role, Stream, Task, TaskId};

/// Batches ahead of each rank in the executor: one that is ready while the next is prepared.
pub const READ_AHEAD: u32 = 2;

/// Adds the tasks to a program, for `ahead` batches. Learners that are served first come, first served share what they
/// prepare: see [`Pools`](crate::Pools).
pub(crate) fn input(mut program: Program, ahead: u32) -> Program {
    for role in &mut program.roles {
        *role = of_role(role, ahead as usize);
    }
    program
}

/// The samples that a task loads, if it does.
fn loads(task: &Task) -> Option<u32> {
    match task.op {
        Op::Load { samples, .. } if samples > 0 => Some(samples),
        _ => None,
    }
}

fn of_role(role: &Role, ahead: usize) -> Role {
    let all: Vec<TaskId> = (0..role.tasks.len()).filter(|id| loads(&role.tasks[*id]).is_some()).collect();
    // Tasks before each load.
    let each = Stream::INPUT.len() + usize::from(ahead == 0);
    let place = |old: TaskId| old + each * all.partition_point(|load| *load <= old);
    let mut tasks = Vec::with_capacity(role.tasks.len() + each * all.len());
    for (id, task) in role.tasks.iter().enumerate() {
        let mut task = task.clone();
        task.after.iter_mut().for_each(|after| after.task = place(after.task));
        let inside = |from: TaskId, count: usize| {
            count + each * all.iter().filter(|load| (from..from + count).contains(load)).count()
        };
        match &mut task.op {
            Op::Repeat { body, .. } => *body = inside(id + 1, *body),
            Op::Schedule(order) => {
                let mut from = id + 1;
                for body in &mut Arc::make_mut(order).bodies {
                    let old = body.tasks;
                    body.tasks = inside(from, old);
                    from += old;
                }
            }
            _ => {}
        }
        if let (Some(samples), Some(number)) = (loads(&task), all.iter().position(|load| *load == id)) {
            let suffix = task.name.strip_prefix("load").unwrap_or_default().to_owned();
            let mut after = if ahead == 0 {
                let op = Op::Host { calls: 1, each: Time::ZERO };
                let name = format!("ask{suffix}");
                tasks.push(Task { name, op, stream: Stream::Compute, after: task.after.clone() });
                After { task: tasks.len() - 1, lag: 0 }
            } else {
                // The load that was `ahead` loads before, this iteration's or an earlier one's.
                let lag = ahead.saturating_sub(number).div_ceil(all.len());
                After { task: place(all[number + lag * all.len() - ahead]), lag: lag as u32 }
            };
            for op in [Op::Read { samples }, Op::Decode { samples }, Op::Upload { samples }] {
                let name = format!("{}{suffix}", op.kind());
                let stream = op.input().unwrap_or(Stream::Compute);
                tasks.push(Task { name, op, stream, after: vec![after] });
                after = After { task: tasks.len() - 1, lag: 0 };
            }
            task.after.push(after);
        }
        tasks.push(task);
    }
    Role { tasks, ..role.clone() }
}

impl Role {
    /// The tasks that read, decode and upload the batch of `load`; `None` where the batch is already there, and for
    /// other tasks.
    pub fn input_of(&self, load: TaskId) -> Option<[TaskId; Stream::INPUT.len()]> {
        let first = load.checked_sub(Stream::INPUT.len())?;
        let is = matches!(self.tasks[load].op, Op::Load { .. }) && matches!(self.tasks[first].op, Op::Read { .. });
        is.then(|| std::array::from_fn(|number| first + number))
    }

    /// Batches that are read ahead of their loads: 0 where they are requested at the load; `None` where
    /// nothing is read.
    pub fn batches_ahead(&self) -> Option<u32> {
        let loads: Vec<TaskId> = (0..self.tasks.len()).filter(|id| self.input_of(*id).is_some()).collect();
        let [read, ..] = self.input_of(*loads.first()?)?;
        let After { task, lag } = *self.tasks[read].after.first()?;
        let before = loads.iter().position(|load| *load == task);
        Some(before.map_or(0, |before| lag * loads.len() as u32 - before as u32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{Job, Op, Program, Stream, random_model};

    use std::sync::Arc;

    fn program(strategy: &str, workers: u32, accumulate: u32, seed: u64, ahead: Option<u32>) -> Program {
        let model = Arc::new(random_model(seed, false));
        Job { strategy: strategy.parse().unwrap(), accumulate, ahead, ..Job::new(model, workers, 2) }.program().unwrap()
    }

    proptest! {
        #[test]
        fn other_tasks_are_unchanged_and_reads_wait_for_a_free_place(
            strategy in prop::sample::select(vec!["ssgd", "zero-2", "sma", "local-sgd:tau=3"]),
            workers in 1u32..4, accumulate in 1u32..4, seed: u64, ahead in 0u32..5,
        ) {
            let accumulate = if strategy == "sma" || strategy.starts_with("local") { 1 } else { accumulate };
            let plain = program(strategy, workers, accumulate, seed, None);
            let with = program(strategy, workers, accumulate, seed, Some(ahead));
            for (role, plain) in with.roles.iter().zip(&plain.roles) {
                let input = |task: &crate::Task| task.op.input().is_some() || task.name.starts_with("ask");
                let rest = |role: &crate::Role| -> Vec<String> {
                    role.tasks.iter().filter(|task| !input(task)).map(|task| task.name.clone()).collect()
                };
                prop_assert_eq!(rest(role), rest(plain));
                // The tasks that a task waits for, by name.
                let waits = |role: &crate::Role, name: &str| -> Vec<(String, u32)> {
                    let task = role.tasks.iter().find(|task| task.name == name).unwrap();
                    let named = task.after.iter().map(|after| (role.tasks[after.task].name.clone(), after.lag));
                    named.filter(|(name, _)| !name.starts_with("upload")).collect()
                };
                rest(plain).iter().for_each(|name| assert_eq!(waits(role, name), waits(plain, name), "{name}"));
                let loads: Vec<usize> =
                    (0..role.tasks.len()).filter(|id| matches!(role.tasks[*id].op, Op::Load { .. })).collect();
                prop_assert_eq!(role.batches_ahead(), Some(ahead));
                for (number, load) in loads.iter().enumerate() {
                    let [read, decode, upload] = role.input_of(*load).unwrap();
                    let waits = |task: usize, after: usize| {
                        role.tasks[task].after.iter().any(|of| (of.task, of.lag) == (after, 0))
                    };
                    prop_assert!(waits(*load, upload) && waits(upload, decode) && waits(decode, read));
                    prop_assert_eq!(role.runs_of(read), role.runs_of(*load));
                    let after = role.tasks[read].after[0];
                    if ahead == 0 {
                        // It is requested at the load's own position: after what comes before it, and all that
                        // it waits for.
                        prop_assert_eq!((after.task, after.lag), (read - 1, 0));
                        let ask = &role.tasks[after.task];
                        prop_assert_eq!(ask.stream, Stream::Compute);
                        prop_assert!(role.tasks[*load].after.starts_with(&ask.after));
                    } else {
                        let of = loads.iter().position(|load| *load == after.task).unwrap();
                        prop_assert_eq!(number + after.lag as usize * loads.len() - of, ahead as usize);
                    }
                }
            }
        }
    }

    /// Koliousis et al. 2019, §4.5: the buffer has room for more than one batch of each learner.
    #[test]
    fn learners_that_claim_batches_read_as_far_ahead() {
        for strategy in ["sma:first-come", "sma:tau=3:first-come", "sma:round-robin"] {
            assert_eq!(program(strategy, 3, 1, 1, Some(2)).roles[0].batches_ahead(), Some(2), "{strategy}");
        }
    }
}
