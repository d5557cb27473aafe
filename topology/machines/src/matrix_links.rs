//! Derives switches, sockets and links from a matrix of relations.
//!
//! Devices at `PIX` share a bridge, those at `PXB` a bridge above theirs, those at `PHB` or `NODE` a socket. Where an
//! NVLink hides the other relation of two GPUs, their NICs and their NUMA nodes place them.

use lockstep_topology::InputError;
use lockstep_topology::cluster::{CatalogueGpu, Lanes};

use crate::machine::{Machine, Rate};
use crate::matrix_groups::{Evidence, groups, members};
use crate::matrix_rows::is_gpu;
use crate::relation::{Matrix, Relation};
use crate::{gpu, pcie, socket};

/// Adds sockets, bridges and all links of the matrix's devices.
pub(crate) fn join(matrix: &Matrix<'_>, model: &CatalogueGpu, machine: &mut Machine) -> Result<(), InputError> {
    let names = device_names(matrix, machine);
    let none = Evidence { reaches: Relation::Pix, by_nodes: false };
    let bridges = groups(matrix, &none)?;
    let uppers = groups(matrix, &Evidence { reaches: Relation::Pxb, ..none })?;
    let sockets = groups(matrix, &Evidence { reaches: Relation::Node, by_nodes: true })?;
    let lanes = model.spec.pcie.unwrap_or(pcie::UNKNOWN);
    let firsts: Vec<usize> = (0..sockets.len()).filter(|device| sockets[*device] == *device).collect();
    for first in &firsts {
        let near = (0..sockets.len()).filter(|device| sockets[*device] == *first);
        let known = near.map(|device| &matrix.rows[device].threads).find(|threads| !threads.is_empty());
        // The matrix does not state the vendor of its CPUs.
        machine.sockets.push(socket::of_time(lanes, known.cloned().unwrap_or_default()));
    }
    let mut switches = 0;
    let mut bridge = |machine: &mut Machine, parent: &str| {
        let name = format!("pcie{switches}");
        switches += 1;
        machine.switches.push(name.clone());
        machine.link(parent, &name, Rate::Pcie(lanes), true);
        name
    };
    let c2c = gpu::c2c(&model.name);
    for (index, first) in firsts.iter().enumerate() {
        let root = machine.socket(index);
        for upper in members(&uppers, |device| sockets[device] == *first) {
            let below = members(&bridges, |device| uppers[device] == upper);
            let parent = if below.len() > 1 { bridge(machine, &root) } else { root.clone() };
            for lower in below {
                let devices: Vec<usize> = (0..bridges.len()).filter(|device| bridges[*device] == lower).collect();
                let parent = if devices.len() > 1 { bridge(machine, &parent) } else { parent.clone() };
                for device in devices {
                    let is_beside_cpu = matrix.rows[device].is_gpu && c2c.is_some();
                    // A GPU beside its CPU is also on a bus if it shares one.
                    if !is_beside_cpu || parent != root {
                        machine.link(&parent, &names[device], Rate::Pcie(lanes), true);
                    }
                    if let Some(rate) = c2c.filter(|_| is_beside_cpu) {
                        machine.link(&root, &names[device], Rate::C2c(rate), true);
                    }
                }
            }
        }
    }
    nvlinks(matrix, model, &names, machine)
}

/// The devices' names as parts of a host, by row: GPUs by their numbers.
fn device_names(matrix: &Matrix<'_>, machine: &Machine) -> Vec<String> {
    let number = |name: &str| name.trim_start_matches("GPU").parse::<u32>().unwrap_or(0);
    let mut numbers: Vec<u32> = matrix.rows.iter().filter(|row| row.is_gpu).map(|row| number(&row.name)).collect();
    numbers.sort_unstable();
    let mut nics = machine.nics.iter();
    let name = |name: &str| match is_gpu(name) {
        true => format!("gpu{}", numbers.iter().position(|one| *one == number(name)).unwrap_or(0)),
        false => nics.next().map(|nic| nic.name.clone()).unwrap_or_default(),
    };
    matrix.rows.iter().map(|row| row.name.as_str()).map(name).collect()
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
        if has_switch {
            let is_even = counts.iter().all(|other| *other == 0 || *other == count);
            let said = if is_even { count } else { counts.iter().sum() };
            if count > most || !is_even {
                let message =
                    format!("has {said} NVLinks, but a {} has {most}: {}", model.name, gpu::with_nvlinks(said)?);
                return Err(matrix.error(row, name, message));
            }
            let switch = machine.nvswitch();
            machine.nvlink(switch, &names[row], model, Lanes { generation, count }, false);
            continue;
        }
        for (other, count) in counts.iter().copied().enumerate().take(row).filter(|(_, count)| *count > 0) {
            machine.nvlink(&names[other], &names[row], model, Lanes { generation, count }, false);
        }
    }
    Ok(())
}
