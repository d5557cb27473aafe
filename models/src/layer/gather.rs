//! Gathers the parts of ranks: an exchange fills its output. It occurs only in the part of a model that a rank holds
//! where layers are split (`models/src/model/shard.rs`), and computes nothing.

use super::*;

/// The shape of one gathered sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gathered(pub Shape);

const KIND: LayerKind = LayerKind::new("gather", |of| Err(of.refuse("kind", "no file asks for it")));

impl OfKind for Gathered {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for Gathered {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, self.0).with_whole(&[Dimension::Feature]))
    }

    fn settings(&self) -> String {
        Samples(SampleTensor::values(self.0)).settings()
    }

    fn work(&self, _: &Sizes) -> [Work; 3] {
        [Work::default(); 3]
    }
}
