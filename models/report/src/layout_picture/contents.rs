//! `Contents`: computes which part of a tensor a rank holds under a layout.

use lockstep_models::{Axis, AxisLayout, Dimension, Layout};

use super::columns::Columns;

/// `count / of` of a tensor along one dimension, from `at / of` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) at: u32,
    pub(super) count: u32,
    pub(super) of: u32,
}

impl Part {
    /// All of it.
    pub(super) const WHOLE: Part = Part { at: 0, count: 1, of: 1 };

    /// The part `inner` of this part.
    fn cut(self, inner: Part) -> Part {
        let at = self.at * inner.of + self.count * inner.at;
        Part { at, count: self.count * inner.count, of: self.of * inner.of }
    }

    /// Where it begins and how long it is, as shares of the whole.
    pub(super) fn shares(self) -> (f64, f64) {
        (f64::from(self.at) / f64::from(self.of), f64::from(self.count) / f64::from(self.of))
    }
}

/// What a rank holds of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contents {
    /// Its range of samples, or of a weight's columns.
    pub(super) samples: Part,
    /// Its range of features, of a weight's rows, or of a table's entries.
    pub(super) features: Part,
    /// Its range of the elements, one after the other, of what it has of samples and features.
    pub(super) elements: Part,
    /// Which summand, where the tensor is a sum; ranks with the same number hold the same.
    pub(super) summand: Option<usize>,
    /// Which version, where ranks have their own.
    pub(super) version: Option<usize>,
}

/// What each shown rank holds; `None` where that is nothing.
pub(super) fn contents(columns: &Columns<'_>, layout: Layout) -> Vec<Option<Contents>> {
    let of = |wanted: AxisLayout| columns.axes.iter().copied().filter(move |axis| layout.on(*axis) == wanted);
    let [partial, own, first] =
        [AxisLayout::Partial, AxisLayout::Own, AxisLayout::First].map(|wanted| of(wanted).collect::<Vec<Axis>>());
    let part = |dimensions: &[Dimension], rank: u32| {
        let axes = dimensions.iter().flat_map(|dimension| of(AxisLayout::Split(*dimension)));
        axes.fold(Part::WHOLE, |part, axis| part.cut(share(columns, axis, rank)))
    };
    let of_rank = |rank: &u32| {
        let holds = first.iter().all(|axis| columns.mesh.coordinate(*axis, *rank) == 0);
        holds.then(|| Contents {
            samples: part(&[Dimension::Sample, Dimension::Input], *rank),
            features: part(&[Dimension::Feature, Dimension::Vocabulary], *rank),
            elements: part(&[Dimension::Element], *rank),
            summand: number(columns, &partial, *rank),
            version: number(columns, &own, *rank),
        })
    };
    columns.ranks.iter().map(of_rank).collect()
}

/// A rank's share along an axis, among the ranks shown with its coordinates on the axes outside; the coordinates left
/// out, which come before the last, have a share like the last one's.
fn share(columns: &Columns<'_>, axis: Axis, rank: u32) -> Part {
    let at = |axis: Axis, rank: u32| columns.mesh.coordinate(axis, rank);
    let outside = columns.axes.iter().take_while(|outer| **outer != axis).copied().collect::<Vec<Axis>>();
    let alike = |other: &&u32| outside.iter().all(|outer| at(*outer, **other) == at(*outer, rank));
    let shown: Vec<u32> = columns.ranks.iter().filter(alike).map(|other| at(axis, *other)).collect();
    let mut distinct = shown.clone();
    distinct.dedup();
    let count = |wanted: &dyn Fn(u32) -> bool| shown.iter().filter(|other| wanted(**other)).count() as u32;
    let (own, last) = (at(axis, rank), distinct[distinct.len() - 1]);
    let (before, equal) = (count(&|other| other < own), count(&|other| other == own));
    let left_out = if (distinct.len() as u32) < columns.along(axis, rank) { count(&|other| other == last) } else { 0 };
    let skipped = if own == last && own > 0 { left_out } else { 0 };
    Part { at: before + skipped, count: equal, of: shown.len() as u32 + left_out }
}

/// The number of a rank's coordinates on `axes`, among those of the ranks shown; none where there are no axes.
fn number(columns: &Columns<'_>, axes: &[Axis], rank: u32) -> Option<usize> {
    let of = |rank: u32| axes.iter().map(|axis| columns.mesh.coordinate(*axis, rank)).collect::<Vec<u32>>();
    let mut all: Vec<Vec<u32>> = columns.ranks.iter().map(|other| of(*other)).collect();
    all.sort_unstable();
    all.dedup();
    all.iter().position(|known| *known == of(rank)).filter(|_| !axes.is_empty())
}
