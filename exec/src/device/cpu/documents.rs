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

/// `y` = separators before the position.
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
            let mut document = 0.0;
            for (number, token) in numbers.iter_mut().zip(tokens) {
                *number = document;
                document += f32::from(u8::from(*token == self.separator));
            }
        }
    }

    /// Tokens have no gradient.
    fn backward(&mut self, _: Gradients<'_, '_>, _: &mut Workspace) {}
}
