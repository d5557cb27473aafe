//! Groups a matrix's devices by what they share: a bridge, a bridge above, a NUMA node.

use lockstep_topology::InputError;

use crate::relation::{Matrix, Relation};

/// What puts two devices into one group.
#[derive(Clone, Copy)]
pub(crate) struct Evidence {
    /// A cell that is this near or nearer.
    pub(crate) reaches: Relation,
    /// Where a cell is hidden by NVLinks or left open, equal NUMA nodes or CPUs, as far as no other cell denies it.
    pub(crate) by_nodes: bool,
}

/// For each device the first of its group.
///
/// # Errors
/// Devices that are near by way of a third and far by their own cell.
pub(crate) fn groups(matrix: &Matrix<'_>, evidence: &Evidence) -> Result<Vec<usize>, InputError> {
    let mut first: Vec<usize> = (0..matrix.rows.len()).collect();
    let pairs: Vec<(usize, usize)> = (0..first.len()).flat_map(|one| (0..one).map(move |other| (one, other))).collect();
    for (one, other) in &pairs {
        if matrix.rows[*one].cells[*other].is_some_and(|cell| cell <= evidence.reaches) {
            unite(&mut first, *one, *other);
        }
    }
    check(matrix, &first, evidence.reaches)?;
    if evidence.by_nodes {
        // What the file says of two devices goes before what it leaves open.
        for is_said in [true, false] {
            for (one, other) in &pairs {
                let wanted = if is_said { Some(true) } else { None };
                if is_hidden(matrix, *one, *other)
                    && are_beside(matrix, *one, *other) == wanted
                    && !are_apart(matrix, &first, *one, *other)
                {
                    unite(&mut first, *one, *other);
                }
            }
        }
    }
    Ok(first)
}

fn unite(first: &mut [usize], one: usize, other: usize) {
    let (low, high) = (first[one].min(first[other]), first[one].max(first[other]));
    first.iter_mut().filter(|group| **group == high).for_each(|group| *group = low);
}

/// Whether the cell of two devices does not say by which bus they reach each other.
fn is_hidden(matrix: &Matrix<'_>, one: usize, other: usize) -> bool {
    matches!(matrix.rows[one].cells[other], None | Some(Relation::NvLinks(_)))
}

/// Whether two devices are near the same CPUs; `None` where the file does not say it of both.
fn are_beside(matrix: &Matrix<'_>, one: usize, other: usize) -> Option<bool> {
    let [one, other] = [one, other].map(|row| &matrix.rows[row]);
    if let (Some(one), Some(other)) = (&one.numa, &other.numa) {
        return Some(one == other);
    }
    let are_known = !one.threads.is_empty() && !other.threads.is_empty();
    are_known.then(|| one.threads == other.threads)
}

/// Whether a cell says that the groups of two devices are in different NUMA nodes.
fn are_apart(matrix: &Matrix<'_>, first: &[usize], one: usize, other: usize) -> bool {
    let of = |group: usize| (0..first.len()).filter(move |device| first[*device] == group);
    let is_far = |a: usize, b: usize| matrix.rows[a].cells[b] == Some(Relation::Sys);
    of(first[one]).any(|a| of(first[other]).any(|b| is_far(a, b)))
}

/// Refuses devices that share a part by way of a third and are farther apart by their own cell.
fn check(matrix: &Matrix<'_>, groups: &[usize], level: Relation) -> Result<(), InputError> {
    for one in 0..groups.len() {
        for other in (0..one).filter(|other| groups[*other] == groups[one] && !is_hidden(matrix, one, *other)) {
            if matrix.rows[one].cells[other].is_none_or(|cell| cell <= level) {
                continue;
            }
            let near = |a: usize, b: usize| matrix.rows[a].cells[b].is_some_and(|cell| cell <= level);
            let third = (0..groups.len()).find(|third| near(*third, one) && near(*third, other));
            let name = |row: usize| &matrix.rows[row].name;
            let by = third.map_or("is near by way of others".to_owned(), |third| {
                let [first, second] = [(one, third), (third, other)]
                    .map(|(a, b)| format!("{} - {}: {}", name(a), name(b), matrix.cell(a, b)));
                format!("is near by way of {} ({first}; {second})", name(third))
            });
            let message = format!(
                "{by}, and by its own cell far ({}), so the matrix contradicts itself: correct one of these cells, or \
                 print it again",
                matrix.cell(one, other)
            );
            return Err(matrix.error(one, format!("{} - {}", name(one), name(other)), message));
        }
    }
    Ok(())
}

/// The groups of the devices that are `within`, by their first devices.
pub(crate) fn members(groups: &[usize], within: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut found: Vec<usize> =
        (0..groups.len()).filter(|device| within(*device)).map(|device| groups[device]).collect();
    found.sort_unstable();
    found.dedup();
    found
}
