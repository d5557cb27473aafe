//! Builds the chains of a blueprint, with the addresses of what they keep.

use lockstep_exec::device::{Blueprint, DeviceError};
use lockstep_models::{Area, Op};

use super::calls::Share;
use super::{Chain, Gpus, Work};
use crate::Activation;
use crate::layers::{Allocator, ChainKernel, CrossEntropyKernels, TensorForm};

/// Allocates consecutive addresses.
struct Bump {
    next: u64,
}

impl Allocator for Bump {
    fn take(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes.next_multiple_of(256);
        address
    }
}

/// The layout of ranks' activations: channels first where copies cut images into parts, since copies know no other
/// order. Tensors that cross the border of two stages are whole, and both stages use the same layout.
pub(super) fn form(of: &Blueprint<'_>, gpus: &Gpus) -> TensorForm {
    let is_image = |area: Area| match area {
        Area::Activation(id) | Area::Gradient(id) => of.program.model.node(id).output.places() > 1,
        Area::Buffer(_) => false,
    };
    let exchanges = || of.program.roles.iter().flat_map(|role| role.exchanges());
    let is_border = |area: Area| exchanges().any(|(_, of)| of.between.is_some() && area == Area::Buffer(of.buffer));
    let mut tasks = of.program.roles.iter().flat_map(|role| &role.tasks);
    let cut = tasks.any(|task| match &task.op {
        Op::Copy(copies) => {
            let areas = [copies.first().from, copies.first().to];
            areas.into_iter().any(is_image) && !areas.into_iter().any(is_border)
        }
        _ => false,
    });
    TensorForm { precision: gpus.precision, channels_last: gpus.channels_last && !cut }
}

/// The chains for a share of the samples, with what they keep allocated from `first` on, and its size.
pub(super) fn chains<A: Activation>(
    of: &Blueprint<'_>,
    form: TensorForm,
    share: Share,
    first: u64,
) -> Result<(Vec<Chain<A>>, u64), DeviceError> {
    let mut space = Bump { next: first };
    let model = &of.program.model;
    let mut all = Vec::new();
    for (index, plan) in of.chains.iter().enumerate() {
        let (members, samples) = (of.members(index), share.of(plan.samples as u64) as u32);
        let head = model.node(plan.layers[0]);
        let work = if plan.samples == 0 {
            Work::Elsewhere
        } else if head.layer.is_loss() && head.signature.parameters.is_empty() {
            let labels = head.labels().map_or(1, |labels| labels.elements() as u32);
            let loss = CrossEntropyKernels::of_labels(&head.layer, model.classes(), (samples, labels), &mut space);
            Work::Loss(loss, head.loss_weight)
        } else if let Some(lacking) = ChainKernel::<A>::lacks(&members) {
            let node = model.node(plan.layers[lacking]);
            let call = format!("{} ({})", node.name, node.layer.kind());
            let reason = "GPUs compute no such layer here yet: use device cpu, or predict with lockstep sim predict";
            return Err(DeviceError::Refused { call, reason: reason.to_owned() });
        } else if ChainKernel::<A>::fits(&members, samples) {
            Work::Kernel(ChainKernel::new(&members, samples, form, &mut space))
        } else {
            let reason = format!(
                "{} of {samples} samples has a tensor of 2^32 elements or more: use fewer samples per rank",
                of.program.chain_name(index)
            );
            return Err(DeviceError::Refused { call: "a kernel".to_owned(), reason });
        };
        let (parameters, gradients) = (plan.parameters.clone(), plan.gradients.clone());
        let statistics = plan.statistics.clone();
        let output = plan.layers[plan.layers.len() - 1];
        all.push(Chain { work, parameters, gradients, statistics, feeds_one: model.consumers(output).len() == 1 });
    }
    Ok((all, space.next - first))
}
