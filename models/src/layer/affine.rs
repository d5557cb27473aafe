//! Applies a constant factor and a constant shift to every element: factor · x + shift.

use super::*;

/// A constant factor and shift, the same for all elements; nothing is learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// Multiplies each element.
    pub factor: f32,
    /// Is added to each product.
    pub shift: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["factor", "shift"],
    caffe: CaffeKind::new(&["Power", "POWER"], &["power_param"], "power scale shift", |of| {
        match of.number("power")? {
            None | Some(1.0) => {
                let (factor, shift) = (of.number("scale")?.unwrap_or(1.0), of.number("shift")?.unwrap_or(0.0));
                Ok(Layer::Affine(Affine { factor, shift }))
            }
            Some(_) => Err(of.refuse("power", "only a power of 1 is a layer here: scale and shift")),
        }
    }),
    family: "scale",
    flops: [2.0, 1.0, 0.0],
    ..LayerKind::new("affine", |of| {
        let (factor, shift) = (of.number("factor")?.unwrap_or(1.0), of.number("shift")?.unwrap_or(0.0));
        Ok(Layer::Affine(Affine { factor, shift }))
    })
};

impl LayerRule for Affine {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.factor.is_finite() && self.shift.is_finite()) {
            return Err(format!("factor is {} and shift {}: both must be finite", self.factor, self.shift));
        }
        Ok(Signature::elementwise(inputs, inputs[0]))
    }

    fn settings(&self) -> String {
        format!(", factor = {}, shift = {}", self.factor, self.shift)
    }
}
