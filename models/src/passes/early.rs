//! Early updates: each comes right behind the backward passes that its exchange overlaps, instead of behind all of them.
//!
//! Updates and backward passes queue on one stream, so from there on a later bucket's gradients may lie where the updated ones were
//! (Rajbhandari et al. 2020 §5.2).

use std::ops::Range;

use crate::{After, Buffer, Elementwise, Op, Phase, Program, Role, Task, TaskId};

/// Moves each update behind the backward passes of the `delay` buckets that follow its own, and each exchange to where its input is
/// there. The order among exchanges, among updates and among all other tasks stays as it is, and so does a role that repeats tasks.
pub(crate) fn update_early(program: Program, delay: u32) -> Program {
    let roles = program.roles.iter().map(|role| of_role(&program, role, delay as usize)).collect();
    Program { roles, ..program }
}

fn of_role(program: &Program, role: &Role, delay: usize) -> Role {
    if role.tasks.iter().any(|task| matches!(task.op, Op::Repeat { .. } | Op::Schedule(_))) {
        return role.clone();
    }
    let anchors = anchors(program, role, delay);
    let mut order: Vec<TaskId> = (0..role.tasks.len()).collect();
    order.sort_by_key(|id| (anchors[*id], anchors[*id] != *id, *id));
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    let moved = |old: &TaskId| {
        let task = &role.tasks[*old];
        let after = task.after.iter().map(|after| After { task: place[after.task], ..*after }).collect();
        Task { after, ..task.clone() }
    };
    Role { tasks: order.iter().map(moved).collect(), ..role.clone() }
}

/// By task: the task behind which it goes; itself where it stays.
fn anchors(program: &Program, role: &Role, delay: usize) -> Vec<TaskId> {
    let is_of_gradients = |id: &TaskId| matches!(&role.tasks[*id].op, Op::Exchange(e) if e.buffer == Buffer::Gradients);
    let reductions: Vec<TaskId> = (0..role.tasks.len()).filter(is_of_gradients).collect();
    let mut anchors: Vec<TaskId> = Vec::with_capacity(role.tasks.len());
    let (mut last_exchange, mut last_update) = (0, 0);
    for (id, task) in role.tasks.iter().enumerate() {
        let waited = || task.after.iter().filter(|after| after.lag == 0).map(|after| after.task);
        let ready = waited().map(|task| anchors[task]).max().unwrap_or(id);
        let anchor = match (&task.op, task.op.update()) {
            (Op::Exchange(_), _) => {
                last_exchange = ready.max(last_exchange);
                last_exchange
            }
            (_, Some(Elementwise { range, .. })) => {
                let own = reductions.iter().rposition(|reduction| waited().any(|task| task == *reduction));
                let overlapped = own.map(|own| anchors[reductions[(own + delay).min(reductions.len() - 1)]]);
                // Backward passes still read what it writes.
                let readers = role.tasks[..id].iter().rposition(|task| touches(program, task, range));
                last_update = overlapped.unwrap_or(id).max(readers.unwrap_or(0)).max(last_update);
                last_update
            }
            _ => id,
        };
        anchors.push(anchor);
    }
    anchors
}

/// Whether a task is a backward pass of layers some of whose parameters are in `range`.
fn touches(program: &Program, task: &Task, range: &Range<u64>) -> bool {
    let Op::Compute { chain, phase, .. } = task.op else { return false };
    let mut parameters = program.chains[chain].iter().flat_map(|id| &program.model.node(*id).parameters);
    phase != Phase::Forward && parameters.any(|p| p.range.start < range.end && range.start < p.range.end)
}
