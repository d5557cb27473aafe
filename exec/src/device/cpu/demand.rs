//! Computes the workspace that the kernels of a program need, before any of them runs.

use lockstep_models::{Op, Program};

use super::chain::{linear_loss, wide_elements};
use super::{ChainLayer, Kernel, Threads};
use crate::workspace;

/// Bytes of the workspace that the kernels of a rank share, and of the copies in fp32 of a task's operands in bf16: the
/// largest demand of any of them, each.
pub fn workspace_bytes(program: &Program, threads: &Threads) -> usize {
    let (model, samples) = (&program.model, program.batch_per_rank as usize);
    let of_chain = |layers: &Vec<_>| {
        let member = |id| ChainLayer { layer: &model.node(id).layer, inputs: &model.node(id).input_shapes };
        let members: Vec<ChainLayer<'_>> = layers.iter().copied().map(member).collect();
        if members[0].layer.is_loss() {
            linear_loss(model.node(layers[0]), samples, threads).map_or(0, |loss| loss.workspace_bytes(samples))
        } else {
            Kernel::new(&members, samples, threads).head.workspace_bytes(samples)
        }
    };
    let wide = |op: &Op| match op {
        Op::Compute { chain, phase, samples, .. } => {
            workspace::bytes(&wide_elements(program, &program.chains[*chain], *phase, *samples as usize))
        }
        _ => 0,
    };
    let tasks = program.roles.iter().flat_map(|role| &role.tasks);
    program.chains.iter().map(of_chain).max().unwrap_or(0) + tasks.map(|task| wide(&task.op)).max().unwrap_or(0)
}
