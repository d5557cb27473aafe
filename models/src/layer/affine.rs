//! Applies a constant factor and a constant summand to every element: factor · x + summand.

use super::*;

/// A constant factor and summand, the same for all elements; nothing is learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// Multiplies each element.
    pub factor: f32,
    /// Is added to each product.
    pub summand: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["factor", "summand"],
    caffe: CaffeKind::new(&["Power", "POWER"], &["power_param"], "power scale shift", |of| {
        match of.number("power")? {
            None | Some(1.0) => {
                let (factor, summand) = (of.number("scale")?.unwrap_or(1.0), of.number("shift")?.unwrap_or(0.0));
                Ok(Layer::Affine(Affine { factor, summand }))
            }
            Some(_) => Err(of.refuse("power", "only a power of 1 is a layer here: scale and shift")),
        }
    }),
    family: "scale",
    flops: (2.0, 1.0),
    ..LayerKind::new("affine", |of| {
        let (factor, summand) = (of.number("factor")?.unwrap_or(1.0), of.number("summand")?.unwrap_or(0.0));
        Ok(Layer::Affine(Affine { factor, summand }))
    })
};

impl LayerRule for Affine {
    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        if !(self.factor.is_finite() && self.summand.is_finite()) {
            return Err(format!("factor is {} and summand {}: both must be finite", self.factor, self.summand));
        }
        Ok(inputs[0])
    }

    fn settings(&self) -> String {
        format!(", factor = {}, summand = {}", self.factor, self.summand)
    }
}
