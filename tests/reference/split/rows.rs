//! Cuts the rows or the columns of a rank out of a whole layer, and puts them back.

use std::ops::Range;

use lockstep_models::{Node, Parameter};

use super::range;

/// The distribution of a layer's rows over ranks: equally many on each, the last ones padded with zeros.
pub(super) struct Rows<'a> {
    node: &'a Node,
    own: &'a Node,
    /// Rows per rank.
    pub(super) each: usize,
    /// Rows of all ranks.
    all: usize,
    /// Elements of a row of the output.
    pub(super) plane: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn of(node: &'a Node, own: &'a Node) -> Rows<'a> {
        let plane = node.output.places() as usize;
        Rows { node, own, each: own.output.features() as usize, all: node.output.features() as usize, plane }
    }

    /// A rank's rows that are not padding.
    pub(super) fn real(&self, rank: usize) -> Range<usize> {
        (rank * self.each).min(self.all)..((rank + 1) * self.each).min(self.all)
    }

    /// A rank's part of the output's elements.
    pub(super) fn cut(&self, whole: &[f32], rank: usize) -> Vec<f32> {
        let real = self.real(rank);
        let of_sample = |sample: &[f32]| {
            let mut own = sample[real.start * self.plane..real.end * self.plane].to_vec();
            own.resize(self.each * self.plane, 0.0);
            own
        };
        whole.chunks_exact(self.all * self.plane).flat_map(of_sample).collect()
    }

    /// The reverse of [`Rows::cut`].
    pub(super) fn join(&self, own: &[f32], rank: usize, whole: &mut [f32]) {
        let real = self.real(rank);
        let samples = own.chunks_exact(self.each * self.plane).zip(whole.chunks_exact_mut(self.all * self.plane));
        for (own, sample) in samples {
            sample[real.start * self.plane..real.end * self.plane].copy_from_slice(&own[..real.len() * self.plane]);
        }
    }

    /// By parameter: the place of a rank's rows among all parameters, and among its own.
    pub(super) fn places(&self, rank: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        let (real, start) = (self.real(rank), parameters(self.own).start);
        self.node.parameters.iter().zip(&self.own.parameters).map(move |(all, own)| {
            let row = all.elements() as usize / all.shape.sizes().next().unwrap() as usize;
            let first = range(all).start;
            (first + real.start * row..first + real.end * row, range(own).start - start)
        })
    }

    /// A rank's part of the layer's parameters.
    pub(super) fn weights(&self, all: &[f32], rank: usize) -> Vec<f32> {
        let mut own = vec![0.0; parameters(self.own).len()];
        self.places(rank).for_each(|(from, to)| own[to..to + from.len()].copy_from_slice(&all[from]));
        own
    }

    /// The reverse of [`Rows::weights`].
    pub(super) fn put_weights(&self, own: &[f32], rank: usize, all: &mut [f32]) {
        for (to, from) in self.places(rank) {
            let length = to.len();
            all[to].copy_from_slice(&own[from..from + length]);
        }
    }
}

/// The distribution of a layer's columns over ranks: the input features of each.
pub(super) struct Columns<'a> {
    weight: &'a Parameter,
    /// Elements of a sample of a rank's input, and of the whole one.
    width: usize,
    all: usize,
    /// Elements of a row of a rank's weight, and of the whole one.
    row: usize,
    all_row: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn of(node: &'a Node, own: &Node) -> Columns<'a> {
        let [width, all] = [own, node].map(|node| node.input_shapes[0].elements() as usize);
        let [row, all_row] = [own, node].map(|node| node.parameters[0].fan_in() as usize);
        Columns { weight: &node.parameters[0], width, all, row, all_row }
    }

    /// A rank's part of the input's elements.
    pub(super) fn cut(&self, whole: &[f32], rank: usize) -> Vec<f32> {
        whole.chunks_exact(self.all).flat_map(|sample| sample[rank * self.width..][..self.width].to_vec()).collect()
    }

    /// The reverse of [`Columns::cut`].
    pub(super) fn join(&self, own: &[f32], rank: usize, whole: &mut [f32]) {
        let samples = own.chunks_exact(self.width).zip(whole.chunks_exact_mut(self.all));
        samples.for_each(|(own, sample)| sample[rank * self.width..][..self.width].copy_from_slice(own));
    }

    /// A rank's part of the layer's weight.
    pub(super) fn weights(&self, all: &[f32], rank: usize) -> Vec<f32> {
        let rows = all[range(self.weight)].chunks_exact(self.all_row);
        rows.flat_map(|row| row[rank * self.row..][..self.row].to_vec()).collect()
    }

    /// The reverse of [`Columns::weights`].
    pub(super) fn put_weights(&self, own: &[f32], rank: usize, all: &mut [f32]) {
        let rows = all[range(self.weight)].chunks_exact_mut(self.all_row).zip(own.chunks_exact(self.row));
        rows.for_each(|(row, own)| row[rank * self.row..][..self.row].copy_from_slice(own));
    }
}

/// A layer's parameters among all.
pub(super) fn parameters(node: &Node) -> Range<usize> {
    match (node.parameters.first(), node.parameters.last()) {
        (Some(first), Some(last)) => range(first).start..range(last).end,
        _ => 0..0,
    }
}
