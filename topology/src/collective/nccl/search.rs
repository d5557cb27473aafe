//! Finds NCCL's channels on a machine: how many, and with what speed each, as its search over the topology graph does.
//!
//! Speeds are tried downwards, and the largest channels × speed wins; those of 25 GB/s and more are then split over
//! twice as many channels. Source: NVIDIA/nccl, `src/graph/search.cc` (`speedArray…`), `topo.h` (bandwidths of
//! links), `connect.cc` (channels are doubled). Between nodes a channel needs a NIC, and a NIC may carry several.
//! GB/s in one direction.

use super::{Generation, NcclMachine};

/// Channels with a speed each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Channels {
    pub(super) count: u32,
    /// GB/s of one.
    pub(super) speed: f64,
}

impl Channels {
    /// GB/s of all together.
    pub(super) fn total(self) -> f64 {
        f64::from(self.count) * self.speed
    }
}

/// The result of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SearchResult {
    /// The channels of rings and trees.
    pub(super) channels: Channels,
    /// How many of them run: twice as many, at most 32, and on a node of A100 or H100 24.
    pub(super) run: u32,
    /// Heads (GPUs of a node) of the sums in the switch, with a speed each, where NVSwitch sums.
    pub(super) nvls: Option<Channels>,
    /// Channels on which such sums run.
    pub(super) nvls_run: u32,
}

/// The most channels that the search looks for.
const MOST: u32 = 32;

const NODE: [f64; 12] = [40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0];
const NODE_HOPPER: [f64; 10] = [60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0];
const NODE_BLACKWELL: [f64; 11] = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0];
const ACROSS: [f64; 14] = [48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0];
const ACROSS_HOPPER: [f64; 16] =
    [48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24];

/// The bandwidth that NCCL counts for an NVLink, and its line rate.
fn nvlink(generation: Generation) -> (f64, f64) {
    match generation {
        Generation::Volta | Generation::Ampere => (20.0, 25.0),
        Generation::Hopper => (20.6, 25.0),
        Generation::Blackwell => (40.1, 50.0),
    }
}

/// Channels of a machine.
pub(super) fn search(machine: &NcclMachine) -> SearchResult {
    let (counts, line) = nvlink(machine.generation);
    let inside = if machine.nvlink.is_some() { machine.line() / line * counts } else { f64::INFINITY };
    let late = machine.generation >= Generation::Hopper;
    let speeds: &[f64] = match (machine.nodes > 1, machine.generation) {
        (true, _) if late => &ACROSS_HOPPER,
        (true, _) => &ACROSS,
        (false, Generation::Hopper) => &NODE_HOPPER,
        (false, Generation::Blackwell) => &NODE_BLACKWELL,
        (false, _) => &NODE,
    };
    let nic = machine.nic.map_or(f64::INFINITY, |_| line_of_nic(machine));
    let mut best = Channels { count: 1, speed: speeds[speeds.len() - 1].min(inside).min(nic) };
    for speed in speeds {
        // Tolerates the rounding of an exact quotient.
        let fits = |rate: f64| (rate / speed + 1e-9).min(f64::from(MOST)) as u32;
        let nics = if machine.nodes > 1 { machine.nics.saturating_mul(fits(nic)) } else { MOST };
        let found = Channels { count: fits(inside).min(nics).min(MOST), speed: *speed };
        if found.total() > best.total() + 1e-9 {
            best = found;
        }
    }
    let stays = late && best.speed < 50.0 && best.count > 4;
    if best.speed >= 25.0 && 2 * best.count <= MOST && !stays {
        best = Channels { count: 2 * best.count, speed: best.speed / 2.0 };
    }
    let capped = matches!(machine.generation, Generation::Ampere | Generation::Hopper) && machine.nodes == 1;
    let run = (2 * best.count).min(if capped { 24 } else { MOST });
    let heads = machine.per_node();
    let sums = late && machine.nvswitch && heads >= 3;
    // The fastest of its speeds; that a sixth of the links' is found follows from which numbers of GPUs take
    // NVLS (assumed).
    let head =
        Channels { count: heads, speed: inside.min(if late { 6.0 * top(machine.generation) } else { 0.0 }) / 6.0 };
    let nvls_run = match machine.generation {
        Generation::Blackwell if machine.nodes == 1 => 24,
        Generation::Blackwell => 32,
        _ => 16,
    };
    SearchResult { channels: best, run, nvls: sums.then_some(head), nvls_run }
}

/// The highest speed of a head.
fn top(generation: Generation) -> f64 {
    if generation == Generation::Blackwell { 120.0 } else { 60.0 }
}

/// The bandwidth that NCCL counts for a NIC: its line rate in Gbit/s through eight. The payload is up to a tenth less,
/// so the next higher usual line rate is taken.
fn line_of_nic(machine: &NcclMachine) -> f64 {
    const LINES: [f64; 9] = [1.25, 3.125, 5.0, 6.25, 12.5, 25.0, 50.0, 100.0, 200.0];
    let payload = machine.nic.map_or(0.0, |rate| rate.bytes_per_s() * 1e-9);
    LINES.into_iter().find(|line| payload <= line * 1.001 && payload >= line * 0.85).unwrap_or(payload)
}
