//! Numbers the documents of each sequence of tokens.

use lockstep_models::Layer;
use lockstep_topology::Dtype;

use super::embedding::tokens;
use super::{Forward, Gradients, Head, Wanted};
use crate::workspace::Workspace;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Documents(layer) = of.layer else { return None };
    let (separator, positions) = (layer.separator, of.input().places() as usize);
    Some(Box::new(Documents { separator, positions, tokens: Vec::new() }))
}

/// Numbers are counted modulo this, so that bf16 stores them exactly: neighbours differ, and attention reads the borders.
const NUMBERS: u32 = 256;

/// `y` = separators before the position, modulo [`NUMBERS`].
struct Documents {
    separator: u32,
    positions: usize,
    /// Of the samples at hand.
    tokens: Vec<u32>,
}

impl Head for Documents {
    fn take_integers(&mut self, samples: &[u8], dtype: Dtype) {
        self.tokens.clear();
        self.tokens.extend(tokens(samples, dtype));
    }

    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let samples = of.output.chunks_exact_mut(self.positions).zip(self.tokens.chunks_exact(self.positions));
        for (numbers, tokens) in samples {
            let mut document = 0;
            for (number, token) in numbers.iter_mut().zip(tokens) {
                *number = document as f32;
                document = (document + u32::from(*token == self.separator)) % NUMBERS;
            }
        }
    }

    /// Tokens have no gradient.
    fn backward(&mut self, _: Gradients<'_, '_>, _: &mut Workspace) {}
}
