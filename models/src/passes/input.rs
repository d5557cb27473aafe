//! Input: where samples are decoded from a file, reading and decoding them are tasks of their own before each load, done ahead of the
//! compute stream.
//!
//! A rank has memory for some batches ahead: a batch is read when the load that many loads before has taken what lay in its place.

use std::sync::Arc;

use crate::{After, Op, Program, Role, Stream, Task, TaskId};

/// Batches ahead of each rank in the executor: one that is ready while the next is being made.
pub const READ_AHEAD: u32 = 2;

/// Adds the tasks to a program whose ranks know what they load next; `ahead` is at least 1.
pub(crate) fn read_ahead(mut program: Program, ahead: u32) -> Program {
    // Who claims its batches cannot read ahead; loads do all of it.
    if program.claims() {
        return program;
    }
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
    // Two tasks stand before each load.
    let place = |old: TaskId| old + 2 * all.partition_point(|load| *load <= old);
    let mut tasks = Vec::with_capacity(role.tasks.len() + 2 * all.len());
    for (id, task) in role.tasks.iter().enumerate() {
        let mut task = task.clone();
        task.after.iter_mut().for_each(|after| after.task = place(after.task));
        let inside = |from: TaskId, count: usize| {
            count + 2 * all.iter().filter(|load| (from..from + count).contains(load)).count()
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
            // The load that was `ahead` loads before, this iteration's or an earlier one's.
            let lag = ahead.saturating_sub(number).div_ceil(all.len());
            let taken = place(all[number + lag * all.len() - ahead]);
            let suffix = task.name.strip_prefix("load").unwrap_or_default().to_owned();
            let read = tasks.len();
            tasks.push(Task {
                name: format!("read{suffix}"),
                op: Op::Read { samples },
                stream: Stream::Read,
                after: vec![After { task: taken, lag: lag as u32 }],
            });
            tasks.push(Task {
                name: format!("decode{suffix}"),
                op: Op::Decode { samples },
                stream: Stream::Decode,
                after: vec![After { task: read, lag: 0 }],
            });
            task.after.push(After { task: read + 1, lag: 0 });
        }
        tasks.push(task);
    }
    Role { tasks, ..role.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{Job, Op, Program, random_model};

    use std::sync::Arc;

    fn program(strategy: &str, workers: u32, accumulate: u32, seed: u64, ahead: Option<u32>) -> Program {
        let model = Arc::new(random_model(seed, false));
        Job { strategy: strategy.parse().unwrap(), accumulate, ahead, ..Job::new(model, workers, 2) }.program().unwrap()
    }

    proptest! {
        #[test]
        fn the_rest_stays_as_it_was_and_batches_wait_for_their_place(
            strategy in prop::sample::select(vec!["ssgd", "zero-2", "sma", "local-sgd:tau=3"]),
            workers in 1u32..4, accumulate in 1u32..4, seed: u64, ahead in 1u32..5,
        ) {
            let accumulate = if strategy == "sma" || strategy.starts_with("local") { 1 } else { accumulate };
            let plain = program(strategy, workers, accumulate, seed, None);
            let with = program(strategy, workers, accumulate, seed, Some(ahead));
            for (role, plain) in with.roles.iter().zip(&plain.roles) {
                let input = |op: &Op| matches!(op, Op::Read { .. } | Op::Decode { .. });
                let rest = |role: &crate::Role| -> Vec<String> {
                    role.tasks.iter().filter(|task| !input(&task.op)).map(|task| task.name.clone()).collect()
                };
                prop_assert_eq!(rest(role), rest(plain));
                // What a task waits for is what it waited for, by name.
                let waits = |role: &crate::Role, name: &str| -> Vec<(String, u32)> {
                    let task = role.tasks.iter().find(|task| task.name == name).unwrap();
                    let named = task.after.iter().map(|after| (role.tasks[after.task].name.clone(), after.lag));
                    named.filter(|(name, _)| !name.starts_with("decode")).collect()
                };
                rest(plain).iter().for_each(|name| assert_eq!(waits(role, name), waits(plain, name), "{name}"));
                let loads: Vec<usize> =
                    (0..role.tasks.len()).filter(|id| matches!(role.tasks[*id].op, Op::Load { .. })).collect();
                for (number, load) in loads.iter().enumerate() {
                    let [read, decode] = [load - 2, load - 1];
                    prop_assert!(role.tasks[*load].after.iter().any(|after| (after.task, after.lag) == (decode, 0)));
                    prop_assert_eq!((role.tasks[decode].after[0].task, role.tasks[decode].after[0].lag), (read, 0));
                    let after = role.tasks[read].after[0];
                    let of = loads.iter().position(|load| *load == after.task).unwrap();
                    prop_assert_eq!(number + after.lag as usize * loads.len() - of, ahead as usize);
                    prop_assert_eq!(role.runs_of(read), role.runs_of(*load));
                }
            }
        }
    }

    #[test]
    fn who_claims_its_batches_reads_none_ahead() {
        let program = program("sma:first-come", 3, 1, 1, Some(2));
        assert!(program.roles[0].tasks.iter().all(|task| !matches!(task.op, Op::Read { .. })));
    }
}
