//! Finds the exchanges that are apart: while one of them is in flight, its members do nothing else.
//!
//! Then nothing else uses the resources of such an exchange, and its times follow from when its members start it. That
//! is known from the plan alone, before anything runs.

use lockstep_models::Need;

use super::{Apart, RolePlan, Slot};

/// Whether all other tasks of the only role come before the exchange `task` or after it, and how it starts then.
///
/// *Before* are those that are certainly done when it starts, *after* those that certainly do not start until it is
/// done, both in its own iteration. The iterations around are then apart as well: a rank begins the next one when its
/// compute stream has finished this one and all exchanges have started, so not before what comes after.
pub(super) fn how(role: &RolePlan, task: u32) -> Option<Apart> {
    // Tasks of the synchronisation stream are not sorted here.
    // Nor are tasks that read, decode and upload ahead, which take cores and links from messages.
    if role.tasks[task as usize].per_iteration != 1 || !role.synchronisation.is_empty() || role.reads_ahead > 0 {
        return None;
    }
    let (before, after) = (before(role, task), after(role, task));
    let sorted = |slot: &Slot| slot.task == task || before[slot.task as usize] != after[slot.task as usize];
    // A run of the previous iteration still in flight would be an exchange that no compute task waits for.
    let waits = |slot: &Slot, exchange: u32| needs(role, slot.task).any(|need| need == exchange);
    let over = |exchange: u32| {
        exchange == task || before[exchange as usize] || role.compute.iter().any(|slot| waits(slot, exchange))
    };
    let next_waits = role.compute.len() + role.exchange.len() == 1 || after.contains(&true);
    let mut slots = role.compute.iter().chain(&role.exchange);
    let apart = slots.all(sorted) && next_waits && role.exchange.iter().all(|slot| over(slot.task));
    let needs = &role.tasks[task as usize].needs;
    let computed = |need: &Need| need.is_of_this_iteration() && role.tasks[need.task].groups.is_none();
    let at_once = role.exchange.len() == 1 && !needs.is_empty() && needs.iter().all(computed);
    apart.then_some(if at_once || role.tasks.len() == 1 { Apart::AtOnce } else { Apart::Sometime })
}

/// The tasks that `task` waits for in its own iteration.
fn needs(role: &RolePlan, task: u32) -> impl Iterator<Item = u32> {
    role.tasks[task as usize].needs.iter().filter(|need| need.is_of_this_iteration()).map(|need| need.task as u32)
}

fn before(role: &RolePlan, task: u32) -> Vec<bool> {
    let mut before = vec![false; role.tasks.len()];
    // By task, the one before it in the compute stream.
    let mut previous: Vec<Option<u32>> = vec![None; role.tasks.len()];
    for pair in role.compute.windows(2) {
        previous[pair[1].task as usize].get_or_insert(pair[0].task);
    }
    let mut open: Vec<u32> = needs(role, task).collect();
    while let Some(earlier) = open.pop() {
        if !std::mem::replace(&mut before[earlier as usize], true) {
            open.extend(needs(role, earlier).chain(previous[earlier as usize]));
        }
    }
    before
}

fn after(role: &RolePlan, task: u32) -> Vec<bool> {
    let mut after = vec![false; role.tasks.len()];
    let mut found = true;
    while found {
        found = false;
        for stream in [&role.compute, &role.exchange] {
            // Compute tasks run one after the other, exchanges start one after the other.
            let mut behind = false;
            for slot in stream {
                behind |= needs(role, slot.task).any(|need| need == task || after[need as usize]);
                found |= behind && !std::mem::replace(&mut after[slot.task as usize], behind);
            }
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Bucket, Job};

    use crate::plan::Plan;

    /// The number of exchanges of a job that are apart, and of all.
    fn apart(job: Job) -> (usize, usize) {
        let program = job.program().expect("a program");
        let plan = Plan::new(&program, program.ranks(), None).expect("a plan");
        (
            plan.group_exchanges.iter().filter(|group_exchange| group_exchange.apart.is_some()).count(),
            plan.group_exchanges.len(),
        )
    }

    #[test]
    fn one_bucket_is_separate_from_computation_and_several_are_not() {
        let job = Job {
            bucket: Bucket::Whole,
            ..Job::new(Arc::new(lockstep_readers::load_model("mlp").expect("in the zoo")), 4, 8)
        };
        assert_eq!(apart(job.clone()), (1, 1));
        assert_eq!(apart(Job { accumulate: 3, ..job.clone() }), (1, 1));
        // Backward passes run beside a layer's exchange.
        let (found, all) = apart(Job { bucket: Bucket::Layer, ..job.clone() });
        assert!(found < all && all > 1, "{found} of {all}");
        // A server is a separate role.
        let algorithm = "parameter-server:1:dedicated".parse().expect("an algorithm");
        assert_eq!(apart(Job { algorithm, ..job }).0, 0);
    }
}
