//! Computes the workspace that the kernels of a program need, before any of them runs.

use lockstep_models::Program;

use super::{ChainLayer, Kernel, Threads};

/// Bytes of the workspace that the kernels of a rank share: the largest demand of any of them.
pub fn workspace_bytes(program: &Program, threads: &Threads) -> usize {
    let (model, samples) = (&program.model, program.batch_per_rank as usize);
    let of_chain = |layers: &Vec<_>| {
        let member = |id| ChainLayer { layer: &model.node(id).layer, inputs: &model.node(id).input_shapes };
        let members: Vec<ChainLayer<'_>> = layers.iter().copied().map(member).collect();
        if members[0].layer.is_loss() {
            0
        } else {
            Kernel::new(&members, samples, threads).head.workspace_bytes(samples)
        }
    };
    program.chains.iter().map(of_chain).max().unwrap_or(0)
}
