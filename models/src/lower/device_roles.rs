//! Divides learners that share devices into roles: the first learner of a device keeps its average model and its reference
//! model, updates them, and delivers to the others what they follow.

use super::Lowering;
use super::tasks::Tasks;
use crate::{Averaging, Axis, Members, Op, Role, Task};

/// The roles of workers: the first learners of devices, and the others. With reference models, the first device has
/// none besides the average one, and nothing to do where others move theirs.
pub(super) fn roles(of: Lowering<'_>) -> Vec<Role> {
    let (first, others) = of.graph.mesh.first_along(Axis::Learner);
    let tasks = Tasks::new(of, 0, 0..1).run();
    let role = |name: &str, ranks, tasks| Role { name: name.to_owned(), ranks, tasks };
    let mut roles = if of.job.averaging().is_some_and(|averaging| averaging.reference_alpha.is_some()) {
        let each = of.graph.mesh.size(Axis::Learner);
        let elsewhere = Members::along(each, [(first.count() - 1, each)].into_iter());
        let on_first_device = without_reference(tasks.clone());
        vec![
            role("first learner of the first device", Members::range(0, 1), on_first_device),
            role("first learners of other devices", elsewhere, tasks),
        ]
    } else {
        vec![role("first learners", first, tasks)]
    };
    roles.extend(others.map(|others| role("other learners", others, Tasks::of_others(of, Axis::Learner, 0..1).run())));
    roles
}

/// The tasks of a device whose reference model is the average model.
fn without_reference(mut tasks: Vec<Task>) -> Vec<Task> {
    for task in &mut tasks {
        if let Op::Elementwise(of) = &mut task.op {
            if of.formula.writes(Averaging::REFERENCE) {
                of.range.end = of.range.start;
            }
            of.formula = of.formula.replacing(Averaging::REFERENCE, Averaging::AVERAGE);
        }
    }
    tasks
}
