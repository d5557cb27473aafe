//! Numbers ranks by their coordinates on named axes, and lists the groups that axes form.

mod axis;
mod axis_algorithms;
mod by_coordinate;
mod members;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use axis::{Axis, AxisSet};
pub use axis_algorithms::AxisAlgorithms;
pub use by_coordinate::ByCoordinate;
use lockstep_topology::InputError;
pub use members::{Members, RankRange};

/// The workers of a program as a mesh: each rank has a coordinate on each axis, and ranks count up along the
/// last axis first.
///
/// ```
/// # use lockstep_models::{Axis, AxisSet, Mesh};
/// let mesh = Mesh::new(&[(Axis::Data, 4), (Axis::Tensor, 2)]).unwrap();
/// assert_eq!((mesh.ranks(), mesh.coordinate(Axis::Data, 5), mesh.coordinate(Axis::Tensor, 5)), (8, 2, 1));
/// // The ranks that differ from rank 5 on the axis `data` alone.
/// let group = mesh.group_of(AxisSet::of(&[Axis::Data]), 5);
/// assert_eq!(group.iter().collect::<Vec<_>>(), [1, 3, 5, 7]);
/// assert_eq!((mesh.to_string(), group.member(5)), ("data=4,tensor=2".to_owned(), Some(2)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Mesh {
    /// Outer axes first.
    axes: Vec<(Axis, u32)>,
    /// Where there are two axes, and coordinates on the outer one have unequal numbers of ranks: the first rank of
    /// each, and the number of ranks.
    starts: Option<Arc<[u32]>>,
}

impl Mesh {
    /// A mesh of these axes, outer ones first.
    ///
    /// # Errors
    /// A size of zero, an axis that is given twice, more than 2^32 − 1 ranks.
    pub fn new(axes: &[(Axis, u32)]) -> Result<Mesh, InputError> {
        let mesh = Mesh { axes: axes.to_vec(), starts: None };
        let refused = |message: String| Err(InputError::flag("ranks", mesh.to_string(), message));
        if let Some((axis, _)) = axes.iter().find(|(_, size)| *size == 0) {
            return refused(format!("axis {axis} has no ranks: give it a size of at least 1"));
        }
        if let Some((axis, _)) =
            axes.iter().find(|(axis, _)| axes.iter().filter(|(other, _)| other == axis).count() > 1)
        {
            return refused(format!("axis {axis} is given twice: multiply its sizes"));
        }
        match axes.iter().try_fold(1u32, |ranks, (_, size)| ranks.checked_mul(*size)) {
            Some(_) => Ok(mesh),
            None => refused(format!("its sizes make more than {} ranks: use fewer", u32::MAX)),
        }
    }

    /// Nodes with these numbers of devices: the axes `data` over nodes and `device` inside them.
    ///
    /// # Errors
    /// As [`Mesh::new`].
    pub fn of_nodes(sizes: &[u32]) -> Result<Mesh, InputError> {
        Mesh::nested([Axis::Data, Axis::Device], sizes)
    }

    /// Devices with these numbers of learners: the axes `device` over devices and `learner` on them.
    ///
    /// # Errors
    /// As [`Mesh::new`].
    pub fn of_devices(sizes: &[u32]) -> Result<Mesh, InputError> {
        Mesh::nested([Axis::Device, Axis::Learner], sizes)
    }

    /// An outer and an inner axis; by coordinate on the outer one, the size of the inner one.
    fn nested([outer, inner]: [Axis; 2], sizes: &[u32]) -> Result<Mesh, InputError> {
        let each = sizes.first().copied().unwrap_or(0);
        let count = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
        let equal = Mesh::new(&[(outer, count), (inner, each)])?;
        if sizes.iter().all(|size| *size == each) {
            return Ok(equal);
        }
        let mut starts = vec![0u32];
        for size in sizes {
            let end = starts[starts.len() - 1].checked_add(*size).filter(|_| *size > 0);
            starts.push(end.ok_or_else(|| {
                InputError::flag(
                    "ranks",
                    format!("{size} on a {outer}"),
                    "each needs a rank, and all together at most 2^32 - 1",
                )
            })?);
        }
        Ok(Mesh { starts: Some(starts.into()), ..equal })
    }

    /// The number of ranks: the product of the sizes.
    pub fn ranks(&self) -> u32 {
        match &self.starts {
            Some(starts) => starts[starts.len() - 1],
            None => self.axes.iter().map(|(_, size)| size).product(),
        }
    }

    /// Ranks along an axis, 1 along one that the mesh does not have; where numbers are unequal, the largest.
    pub fn size(&self, axis: Axis) -> u32 {
        match (&self.starts, axis) {
            (Some(starts), axis) if axis == self.axes[1].0 => {
                starts.windows(2).map(|part| part[1] - part[0]).max().unwrap_or(1)
            }
            _ => self.axes.iter().find(|(other, _)| *other == axis).map_or(1, |(_, size)| *size),
        }
    }

    /// The axes that it has.
    pub fn axes(&self) -> AxisSet {
        self.axes.iter().fold(AxisSet::default(), |set, (axis, _)| set.or(AxisSet::of(&[*axis])))
    }

    /// Its axes in the order in which they are nested, outer ones first.
    pub fn outer_first(&self) -> impl Iterator<Item = Axis> {
        self.axes.iter().map(|(axis, _)| *axis)
    }

    /// The coordinate of a rank on an axis: 0 on one that the mesh does not have.
    pub fn coordinate(&self, axis: Axis, rank: u32) -> u32 {
        if let Some(starts) = &self.starts {
            let node = node_of(starts, rank);
            let [outer, inner] = [0, 1].map(|at| axis == self.axes[at].0);
            return if outer { node as u32 } else { u32::from(inner) * (rank - starts[node]) };
        }
        self.strided().find(|(other, ..)| *other == axis).map_or(0, |(_, size, stride)| rank / stride % size)
    }

    /// The number of the source of samples that a rank draws from: ranks that differ only along `pipeline` and `tensor`
    /// share theirs.
    pub fn source(&self, rank: u32) -> u32 {
        if ![Axis::Pipeline, Axis::Tensor].into_iter().any(|axis| self.axes().contains(axis)) {
            return rank;
        }
        let on = |axis| self.coordinate(axis, rank);
        on(Axis::Data) * self.size(Axis::Device) + on(Axis::Device)
    }

    /// Whether the ranks form groups along `axes`. Nodes with unequal numbers of devices form none along `data` alone.
    pub fn has_groups(&self, axes: AxisSet) -> bool {
        self.starts.is_none() || !axes.contains(self.axes[0].0) || axes.contains(self.axes[1].0)
    }

    /// The ranks whose coordinate on `axis`, the innermost, is 0, and the others.
    pub(crate) fn first_along(&self, axis: Axis) -> (Members, Option<Members>) {
        let each = self.size(axis);
        if self.starts.is_some() {
            let (first, others) = (0..self.ranks()).partition(|rank| self.coordinate(axis, *rank) == 0);
            return (Members::listed(first), Some(Members::listed(others)));
        }
        let blocks = (self.ranks() / each, each);
        let others = (each > 1).then(|| Members::along(1, [blocks, (each - 1, 1)].into_iter()));
        (Members::along(0, [blocks].into_iter()), others)
    }

    /// The form of the groups along `axes`.
    fn along(&self, axes: AxisSet) -> Along<'_> {
        let Some(starts) = &self.starts else { return Along::Strides };
        match [0, 1].map(|at| axes.contains(self.axes[at].0)) {
            [true, _] => Along::Everyone,
            [false, true] => Along::Nodes(starts),
            [false, false] => Along::Nothing,
        }
    }

    /// The number of groups along `axes`: one for each choice of coordinates on the other axes.
    pub fn group_count(&self, axes: AxisSet) -> u32 {
        match self.along(axes) {
            Along::Strides => {
                self.axes.iter().filter(|(axis, _)| !axes.contains(*axis)).map(|(_, size)| size).product()
            }
            Along::Everyone => 1,
            Along::Nodes(starts) => starts.len() as u32 - 1,
            Along::Nothing => self.ranks(),
        }
    }

    /// The number of the group along `axes` that a rank belongs to.
    pub fn group_number(&self, axes: AxisSet, rank: u32) -> u32 {
        match self.along(axes) {
            Along::Strides => {
                let others = self.strided().filter(|(axis, ..)| !axes.contains(*axis));
                others.fold(0, |number, (_, size, stride)| number * size + rank / stride % size)
            }
            Along::Everyone => 0,
            Along::Nodes(starts) => node_of(starts, rank) as u32,
            Along::Nothing => rank,
        }
    }

    /// Group `number` along `axes`.
    pub fn group(&self, axes: AxisSet, number: u32) -> Members {
        match self.along(axes) {
            Along::Strides => {
                let (mut first, mut left) = (0, number);
                let others = self.strided().rev().filter(|(axis, ..)| !axes.contains(*axis));
                for (_, size, stride) in others {
                    first += left % size * stride;
                    left /= size;
                }
                let along = self.strided().filter(|(axis, ..)| axes.contains(*axis));
                Members::along(first, along.map(|(_, size, stride)| (size, stride)))
            }
            Along::Everyone => Members::range(0, self.ranks()),
            Along::Nodes(starts) => {
                let node = number as usize;
                Members::range(starts[node], starts[node + 1] - starts[node])
            }
            Along::Nothing => Members::range(number, 1),
        }
    }

    /// The group along `axes` that a rank belongs to.
    pub fn group_of(&self, axes: AxisSet, rank: u32) -> Members {
        self.group(axes, self.group_number(axes, rank))
    }

    /// The axis along which the ranks form consecutive blocks, with the size of these: the first one that has several.
    /// `None` with a single rank, or where nodes have unequal numbers.
    pub fn outermost(&self) -> Option<(Axis, u32)> {
        let several = |(_, size, _): &(Axis, u32, u32)| *size > 1;
        let first = self.strided().find(several).filter(|_| self.starts.is_none());
        first.map(|(axis, _, stride)| (axis, stride))
    }

    /// Axes with their sizes and the distance between neighbours along them, outer axes first.
    fn strided(&self) -> impl DoubleEndedIterator<Item = (Axis, u32, u32)> {
        let inner = |at: usize| self.axes[at + 1..].iter().map(|(_, size)| size).product();
        self.axes.iter().enumerate().map(move |(at, (axis, size))| (*axis, *size, inner(at)))
    }
}

/// The form of the groups along some axes.
enum Along<'a> {
    /// Ranks at equal distances on each axis.
    Strides,
    /// All ranks, over unequal nodes.
    Everyone,
    /// The ranks of each node, by first rank.
    Nodes(&'a [u32]),
    /// Each rank alone, over unequal nodes.
    Nothing,
}

fn node_of(starts: &[u32], rank: u32) -> usize {
    starts.partition_point(|start| *start <= rank).saturating_sub(1).min(starts.len() - 2)
}

impl FromStr for Mesh {
    type Err = String;

    /// Reads `data=4,tensor=2`, outer axes first.
    fn from_str(text: &str) -> Result<Mesh, String> {
        let axis = |part: &str| {
            let cure = || format!("{part:?} is not an axis with its size: write data=4,tensor=2, outer axes first");
            let (name, size) = part.split_once('=').ok_or_else(cure)?;
            Ok((name.trim().parse::<Axis>()?, size.trim().parse::<u32>().map_err(|_| cure())?))
        };
        let axes = text.split(',').map(axis).collect::<Result<Vec<_>, String>>()?;
        Mesh::new(&axes).map_err(|error| error.message)
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |(axis, size): &(Axis, u32)| match (&self.starts, axis) {
            (Some(starts), axis) if *axis == self.axes[1].0 => {
                let sizes: Vec<String> = starts.windows(2).map(|node| (node[1] - node[0]).to_string()).collect();
                format!("{axis}={}", sizes.join("+"))
            }
            _ => format!("{axis}={size}"),
        };
        f.write_str(&self.axes.iter().map(size).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All coordinates of all ranks, counted up axis by axis.
    fn coordinates(axes: &[(Axis, u32)]) -> Vec<Vec<u32>> {
        axes.iter().fold(vec![Vec::new()], |before, (_, size)| {
            before.iter().flat_map(|outer| (0..*size).map(move |at| [outer.as_slice(), &[at]].concat())).collect()
        })
    }

    fn meshes() -> impl Strategy<Value = Vec<(Axis, u32)>> {
        let axes = Just(Axis::ALL.to_vec()).prop_shuffle();
        (axes, proptest::collection::vec(1u32..4, 0..=4))
            .prop_map(|(axes, sizes)| axes.into_iter().zip(sizes).collect())
    }

    proptest! {
        /// Compares coordinates and groups with a list that enumerates all coordinates.
        #[test]
        fn groups_are_the_ranks_that_differ_along_their_axes(axes in meshes(), chosen in 0u8..32) {
            let (mesh, all) = (Mesh::new(&axes).unwrap(), coordinates(&axes));
            prop_assert_eq!(mesh.ranks() as usize, all.len());
            let set: Vec<Axis> = Axis::ALL.into_iter().enumerate().filter(|(at, _)| chosen & 1 << at != 0).map(|(_, a)| a).collect();
            let set = AxisSet::of(&set);
            let mut seen = vec![0u32; all.len()];
            for (rank, own) in (0u32..).zip(&all) {
                for (at, (axis, _)) in axes.iter().enumerate() {
                    prop_assert_eq!(mesh.coordinate(*axis, rank), own[at]);
                }
                let alike = |other: &&Vec<u32>| (0..axes.len()).all(|at| set.contains(axes[at].0) || own[at] == other[at]);
                let expected: Vec<u32> = (0u32..).zip(&all).filter(|(_, other)| alike(other)).map(|(rank, _)| rank).collect();
                let group = mesh.group_of(set, rank);
                prop_assert_eq!(group.iter().collect::<Vec<_>>(), expected.clone());
                prop_assert_eq!(group.member(rank).map(|member| group.rank(member)), Some(rank));
                for other in 0..mesh.ranks() + 2 {
                    prop_assert_eq!(group.contains(other), expected.contains(&other));
                }
                seen[mesh.group_number(set, rank) as usize] += 1;
            }
            let groups = mesh.group_count(set) as usize;
            prop_assert!(seen[..groups].iter().all(|count| *count as usize * groups == all.len()));
        }
    }

    #[test]
    fn unequal_nodes_by_hand() {
        let mesh = Mesh::of_nodes(&[2, 1, 3]).unwrap();
        let [device, data] = [Axis::Device, Axis::Data].map(|axis| AxisSet::of(&[axis]));
        assert_eq!((mesh.ranks(), mesh.to_string().as_str()), (6, "data=3,device=2+1+3"));
        let nodes: Vec<Vec<u32>> =
            (0..mesh.group_count(device)).map(|n| mesh.group(device, n).iter().collect()).collect();
        assert_eq!(nodes, [vec![0, 1], vec![2], vec![3, 4, 5]]);
        assert_eq!(mesh.group_of(device.or(data), 4).iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!((mesh.coordinate(Axis::Data, 4), mesh.coordinate(Axis::Device, 4)), (2, 1));
        assert!(mesh.has_groups(device) && !mesh.has_groups(data));
        let alone = AxisSet::of(&[Axis::Tensor]);
        assert_eq!((mesh.group_count(alone), mesh.group_of(alone, 4)), (6, Members::range(4, 1)));
        assert_eq!(Mesh::of_nodes(&[2, 2]), Mesh::new(&[(Axis::Data, 2), (Axis::Device, 2)]));
        let learners = Mesh::of_devices(&[2, 1, 3]).unwrap();
        let (first, others) = learners.first_along(Axis::Learner);
        assert_eq!(
            (learners.to_string().as_str(), learners.coordinate(Axis::Learner, 5)),
            ("device=3,learner=2+1+3", 2)
        );
        assert_eq!([first, others.unwrap()].map(|members| members.iter().collect::<Vec<_>>()), [[0, 2, 3], [1, 4, 5]]);
    }

    #[test]
    fn broken_meshes_are_refused() {
        let refused = |axes: &[(Axis, u32)]| Mesh::new(axes).unwrap_err().to_string();
        assert!(refused(&[(Axis::Data, 0)]).contains("at least 1"));
        assert!(refused(&[(Axis::Data, 2), (Axis::Data, 3)]).contains("twice"));
        assert!(refused(&[(Axis::Data, 1 << 16), (Axis::Tensor, 1 << 16)]).contains("use fewer"));
        assert!(Mesh::of_nodes(&[2, 0]).is_err() && Mesh::of_nodes(&[]).is_err());
    }
}
