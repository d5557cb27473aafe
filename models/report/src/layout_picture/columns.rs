//! `Columns`: selects the ranks of a mesh that a picture shows, and where coordinates are left out.

use lockstep_models::{Axis, AxisSet, Mesh};

/// Ranks that are shown at most.
pub(super) const MOST: u32 = 8;

/// The ranks that are shown, in ascending order.
pub(super) struct Columns<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) ranks: Vec<u32>,
    /// Axes of the mesh, outer ones first.
    pub(super) axes: Vec<Axis>,
}

/// Neighbouring columns with one coordinate.
pub(super) struct Run {
    pub(super) coordinate: u32,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl<'a> Columns<'a> {
    /// Those of `mesh`: all, or of each axis the first coordinates and the last, so that there are [`MOST`] at most.
    pub(super) fn of(mesh: &'a Mesh) -> Columns<'a> {
        let axes: Vec<Axis> = mesh.outer_first().collect();
        let mut shown: Vec<u32> = axes.iter().map(|axis| mesh.size(*axis)).collect();
        let too_many = |shown: &[u32]| {
            let columns = shown.iter().try_fold(1u32, |columns, count| columns.checked_mul(*count));
            mesh.ranks() > MOST && columns.is_none_or(|columns| columns > MOST)
        };
        while too_many(&shown) {
            let most = shown.iter().copied().max().unwrap_or(1);
            if let Some(count) = shown.iter_mut().find(|count| **count == most) {
                *count = (most - 1).min(MOST);
            }
        }
        let mut ranks = Vec::new();
        if is_even(mesh) {
            ranks.push(0);
            for (axis, shown) in axes.iter().zip(&shown) {
                let along_it = |rank: &u32| {
                    let group = mesh.group_of(AxisSet::of(&[*axis]), *rank);
                    coordinates(group.count(), *shown).map(|at| group.rank(at)).collect::<Vec<u32>>()
                };
                ranks = ranks.iter().flat_map(along_it).collect();
            }
        } else {
            let is_shown = |rank: &u32| {
                let on = |(axis, shown): (&Axis, &u32)| {
                    let at = mesh.coordinate(*axis, *rank);
                    coordinates(along(mesh, *axis, *rank), *shown).any(|coordinate| coordinate == at)
                };
                axes.iter().zip(&shown).all(on)
            };
            ranks.extend((0..mesh.ranks()).filter(is_shown));
        }
        ranks.sort_unstable();
        Columns { mesh, ranks, axes }
    }

    /// Whether all groups along the same axes have equally many ranks; false on nodes with unequal numbers of devices.
    pub(super) fn is_even(&self) -> bool {
        is_even(self.mesh)
    }

    /// How many coordinates there are along an axis where a rank is, shown or not.
    pub(super) fn along(&self, axis: Axis, rank: u32) -> u32 {
        along(self.mesh, axis, rank)
    }

    /// Whether ranks are left out between a column and the next one.
    pub(super) fn gap_after(&self, column: usize) -> bool {
        let Some(next) = self.ranks.get(column + 1) else { return false };
        let at = |axis: &Axis, rank: u32| self.mesh.coordinate(*axis, rank);
        let differs = self.axes.iter().find(|axis| at(axis, self.ranks[column]) != at(axis, *next));
        differs.is_some_and(|axis| at(axis, *next) - at(axis, self.ranks[column]) > 1)
    }

    /// How many outer axes a column and the next one differ on.
    pub(super) fn steps_after(&self, column: usize) -> usize {
        let Some(next) = self.ranks.get(column + 1) else { return 0 };
        let outer = self.axes.len().saturating_sub(1);
        let differs =
            |axis: &&Axis| self.mesh.coordinate(**axis, self.ranks[column]) != self.mesh.coordinate(**axis, *next);
        self.axes[..outer].iter().filter(differs).count()
    }

    /// For each axis, outer ones first, the runs of columns with equal coordinates on it and on those outside it.
    pub(super) fn headings(&self) -> Vec<(Axis, Vec<Run>)> {
        let of = |depth: usize| {
            let mut runs: Vec<Run> = Vec::new();
            for column in 0..self.ranks.len() {
                let at = |column: usize, axis: &Axis| self.mesh.coordinate(*axis, self.ranks[column]);
                let same =
                    column > 0 && self.axes[..=depth].iter().all(|axis| at(column - 1, axis) == at(column, axis));
                match runs.last_mut().filter(|_| same) {
                    Some(run) => run.last = column,
                    None => runs.push(Run { coordinate: at(column, &self.axes[depth]), first: column, last: column }),
                }
            }
            (self.axes[depth], runs)
        };
        (0..self.axes.len()).map(of).collect()
    }

    /// The shown members of each group along `axes`, as columns, with whether further ones are left out.
    pub(super) fn groups(&self, axes: AxisSet) -> Vec<(Vec<usize>, bool)> {
        let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
        for (column, rank) in self.ranks.iter().enumerate() {
            let number = self.mesh.group_number(axes, *rank);
            match groups.iter_mut().find(|(known, _)| *known == number) {
                Some((_, members)) => members.push(column),
                None => groups.push((number, vec![column])),
            }
        }
        let more = |(number, members): (u32, Vec<usize>)| {
            let more = members.len() < self.mesh.group(axes, number).count() as usize;
            (members, more)
        };
        groups.into_iter().map(more).collect()
    }
}

/// Ranks along an axis; on nodes with unequal numbers of devices, those of the rank's node.
fn along(mesh: &Mesh, axis: Axis, rank: u32) -> u32 {
    let axes = AxisSet::of(&[axis]);
    if mesh.has_groups(axes) { mesh.group_of(axes, rank).count() } else { mesh.size(axis) }
}

fn is_even(mesh: &Mesh) -> bool {
    mesh.axes().iter().all(|axis| mesh.has_groups(AxisSet::of(&[axis])))
}

/// The first `shown` of `count` coordinates, the last of which is always the last of all.
fn coordinates(count: u32, shown: u32) -> impl Iterator<Item = u32> {
    let shown = shown.clamp(1, count);
    (0..shown).map(move |at| if at > 0 && at + 1 == shown { count - 1 } else { at })
}
