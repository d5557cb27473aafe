//! Names the axes of the mesh of ranks, and sets of them.

use std::fmt;

/// A direction of the mesh of ranks: along it, ranks differ in what they hold or do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Layers are divided among stages along it.
    Pipeline,
    /// Samples are split along it; where devices are an axis too, it counts their nodes.
    Data,
    /// Features and rows of weights are split along it.
    Tensor,
    /// Devices of a node, or of all learners.
    Device,
    /// Learners of a device, each with a model of its own.
    Learner,
}

lockstep_topology::named!(Axis, "axis": Pipeline = "pipeline", Data = "data", Tensor = "tensor", Device = "device", Learner = "learner");

/// Some of the axes.
///
/// ```
/// # use lockstep_models::{AxisSet, Axis};
/// let axes = AxisSet::of(&[Axis::Learner, Axis::Device]);
/// assert_eq!(axes.to_string(), "device, learner");
/// assert!(axes.contains(Axis::Device) && !axes.contains(Axis::Data));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AxisSet(u8);

impl AxisSet {
    /// The set of the axes in a list.
    pub const fn of(list: &[Axis]) -> AxisSet {
        let (mut set, mut index) = (0, 0);
        while index < list.len() {
            set |= 1 << list[index] as u8;
            index += 1;
        }
        AxisSet(set)
    }

    /// The axes of either set.
    pub const fn or(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// The others of the set.
    pub const fn without(self, axis: Axis) -> AxisSet {
        AxisSet(self.0 & !(1 << axis as u8))
    }

    /// Whether an axis is in the set.
    pub const fn contains(self, axis: Axis) -> bool {
        self.0 & 1 << axis as u8 != 0
    }

    /// Whether no axis is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes of the set, outer ones first.
    pub fn iter(self) -> impl Iterator<Item = Axis> {
        Axis::ALL.into_iter().filter(move |axis| self.contains(*axis))
    }
}

impl fmt::Display for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(Axis::name).collect::<Vec<_>>().join(", "))
    }
}
