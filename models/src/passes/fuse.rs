//! Fuses neighbouring layers into one kernel, so that tensors between them never go through memory.
//!
//! It fuses convolution, dense, batch norm or add with a ReLU after it, a convolution with the max pooling after that,
//! and flatten with the dense layer after it; both backward passes of a chain become one task, or one task each where a
//! pipeline has weight passes. Fused and unfused programs give the same bits.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{After, Layer, LayerId, Model, Op, Phase, Program, Role, Stages, Task, TaskId};

/// Fuses chains and their backward passes, none of them across the border between two chunks of a pipeline.
pub(crate) fn fuse(program: Program, stages: Option<&Stages>) -> Program {
    let chunk = |id: LayerId| stages.map_or(0, |stages| stages.chunk_of(id));
    let chains = fused_chains_within(&program.model, chunk);
    let mut chain_of = vec![0; program.model.layers().len()];
    for (chain, layers) in chains.iter().enumerate() {
        layers.iter().for_each(|id| chain_of[id.0 as usize] = chain);
    }
    let new_chain = |old: usize| {
        let layer = program.chains[old][0];
        let chain = chain_of[layer.0 as usize];
        (chain, chains[chain][0] == layer)
    };
    let roles = program.roles.iter().map(|role| fuse_role(role, &new_chain)).collect();
    let mut fused = Program { chains, roles, ..program.clone() };
    for role in 0..fused.roles.len() {
        for task in 0..fused.roles[role].tasks.len() {
            if let Op::Compute { chain, phase, pass, .. } = fused.roles[role].tasks[task].op {
                let name = format!("{} {}{}", phase.name(), fused.chain_name(chain), fused.pass_suffix(pass));
                fused.roles[role].tasks[task].name = name;
            }
        }
    }
    fused
}

/// The partition of all layers that compute into chains, in the order of their first layers; neither the input
/// nor gathers do.
pub fn fused_chains(model: &Model) -> Vec<Vec<LayerId>> {
    fused_chains_within(model, |_| 0)
}

/// The same, where the layers of a chain belong to one chunk.
pub(crate) fn fused_chains_within(model: &Model, chunk: impl Fn(LayerId) -> u32) -> Vec<Vec<LayerId>> {
    let mut chains: Vec<Vec<LayerId>> = Vec::new();
    let mut placed = vec![false; model.layers().len()];
    for id in (1..model.layers().len() as u32).map(LayerId) {
        if placed[id.0 as usize] || model.node(id).layer.is_relayout() {
            continue;
        }
        let mut chain = vec![id];
        while let Some(next) = follower(model, &chain).filter(|next| chunk(*next) == chunk(id)) {
            chain.push(next);
        }
        chain.iter().for_each(|id| placed[id.0 as usize] = true);
        chains.push(chain);
    }
    chains
}

/// The layer that may join the end of `chain`.
fn follower(model: &Model, chain: &[LayerId]) -> Option<LayerId> {
    let [next] = model.consumers(*chain.last()?) else { return None };
    let node = model.node(*next);
    let layers: Vec<&Layer> = chain.iter().map(|id| &model.node(*id).layer).collect();
    (node.inputs.len() == 1 && node.layer.rule().joins(&layers)).then_some(*next)
}

/// Merges the tasks of each chain: forward where its first layer runs, backward where its last task of the chain ran.
/// `new_chain` gives the chain that a layer's own one joins, and whether the layer is its first.
fn fuse_role(role: &Role, new_chain: &impl Fn(usize) -> (usize, bool)) -> Role {
    let bodies = bodies(role);
    // The chain's group, of passes forward, forward again or backward, that a task joins.
    let key = |id: TaskId| match role.tasks[id].op {
        Op::Compute { chain, phase, pass, .. } => {
            let backward = if phase.makes_outputs() { phase } else { Phase::Backward };
            Some((new_chain(chain).0, backward, pass, bodies[id]))
        }
        _ => None,
    };
    let mut members: BTreeMap<_, Vec<TaskId>> = BTreeMap::new();
    for id in 0..role.tasks.len() {
        key(id).into_iter().for_each(|of| members.entry(of).or_default().push(id));
    }
    let mut target: Vec<Option<TaskId>> = vec![None; role.tasks.len()];
    let mut tasks: Vec<Task> = Vec::new();
    let (mut merged_from, mut places): (Vec<Vec<TaskId>>, Vec<TaskId>) = Default::default();
    for (id, task) in role.tasks.iter().enumerate() {
        let group = match key(id) {
            None => vec![id],
            Some(of) => members[&of].clone(),
        };
        let is_forward = key(id).is_some_and(|(_, phase, ..)| phase.makes_outputs());
        let place = if is_forward { group[0] } else { group[group.len() - 1] };
        if let (true, Some(op)) = (place == id, merged(role, &group, new_chain)) {
            group.iter().for_each(|member| target[*member] = Some(tasks.len()));
            tasks.push(Task { op, ..task.clone() });
            merged_from.push(group);
            places.push(id);
        }
    }
    for (id, task) in tasks.iter_mut().enumerate() {
        let old = merged_from[id].iter().flat_map(|member| &role.tasks[*member].after);
        let moved = |after: &After| target[after.task].map(|task| After { task, ..*after });
        let mut after: Vec<After> = old.filter_map(moved).collect();
        after.sort_by_key(|after| (after.task, after.lag));
        after.dedup();
        task.after = after;
    }
    for id in 0..tasks.len() {
        let mut left = places[id] + 1;
        let mut count = |old: usize| {
            let of = left..left + old;
            left = of.end;
            places.iter().filter(|place| of.contains(place)).count()
        };
        match &mut tasks[id].op {
            Op::Repeat { body, .. } => *body = count(*body),
            Op::Schedule(order) => {
                Arc::make_mut(order).bodies.iter_mut().for_each(|body| body.tasks = count(body.tasks));
            }
            _ => {}
        }
    }
    Role { tasks, ..role.clone() }
}

/// By task: the number of the body of a pipeline's schedule that it is in, from 1; 0 elsewhere.
fn bodies(role: &Role) -> Vec<usize> {
    let mut of_task = vec![0; role.tasks.len()];
    let Some(schedule) = role.tasks.iter().position(|task| matches!(task.op, Op::Schedule(_))) else { return of_task };
    let mut start = schedule + 1;
    for (number, body) in role.order().iter().flat_map(|order| &order.bodies).enumerate() {
        of_task[start..start + body.tasks].fill(number + 1);
        start += body.tasks;
    }
    of_task
}

/// The task that replaces `group`; `None` where it would make nothing: gradients inside a chain alone, which the chain's weight
/// pass makes for itself.
fn merged(role: &Role, group: &[TaskId], new_chain: &impl Fn(usize) -> (usize, bool)) -> Option<Op> {
    let mut data_of_first = false;
    let mut weight = false;
    let mut op = role.tasks[group[0]].op.clone();
    // The chain's own input gradient is needed if its first layer computes one; inner data gradients are always needed.
    for id in group {
        if let Op::Compute { chain, phase, .. } = role.tasks[*id].op {
            weight |= matches!(phase, Phase::BackwardWeight | Phase::Backward);
            data_of_first |= matches!(phase, Phase::BackwardData | Phase::Backward) && new_chain(chain).1;
        }
    }
    if let Op::Compute { chain, phase, .. } = &mut op {
        *chain = new_chain(*chain).0;
        if !phase.makes_outputs() {
            *phase = match (data_of_first, weight) {
                (true, true) => Phase::Backward,
                (false, true) => Phase::BackwardWeight,
                (true, false) => Phase::BackwardData,
                (false, false) => return None,
            };
        }
    }
    Some(op)
}
