//! Holds a value for each coordinate on an axis of the mesh, so that ranks that differ share one list of tasks.

use std::sync::Arc;

use crate::{Axis, Mesh};

/// A value that ranks share, or one for each coordinate on an axis.
///
/// ```
/// # use lockstep_models::{Axis, ByCoordinate, Mesh};
/// let mesh = Mesh::new(&[(Axis::Data, 2), (Axis::Tensor, 3)]).unwrap();
/// let first_row = ByCoordinate::along(Axis::Tensor, vec![0, 40, 80]);
/// assert_eq!([0, 1, 2, 3].map(|rank| *first_row.at(&mesh, rank)), [0, 40, 80, 0]);
/// assert_eq!(ByCoordinate::along(Axis::Tensor, vec![7, 7, 7]), ByCoordinate::same(7));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ByCoordinate<T> {
    /// `None`: one value for all ranks.
    axis: Option<Axis>,
    values: Arc<[T]>,
}

impl<T: PartialEq> ByCoordinate<T> {
    /// One value for all ranks.
    pub fn same(value: T) -> ByCoordinate<T> {
        ByCoordinate { axis: None, values: Arc::new([value]) }
    }

    /// The value of each coordinate on `axis`, at least one; equal values become one.
    pub fn along(axis: Axis, values: Vec<T>) -> ByCoordinate<T> {
        debug_assert!(!values.is_empty());
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        let keep = if differ { values.len() } else { 1 };
        ByCoordinate { axis: differ.then_some(axis), values: values.into_iter().take(keep).collect() }
    }

    /// The value of `rank`.
    pub fn at(&self, mesh: &Mesh, rank: u32) -> &T {
        &self.values[self.axis.map_or(0, |axis| mesh.coordinate(axis, rank) as usize)]
    }

    /// The value of the first coordinate.
    pub fn first(&self) -> &T {
        &self.values[0]
    }

    /// The axis on which values differ; `None` where all ranks share one.
    pub fn axis(&self) -> Option<Axis> {
        self.axis
    }

    /// The values in the order of coordinates: one where ranks share it.
    pub fn values(&self) -> &[T] {
        &self.values
    }
}
