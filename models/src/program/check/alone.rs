//! Checks that library calls never overlap: NCCL's on each communicator, MPI's among all exchanges of a rank.

use std::ops::Range;

use crate::{Exchange, Op, Role, Stream, TaskId};

/// Whether an exchange of the role never begins while an earlier one is in flight, on its communicator or, where the
/// call blocks everything else in its process, at all.
pub(super) fn is_alone(role: &Role, id: TaskId, exchange: &Exchange) -> bool {
    // A transfer to one stage of a pipeline is not a library call.
    let blocks = exchange.algorithm.blocks();
    let is_its = |other: &Exchange| other.algorithm.library().is_some() && other.axes == exchange.axes;
    let shares = |other: &Exchange| other.between.is_none() && (blocks || is_its(other));
    let all: Vec<TaskId> = role.exchanges().filter(|(_, other)| shares(other)).map(|(id, _)| id).collect();
    let position = all.iter().position(|other| *other == id).unwrap_or(0);
    let (earlier, lag) = if position == 0 { (all[all.len() - 1], 1) } else { (all[position - 1], 0) };
    let waits = role.tasks[id].after.iter().any(|after| after.task == earlier && after.lag == lag);
    waits || Ended::new(role, &all).in_turn(role, &all)
}

/// By task, how many of some exchanges, in the order of the list, have ended before it begins and once it has ended:
/// derived from dependencies and the order of the compute stream.
struct Ended {
    before: Vec<usize>,
    after: Vec<usize>,
}

impl Ended {
    fn new(role: &Role, exchanges: &[TaskId]) -> Ended {
        let (mut before, mut after) = (vec![0; role.tasks.len()], vec![0; role.tasks.len()]);
        let (mut computed, mut count) = (0, 0);
        for (id, task) in role.tasks.iter().enumerate() {
            let earlier = task.after.iter().filter(|after| after.lag == 0 && after.task < id);
            let known = earlier.flat_map(|of| role.tasks_of(of.task)).filter(|other| *other < id).map(|of| after[of]);
            let stream = if task.stream == Stream::Compute { computed } else { 0 };
            before[id] = known.max().unwrap_or(0).max(stream);
            after[id] = before[id];
            if exchanges.get(count) == Some(&id) {
                count += 1;
                after[id] = count;
            }
            if task.stream == Stream::Compute {
                computed = after[id];
            }
        }
        Ended { before, after }
    }

    /// Whether each of the exchanges waits for the one before it, in each run of a loop, and in each iteration.
    fn in_turn(&self, role: &Role, exchanges: &[TaskId]) -> bool {
        let follows = exchanges.iter().enumerate().all(|(position, id)| self.before[*id] >= position);
        let mut repeated = bodies(role).into_iter();
        follows
            && repeated.all(|body| self.closes(role, exchanges, body))
            && self.closes(role, exchanges, 0..role.tasks.len())
    }

    /// Whether the exchanges among these tasks have ended before the first of them begins in the next run.
    fn closes(&self, role: &Role, exchanges: &[TaskId], body: Range<TaskId>) -> bool {
        let Some(first) = exchanges.iter().copied().find(|id| body.contains(id)) else { return true };
        let all = exchanges.iter().take_while(|id| **id < body.end).count();
        let computes = |id: &TaskId| role.tasks[*id].stream == Stream::Compute;
        // By task from the body's first on: how many have ended in the run before.
        let mut ended: Vec<usize> = Vec::with_capacity(first + 1 - body.start);
        let mut computed = body.clone().rev().find(computes).map_or(0, |last| self.after[last]);
        for id in body.start..=first {
            let known = role.tasks[id].after.iter().filter_map(|after| match after.lag {
                0 => ended.get(after.task.checked_sub(body.start)?).copied(),
                _ => Some(self.after[after.task]),
            });
            let stream = if computes(&id) { computed } else { 0 };
            ended.push(known.max().unwrap_or(0).max(stream));
            if computes(&id) {
                computed = ended[id - body.start];
            }
        }
        ended[first - body.start] >= all
    }
}

/// The tasks of each loop's body; those of a stage's schedule are one body for each chunk and pass.
fn bodies(role: &Role) -> Vec<Range<TaskId>> {
    let mut bodies = Vec::new();
    for (id, task) in role.tasks.iter().enumerate() {
        match &task.op {
            Op::Repeat { body, .. } => bodies.push(id + 1..id + 1 + body),
            Op::Schedule(order) => {
                let mut start = id + 1;
                for body in &order.bodies {
                    bodies.push(start..start + body.tasks);
                    start += body.tasks;
                }
            }
            _ => {}
        }
    }
    bodies
}
