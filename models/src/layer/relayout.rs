//! Changes the layout of its input: an exchange or a copy fills its output. It occurs only in the part of a model that a rank
//! holds where layers are split (`models/src/model/shard.rs`), and computes nothing.

use super::*;

/// Shape of one sample in the new layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Relayout(pub Shape);

const KIND: LayerKind = LayerKind::new("relayout", |of| Err(of.refuse("kind", "no file asks for it")));

impl OfKind for Relayout {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for Relayout {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, self.0).with_whole(&[Dimension::Feature]))
    }

    fn settings(&self) -> String {
        Samples { sample: SampleTensor::values(self.0), tokens: None }.settings()
    }

    /// Exchanges and copies fill it.
    fn adjusted_work(&self, _: &Node, _: Pass, _: f64, _: Work) -> Work {
        Work::default()
    }
}
