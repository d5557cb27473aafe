//! Flattens, `c × h × w → (c·h·w) × 1 × 1`, in the same memory.

use super::*;

pub(super) struct Flatten;

pub(super) const KIND: LayerKind = LayerKind {
    is_view: true,
    onnx: &[("Flatten", |of| match of.size("axis")? {
        None | Some(1) => Ok(Layer::Flatten),
        Some(other) => Err(of.refuse("axis", &format!("axis is {other}: only 1 is supported"))),
    })],
    caffe: CaffeKind::new(&["Flatten", "FLATTEN"], &[], "", |_| Ok(Layer::Flatten)),
    ..LayerKind::new("flatten", |_| Ok(Layer::Flatten))
};

impl LayerRule for Flatten {
    /// Features of the output are those of the input, each with all places.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let elements = inputs[0].elements();
        u32::try_from(elements).map_err(|_| format!("{elements} features are too many"))?;
        let mut signature = Signature::elementwise(inputs, inputs[0]);
        signature.output[1..].iter_mut().for_each(|(_, dimension)| *dimension = Dimension::Feature);
        Ok(signature)
    }
}
