//! Derives switches, sockets and links from a matrix of relations.
//!
//! Devices at `PIX` share a bridge, those at `PXB` a bridge above theirs, those at `PHB` or `NODE` a socket. Where an
//! NVLink hides the other relation of two GPUs, their NICs and their NUMA nodes place them.

use lockstep_topology::InputError;
use lockstep_topology::cluster::{CatalogueGpu, Lanes};

use crate::machine::{Machine, Rate};
use crate::relation::{Matrix, Relation};
use crate::{pcie, socket};

/// Adds sockets, bridges and all links of the matrix's devices.
pub(crate) fn join(matrix: &Matrix<'_>, model: &CatalogueGpu, machine: &mut Machine) -> Result<(), InputError> {
    let names = device_names(matrix, machine);
    let bridges = groups(matrix, Relation::Pix, |_, _| false);
    let uppers = groups(matrix, Relation::Pxb, |_, _| false);
    let sockets = groups(matrix, Relation::Node, |one, other| beside(matrix, one, other));
    let levels = [(&bridges, Relation::Pix), (&uppers, Relation::Pxb), (&sockets, Relation::Node)];
    levels.into_iter().try_for_each(|(groups, level)| check_groups(matrix, groups, level))?;
    let lanes = model.spec.pcie.unwrap_or(pcie::UNKNOWN);
    let firsts: Vec<usize> = (0..sockets.len()).filter(|device| sockets[*device] == *device).collect();
    for first in &firsts {
        let near = (0..sockets.len()).filter(|device| sockets[*device] == *first);
        // The matrix does not state the vendor of its CPUs.
        let threads = near.map(|device| matrix.rows[device].threads).max().unwrap_or(0);
        machine.sockets.push(socket::of_lanes(u32::from(lanes.generation), threads));
    }
    let mut switches = 0;
    let mut bridge = |machine: &mut Machine, parent: &str| {
        let name = format!("pcie{switches}");
        switches += 1;
        machine.switches.push(name.clone());
        machine.link(parent, &name, Rate::Pcie(lanes), true);
        name
    };
    for (index, first) in firsts.iter().enumerate() {
        let root = machine.socket(index);
        for upper in members(&uppers, |device| sockets[device] == *first) {
            let below = members(&bridges, |device| uppers[device] == upper);
            let parent = if below.len() > 1 { bridge(machine, &root) } else { root.clone() };
            for lower in below {
                let devices: Vec<usize> = (0..bridges.len()).filter(|device| bridges[*device] == lower).collect();
                let parent = if devices.len() > 1 { bridge(machine, &parent) } else { parent.clone() };
                devices.iter().for_each(|device| machine.link(&parent, &names[*device], Rate::Pcie(lanes), true));
            }
        }
    }
    nvlinks(matrix, model, &names, machine)
}

/// The devices' names as parts of a host, by row.
fn device_names(matrix: &Matrix<'_>, machine: &Machine) -> Vec<String> {
    let (mut gpus, mut nics) = (0.., machine.nics.iter());
    let name = |is_gpu: bool| match is_gpu {
        true => format!("gpu{}", gpus.next().unwrap_or(0)),
        false => nics.next().map(|nic| nic.name.clone()).unwrap_or_default(),
    };
    matrix.rows.iter().map(|row| row.is_gpu).map(name).collect()
}

/// Whether two GPUs with NVLinks between them are near the same CPU, as far as the matrix shows.
fn beside(matrix: &Matrix<'_>, one: usize, other: usize) -> bool {
    let is_hidden = matches!(matrix.rows[one].cells[other], Some(Relation::NvLinks(_)));
    is_hidden && matrix.rows[one].numa == matrix.rows[other].numa
}

/// For each device the first of those that it is within `level` of, or that `also` joins it with, through others too.
fn groups(matrix: &Matrix<'_>, level: Relation, also: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut first: Vec<usize> = (0..matrix.rows.len()).collect();
    for one in 0..first.len() {
        for other in 0..one {
            let is_near = matrix.rows[one].cells[other].is_some_and(|relation| relation <= level);
            if (is_near || also(one, other)) && first[one] != first[other] {
                let (low, high) = (first[one].min(first[other]), first[one].max(first[other]));
                first.iter_mut().filter(|group| **group == high).for_each(|group| *group = low);
            }
        }
    }
    first
}

/// The groups of the devices that are `within`, by their first devices.
fn members(groups: &[usize], within: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut found: Vec<usize> =
        (0..groups.len()).filter(|device| within(*device)).map(|device| groups[device]).collect();
    found.dedup();
    found.sort_unstable();
    found.dedup();
    found
}

/// Refuses devices that share a bridge by way of a third and are farther apart by their own cell.
fn check_groups(matrix: &Matrix<'_>, groups: &[usize], level: Relation) -> Result<(), InputError> {
    for one in 0..groups.len() {
        for other in 0..one {
            let Some(relation) = matrix.rows[one].cells[other] else { continue };
            let is_known = !matches!(relation, Relation::NvLinks(_));
            if is_known && groups[one] == groups[other] && relation > level {
                let pair = format!("{} - {}", matrix.rows[one].name, matrix.rows[other].name);
                let message =
                    "is farther than by way of a third device, so the matrix contradicts itself: print it again";
                return Err(matrix.error(one, pair, message));
            }
        }
    }
    Ok(())
}

/// Adds NVLinks: to an NVSwitch where a GPU has fewer than the sum of its row, else to each of the others.
fn nvlinks(
    matrix: &Matrix<'_>,
    model: &CatalogueGpu,
    names: &[String],
    machine: &mut Machine,
) -> Result<(), InputError> {
    let none = Lanes { generation: 1, count: 0 };
    let Lanes { generation, count: most } = model.spec.nvlink.unwrap_or(none);
    let counts = |row: usize| {
        let cell = |cell: &Option<Relation>| match cell {
            Some(Relation::NvLinks(count)) => *count,
            _ => 0,
        };
        matrix.rows[row].cells.iter().map(cell).collect::<Vec<u32>>()
    };
    let all: Vec<Vec<u32>> = (0..matrix.rows.len()).map(counts).collect();
    let has_switch = all.iter().any(|counts| counts.iter().sum::<u32>() > most);
    for (row, counts) in all.iter().enumerate() {
        let Some(count) = counts.iter().copied().find(|count| *count > 0) else { continue };
        let name = &matrix.rows[row].name;
        if !matrix.rows[row].is_gpu {
            return Err(matrix.error(row, name, "is a NIC and has NVLinks: print the matrix again"));
        }
        if has_switch {
            if count > most || counts.iter().any(|other| *other != 0 && *other != count) {
                let total: u32 = counts.iter().sum();
                let message =
                    format!("has {total} NVLinks, but a {} has {most}: name the right model of GPU", model.name);
                return Err(matrix.error(row, name, message));
            }
            let switch = machine.nvswitch();
            machine.link(switch, &names[row], Rate::NvLink(Lanes { generation, count }), false);
            continue;
        }
        for (other, count) in counts.iter().copied().enumerate().take(row).filter(|(_, count)| *count > 0) {
            machine.link(&names[other], &names[row], Rate::NvLink(Lanes { generation, count }), false);
        }
    }
    Ok(())
}
