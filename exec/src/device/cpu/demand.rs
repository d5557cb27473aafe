//! Computes the workspace that the kernels of a program need, before any of them runs.

use lockstep_models::{Buffer, GradientShare, Op, Program};
use lockstep_topology::Dtype;

use super::chain::{linear_loss, wide_elements};
use super::{ChainLayer, Kernel, Threads};
use crate::workspace;

/// Bytes of the workspace that the kernels of a rank share, and of the copies in fp32 of a task's operands in bf16: the
/// largest demand of any of them, each.
pub fn workspace_bytes(program: &Program, threads: &Threads) -> usize {
    let (model, samples) = (&program.model, program.batch_per_rank as usize);
    let of_chain = |(index, layers): (usize, &Vec<_>)| {
        let member = |id| ChainLayer { layer: &model.node(id).layer, inputs: &model.node(id).input_shapes };
        let members: Vec<ChainLayer<'_>> = layers.iter().copied().map(member).collect();
        if members[0].layer.is_loss() {
            let loss = linear_loss(model.node(layers[0]), threads);
            loss.map_or(0, |loss| loss.workspace_bytes(samples, adds_gradients(program, index)))
        } else {
            let head = Kernel::new(&members, samples, threads).head;
            head.workspace_bytes(samples) + if adds_gradients(program, index) { head.added_bytes() } else { 0 }
        }
    };
    let wide = |op: &Op| match op {
        Op::Compute { chain, phase, samples, .. } => {
            workspace::bytes(&wide_elements(program, &program.chains[*chain], *phase, *samples as usize))
        }
        _ => 0,
    };
    let tasks = program.roles.iter().flat_map(|role| &role.tasks);
    program.chains.iter().enumerate().map(of_chain).max().unwrap_or(0)
        + tasks.map(|task| wide(&task.op)).max().unwrap_or(0)
}

/// Whether the gradient of a chain's parameters is added to that of an earlier micro-batch where it lies.
fn adds_gradients(program: &Program, chain: usize) -> bool {
    let adds = || {
        program.roles.iter().any(|role| {
            let of_chain = |task: &usize| matches!(role.tasks[*task].op, Op::Compute { chain: of, .. } if of == chain);
            let mut tasks = (0..role.tasks.len()).filter(of_chain);
            tasks.any(|task| [false, true].iter().any(|again| role.adds_gradients(task, *again)))
        })
    };
    match program.gradient_share(chain) {
        GradientShare::Last(_) => true,
        GradientShare::First(Some(_)) => false,
        GradientShare::First(None) | GradientShare::Alone => program.dtype(Buffer::Gradients) == Dtype::F32 && adds(),
    }
}
