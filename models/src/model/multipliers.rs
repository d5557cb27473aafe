//! `Multipliers`: holds factors of a tensor's learning rate and weight decay, and the elements of a rank that they
//! apply to.

use std::fmt::Write as _;
use std::ops::Range;

use super::Model;

/// Factors of a tensor's learning rate and weight decay: Caffe's `lr_mult` and `decay_mult`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multipliers {
    /// Of the rate; 0 leaves the tensor as it is.
    pub rate: f32,
    /// Of the weight decay.
    pub decay: f32,
}

impl Multipliers {
    /// The unchanged rate and decay.
    pub const NONE: Multipliers = Multipliers { rate: 1.0, decay: 1.0 };
}

/// A range of a rank's parameters with its multipliers.
pub type Multiplied = (Range<u64>, Multipliers);

impl Model {
    /// Describes the multipliers of its tensors: `rate ×2 of 3 tensors, decay ×0 of 3 tensors`; `None` where all have
    /// those of the run.
    pub fn multipliers(&self) -> Option<String> {
        let mut text = String::new();
        for (what, of) in [("rate", (|of| of.rate) as fn(Multipliers) -> f32), ("decay", |of| of.decay)] {
            let mut found: Vec<(f32, u32)> = Vec::new();
            for parameter in self.nodes.iter().flat_map(|node| &node.parameters) {
                let factor = of(parameter.multipliers);
                match found.iter_mut().find(|(other, _)| *other == factor) {
                    Some((_, count)) => *count += 1,
                    None => found.push((factor, 1)),
                }
            }
            for (factor, count) in found.into_iter().filter(|(factor, _)| *factor != 1.0) {
                let separator = if text.is_empty() { "" } else { ", " };
                let _ = write!(text, "{separator}{what} ×{factor} of {count} tensors");
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// `range` in parts with one pair of multipliers each; `multiplied` lists in ascending order those that have some.
///
/// ```
/// # use lockstep_models::{Multipliers, multiplied_parts};
/// let twice = Multipliers { rate: 2.0, decay: 0.0 };
/// let parts = multiplied_parts(2..10, &[(0..3, twice), (5..8, twice)]);
/// let rates: Vec<_> = parts.iter().map(|(range, of)| (range.start, range.end, of.rate)).collect();
/// assert_eq!(rates, [(2, 3, 2.0), (3, 5, 1.0), (5, 8, 2.0), (8, 10, 1.0)]);
/// ```
pub fn multiplied_parts(range: Range<u64>, multiplied: &[Multiplied]) -> Vec<Multiplied> {
    let (mut parts, mut at): (Vec<Multiplied>, u64) = (Vec::new(), range.start);
    for (of, multipliers) in multiplied {
        let (start, end) = (of.start.max(range.start), of.end.min(range.end));
        if start < end {
            parts.extend((at < start).then_some((at..start, Multipliers::NONE)));
            parts.push((start..end, *multipliers));
            at = end;
        }
    }
    parts.extend((at < range.end).then_some((at..range.end, Multipliers::NONE)));
    parts
}
