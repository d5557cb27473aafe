//! Lowers programs whose learners share devices: their differences are summed towards the first learner of each device,
//! which keeps the device's average model and reference model and delivers what the others follow.

use lockstep_topology::{Algorithm, Collective};

use super::Lowering;
use super::tasks::Tasks;
use crate::{Averaging, Axis, AxisSet, Exchange, Members, Op, Role, Task};

const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);

/// The verb and the exchange of one of the synchronisation's collectives on `devices`, the workers of each.
pub(super) fn exchange(of: Exchange, devices: &[u32]) -> (&'static str, Exchange) {
    match (&of.collective, of.axes == LEARNERS) {
        // Each learner takes the model from the first one's memory.
        (Collective::Broadcast { .. }, _) => {
            let others = devices.iter().max().map_or(1, |most| most.saturating_sub(1));
            ("deliver", Exchange { algorithm: Algorithm::tree(others.max(1)), ..of })
        }
        (Collective::AllReduceToLeaders, true) => {
            let algorithm = Algorithm::hierarchical(Algorithm::ring());
            ("sum-on-device", Exchange { algorithm, node_axes: LEARNERS, ..of })
        }
        (Collective::AllReduceToLeaders, false) => ("allreduce", Exchange { node_axes: LEARNERS, ..of }),
        _ => (of.collective.name(), of),
    }
}

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
