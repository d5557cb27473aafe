//! Defines dropout: random zeros in training.

use super::*;

/// Sets a random share of the elements to zero in training and divides the others by the share kept, so that evaluation
/// passes everything unchanged (Srivastava et al. 2014; the division is in training instead of evaluation).
///
/// The mask of a sample depends on the sample's place in the training run alone, so any number of ranks and
/// micro-batches drops the same elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Share of elements that become zero, from 0 to below 1.
    pub rate: f32,
}

/// The format of an element's mark in the mask, whatever that of the element.
const MASK: Dtype = Dtype::U8;

pub(super) const KIND: LayerKind = LayerKind {
    overwrites: 1,
    keys: &["rate"],
    caffe: CaffeKind::new(&["Dropout", "DROPOUT"], &["dropout_param"], "dropout_ratio", |of| {
        Ok(Layer::Dropout(Dropout { rate: of.number("dropout_ratio")?.unwrap_or(0.5) }))
    }),
    ..LayerKind::new("dropout", |of| Ok(Layer::Dropout(Dropout { rate: of.number("rate")?.unwrap_or(0.5) })))
};

impl LayerRule for Dropout {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(0.0..1.0).contains(&self.rate) {
            return Err(format!("rate is {}: it must lie in 0 to 1, 1 excluded, e.g. 0.5", self.rate));
        }
        Ok(Signature::elementwise(inputs, inputs[0]))
    }

    fn settings(&self) -> String {
        format!(", rate = {}", self.rate)
    }

    fn adjusted_work(&self, of: &Node, _: Pass, samples: f64, work: Work) -> Work {
        work.with_kept(samples * of.input_elements(), MASK)
    }

    fn keeps(&self, _: Shape, output: Shape) -> Option<KeptTensor> {
        Some(KeptTensor::of("mask", output.elements(), MASK))
    }
}
