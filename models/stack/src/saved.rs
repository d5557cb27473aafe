//! `Saved`: a tensor that a layer keeps for its backward pass; `Activations`: what a layer keeps, with recomputation.

use lockstep_models::{Module, Recompute};

use crate::part::{Live, Part};

/// A tensor that a layer of a rank keeps for the backward pass of one micro-batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// What it is.
    pub name: &'static str,
    /// Attention, the feed-forward part or norms.
    pub part: Part,
    /// Its size on this rank.
    pub bytes: u64,
    /// The modules whose recomputation drops it.
    pub of: &'static [Module],
}

/// What a layer keeps of a micro-batch, and what its backward pass takes besides.
#[derive(Debug, Clone, PartialEq)]
pub struct Activations {
    /// Kept by each group of layers until the backward pass.
    pub kept: Live,
    /// Layers of a group: one, unless whole groups run again.
    pub group: u64,
    /// Computed again before the backward pass of a group.
    pub again: u64,
    /// Gradients of activations, at most, while a layer's backward pass runs.
    pub backward: u64,
}

impl Activations {
    /// Of a layer that saves `saved` and has `input` bytes of input, under `recompute`.
    pub fn of(saved: &[Saved], input: u64, backward: u64, recompute: &Recompute) -> Activations {
        let sum = |of: &dyn Fn(&Saved) -> bool| {
            saved.iter().filter(|one| of(one)).fold(Live::default(), |sum, one| sum + Live::of(one.part, one.bytes))
        };
        let all = sum(&|_| true);
        match recompute {
            Recompute::None => Activations { kept: all, group: 1, again: 0, backward },
            Recompute::Full { every } => {
                let input = Live::of(Part::Norms, input);
                let group = u64::from(*every);
                let again = all.total().saturating_mul(group).saturating_sub(input.total());
                Activations { kept: input, group, again, backward }
            }
            Recompute::Selective(modules) => {
                let dropped = |one: &Saved| one.of.iter().any(|module| modules.contains(module));
                let kept = sum(&|one| !dropped(one));
                Activations { kept, group: 1, again: all.total() - kept.total(), backward }
            }
        }
    }

    /// What `layers` layers keep.
    pub fn kept_by(&self, layers: u64) -> Live {
        self.kept * layers.div_ceil(self.group)
    }
}
