//! Defines the layout of a tensor over the ranks, axis by axis, and which collective leads from one
//! placement to another.
//!
//! Axes are independent of each other: a tensor may be split by samples along `data` and a partial sum along `tensor`.
//! So a rule or a transition is stated for one axis, and holds for a layout if it holds on each (as in GSPMD, Xu et
//! al. 2021 §3).

use std::fmt;

use lockstep_topology::Collective;

use crate::{Axis, AxisSet, Dimension};

/// The layout of a tensor over the ranks of one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AxisLayout {
    /// Every rank holds all of it.
    #[default]
    Replicated,
    /// Every rank holds its own part along a dimension.
    Split(Dimension),
    /// The tensor is the sum of what the ranks hold.
    Partial,
    /// Every rank deliberately holds its own version.
    Own,
    /// The first rank holds all of it, the others nothing.
    First,
}

impl fmt::Display for AxisLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisLayout::Replicated => f.write_str("replicated"),
            AxisLayout::Split(dimension) => write!(f, "split({dimension})"),
            AxisLayout::Partial => f.write_str("partial"),
            AxisLayout::Own => f.write_str("own"),
            AxisLayout::First => f.write_str("first"),
        }
    }
}

/// The layout of a tensor over the ranks: a placement on each axis.
///
/// ```
/// # use lockstep_models::{Axis, AxisLayout, AxisSet, Dimension, Layout};
/// let samples = Layout::new(AxisSet::of(&[Axis::Data, Axis::Device]), AxisLayout::Split(Dimension::Sample));
/// let gathered = samples.with(Axis::Device, AxisLayout::First);
/// assert_eq!(gathered.to_string(), "data: split(sample), device: first");
/// assert_eq!((samples.on(Axis::Device).to_string(), gathered.on(Axis::Device)), ("split(sample)".into(), AxisLayout::First));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Layout([AxisLayout; Axis::ALL.len()]);

impl Layout {
    /// All of the tensor on every rank.
    pub const REPLICATED: Layout = Layout([AxisLayout::Replicated; Axis::ALL.len()]);

    /// The same on each of `axes`, and replicated on the others.
    pub const fn new(axes: AxisSet, on_each: AxisLayout) -> Layout {
        let (mut layout, mut index) = (Layout::REPLICATED, 0);
        while index < Axis::ALL.len() {
            if axes.contains(Axis::ALL[index]) {
                layout.0[index] = on_each;
            }
            index += 1;
        }
        layout
    }

    /// The layout with another entry for one axis.
    pub const fn with(mut self, axis: Axis, on_it: AxisLayout) -> Layout {
        self.0[axis as usize] = on_it;
        self
    }

    /// The layout with another entry for each of `axes`.
    pub(crate) fn with_each(self, axes: AxisSet, on_each: AxisLayout) -> Layout {
        axes.iter().fold(self, |layout, axis| layout.with(axis, on_each))
    }

    /// The layout on an axis.
    pub fn on(self, axis: Axis) -> AxisLayout {
        self.0[axis as usize]
    }

    /// The axes on which it is not replicated.
    pub fn axes(self) -> AxisSet {
        self.axes_where(|on_it| on_it != AxisLayout::Replicated)
    }

    /// The axes whose layout satisfies `holds`.
    pub(crate) fn axes_where(self, holds: impl Fn(AxisLayout) -> bool) -> AxisSet {
        let those = Axis::ALL.into_iter().filter(|axis| holds(self.on(*axis)));
        those.fold(AxisSet::default(), |set, axis| set.or(AxisSet::of(&[axis])))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes().iter().map(|axis| format!("{axis}: {}", self.on(axis))).collect();
        f.write_str(if axes.is_empty() { "replicated" } else { "" })?;
        f.write_str(&axes.join(", "))
    }
}

/// The collective that changes one layout into another on an axis: `Some(None)` where each rank already has its part,
/// `None` where there is no such collective.
pub(crate) fn transition(from: AxisLayout, to: AxisLayout) -> Option<Option<Collective>> {
    match (from, to) {
        (AxisLayout::Replicated, AxisLayout::Split(_)) => Some(None),
        (AxisLayout::Partial, AxisLayout::Replicated) => Some(Some(Collective::AllReduce)),
        (AxisLayout::Partial, AxisLayout::Split(_)) => Some(Some(Collective::ReduceScatter)),
        (AxisLayout::Split(_), AxisLayout::Replicated) => Some(Some(Collective::AllGather)),
        (AxisLayout::Split(from), AxisLayout::Split(to)) if from != to => Some(Some(Collective::AllToAll)),
        (AxisLayout::Partial, AxisLayout::First) => Some(Some(Collective::Reduce { root: 0 })),
        (AxisLayout::First, AxisLayout::Replicated) => Some(Some(Collective::Broadcast { root: 0 })),
        (AxisLayout::Split(Dimension::Sample), AxisLayout::First) => Some(Some(Collective::Gather { root: 0 })),
        (AxisLayout::First, AxisLayout::Split(Dimension::Sample)) => Some(Some(Collective::Scatter { root: 0 })),
        _ => None,
    }
}
