//! Defines the input, the samples themselves: exactly one per model, its first node.

use super::*;

/// The shape of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Samples(pub Shape);

const KIND: LayerKind =
    LayerKind { arity: Arity::Nothing, ..LayerKind::new("input", |of| Err(of.refuse("kind", "no file asks for it"))) };

impl OfKind for Samples {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for Samples {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, self.0))
    }

    fn settings(&self) -> String {
        format!(", shape = {:?}", self.0.image().sizes())
    }

    fn work(&self, _: &Sizes) -> [Work; 3] {
        [Work::default(); 3]
    }
}
