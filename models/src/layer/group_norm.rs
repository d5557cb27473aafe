//! Defines normalisation of each sample over groups of its channels.

use super::*;

/// Group normalisation (Wu and He 2018) of each sample over groups of neighbouring channels and all their places, with
/// learnable γ (initially 1) and β (initially 0) of each channel. With one group it is layer normalisation over the whole
/// sample, with as many as channels instance normalisation.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNorm {
    /// Groups of channels.
    pub groups: u32,
    /// Added to the variance under the square root.
    pub epsilon: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    class: KernelClass::Planes,
    keys: &["groups", "epsilon", "gamma_init"],
    family: "batch_norm",
    flops: [6.0, 4.0, 4.0],
    ..LayerKind::new("group_norm", |of| {
        let (groups, epsilon) = (of.size("groups")?.unwrap_or(32), of.number("epsilon")?.unwrap_or(1e-5));
        Ok(Layer::GroupNorm(GroupNorm { groups, epsilon }))
    })
};

impl LayerRule for GroupNorm {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(format!("epsilon is {}: it must be positive, e.g. 1e-5", self.epsilon));
        }
        if self.groups == 0 || !inputs[0].features().is_multiple_of(self.groups) {
            return Err(format!("groups is {}: it must divide the {} channels", self.groups, inputs[0].features()));
        }
        Ok(Signature::elementwise(inputs, inputs[0])
            .with_whole(&[Dimension::Feature, Dimension::Row, Dimension::Column])
            .with_each_feature(2))
    }

    fn settings(&self) -> String {
        format!(", groups = {}, epsilon = {}", self.groups, self.epsilon)
    }

    fn cost_settings(&self) -> String {
        format!(" g{}", self.groups)
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        let of = |name, init| Learned { name, init: Init::Constant(init), decay: false };
        vec![of("gamma", inits.gamma), of("beta", 0.0)]
    }

    /// A mean and an inverse deviation of each group.
    fn keeps(&self, _: Shape, _: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("statistics", 2 * u64::from(self.groups), Dtype::F32))
    }
}
