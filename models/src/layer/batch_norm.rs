//! Defines batch normalisation.

use super::*;

/// Batch normalisation per channel with learnable γ (initially 1) and β (initially 0).
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance under the square root.
    pub epsilon: f32,
    /// Weight of the old running average: `running ← momentum·running + (1 − momentum)·batch`.
    pub momentum: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    statistics: true,
    input_use: InputUse::Always,
    takes_relu: true,
    class: KernelClass::Planes,
    keys: &["epsilon", "momentum", "gamma_init"],
    caffe: CaffeKind::new(
        &["BatchNorm"],
        &["batch_norm_param"],
        "use_global_stats moving_average_fraction eps bn_mode scale_bias scale_filler bias_filler filler engine",
        |of| {
            let epsilon = of.number("eps")?.unwrap_or(1e-5);
            let momentum = of.number("moving_average_fraction")?.unwrap_or(0.999);
            Ok(Layer::BatchNorm(BatchNorm { epsilon, momentum }))
        },
    ),
    flops: [6.0, 4.0, 4.0],
    ..LayerKind::new("batch_norm", |of| {
        let (epsilon, momentum) = (of.number("epsilon")?.unwrap_or(1e-5), of.number("momentum")?.unwrap_or(0.9));
        Ok(Layer::BatchNorm(BatchNorm { epsilon, momentum }))
    })
};

impl LayerRule for BatchNorm {
    /// Statistics are of the samples that a rank has.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(format!("epsilon is {}: it must be positive, e.g. 1e-5", self.epsilon));
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(format!("momentum is {}: it must lie in 0 to 1, 1 excluded", self.momentum));
        }
        Ok(Signature::elementwise(inputs, inputs[0]).with_each_feature(2))
    }

    fn settings(&self) -> String {
        format!(", epsilon = {}, momentum = {}", self.epsilon, self.momentum)
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        let of = |name, init| Learned { name, init: Init::Constant(init), decay: false };
        vec![of("gamma", inits.gamma), of("beta", 0.0)]
    }

    fn weight_rule(&self, rules: &InitRules, _: bool, ends_block: bool) -> Option<Init> {
        rules.residual_gamma.filter(|_| ends_block).map(Init::Constant)
    }
}
