//! Buckets: ranges of the parameters that are exchanged together, cut as the backward pass fills them.

use std::ops::Range;

use crate::{Bucket, LayerId, Model};

/// Layers of a bucket, in backward order, and their range of the gradient arena.
pub(super) struct Cut {
    pub(super) layers: Vec<LayerId>,
    pub(super) range: Range<u64>,
}

/// Cuts the gradient arena from its end, as backward passes fill it.
pub(super) fn cuts(model: &Model, bucket: Bucket) -> Vec<Cut> {
    let full = |cut: &Cut| match bucket {
        Bucket::Layer => true,
        Bucket::Whole => false,
        Bucket::Size(bytes) => (cut.range.end - cut.range.start) * 4 >= bytes.0,
    };
    let mut cuts: Vec<Cut> = Vec::new();
    for id in (0..model.layers().len() as u32).rev().map(LayerId) {
        let parameters = &model.node(id).parameters;
        let (Some(first), Some(last)) = (parameters.first(), parameters.last()) else { continue };
        match cuts.last_mut() {
            Some(cut) if !full(cut) => {
                cut.range.start = first.range.start;
                cut.layers.push(id);
            }
            _ => cuts.push(Cut { layers: vec![id], range: first.range.start..last.range.end }),
        }
    }
    cuts
}
