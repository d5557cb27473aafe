//! Concatenates inputs along channels.

use lockstep_topology::InputError;

use super::*;

pub(super) struct Concat;

pub(super) const KIND: LayerKind = LayerKind {
    inputs: 2..=usize::MAX,
    onnx: &[("Concat", |of| along_channels(of, "axis"))],
    caffe: CaffeKind::new(&["Concat", "CONCAT"], &["concat_param"], "axis concat_dim", |of| {
        along_channels(of, if of.size("axis")?.is_some() { "axis" } else { "concat_dim" })
    }),
    flops: [0.0, 0.0, 0.0],
    ..LayerKind::new("concat", |_| Ok(Layer::Concat))
};

/// Refuses any axis but channels.
fn along_channels(of: &dyn Attributes, key: &str) -> Result<Layer, InputError> {
    match of.size(key)? {
        None | Some(1) => Ok(Layer::Concat),
        Some(_) => Err(of.refuse(key, "only channels, axis 1, are supported")),
    }
}

impl LayerRule for Concat {
    /// The sum of the channels; heights and widths must agree.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let first = inputs[0];
        if let Some(other) = inputs.iter().find(|shape| shape.with_features(1) != first.with_features(1)) {
            return Err(format!("joins inputs of shapes {first} and {other}: heights and widths must be equal"));
        }
        let channels: u64 = inputs.iter().map(|shape| u64::from(shape.features())).sum();
        let channels = u32::try_from(channels).map_err(|_| format!("{channels} channels are too many"))?;
        Ok(Signature::elementwise(inputs, first.with_features(channels)))
    }
}
