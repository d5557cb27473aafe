//! Applies a factor and an optional bias per channel: Caffe's `Scale`.

use super::*;

/// A factor and an optional bias per channel, both learnable: Caffe's `Scale`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Whether each channel has a bias.
    pub bias: bool,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::ForParameters,
    keys: &["bias", "scale_init", "bias_init"],
    caffe: CaffeKind::new(&["Scale"], &["scale_param"], "bias_term filler bias_filler", |of| {
        Ok(Layer::Scale(Scale { bias: of.boolean("bias_term")?.unwrap_or(false) }))
    }),
    ..LayerKind::new("scale", |of| Ok(Layer::Scale(Scale { bias: of.boolean("bias")?.unwrap_or(true) })))
};

impl LayerRule for Scale {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, inputs[0]).with_each_feature(if self.bias { 2 } else { 1 }))
    }

    fn settings(&self) -> String {
        format!(", bias = {}", self.bias)
    }

    fn cost_settings(&self) -> String {
        if self.bias { " bias".to_owned() } else { String::new() }
    }

    /// It takes over γ and β of a batch norm without them, so it does not decay either.
    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        let of = |name, init| Learned { name, init: Init::Constant(init), decay: false };
        let factor = of("scale", inits.gamma);
        if self.bias { vec![factor, of("bias", inits.bias)] } else { vec![factor] }
    }

    fn with_bias(&self) -> Option<Layer> {
        Some(Layer::Scale(Scale { bias: true }))
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        let flops = if self.bias { 2.0 * of.input_elements() } else { of.input_elements() };
        [flops, of.input_elements(), flops]
    }
}
