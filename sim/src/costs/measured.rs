//! `Measured`: a device's measured tasks by what they compute, interpolated over sizes.

use std::collections::BTreeMap;

use lockstep_models::profile::{ComputeEntry, FormulaEntry, Point, chain_key, cpu_chain_key, in_precision};
use lockstep_models::{Node, Phase, Precision, Program};
use lockstep_topology::cluster::{Device, DeviceKind};

use super::Cost;
use super::near::Nearest;
use super::roofline::Numbers;

/// One measured size: size, seconds, slowdown.
pub(super) type Sample = (f64, f64, f64);

/// Measured figures of devices of one model.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// How many ran at once for the slowdowns: cores of a CPU, learners of a GPU.
    pub(super) at_once: f64,
    /// By chain and phase, over samples, ascending.
    pub(super) compute: BTreeMap<(String, Phase), Vec<Sample>>,
    /// The same, for chains that are not among them.
    pub(super) nearest: Nearest,
    /// The same of those in bf16.
    pub(super) nearest_narrow: Nearest,
    /// Whether keys of chains say their precision, as those of CPUs do.
    pub(super) by_precision: bool,
    pub(super) update: Vec<Sample>,
    /// By name.
    pub(super) formulas: BTreeMap<String, Vec<Sample>>,
    pub(super) load: Vec<Sample>,
    /// Seconds per byte that a sum directly from another GPU's memory takes longer than a copy.
    pub(super) direct_sum: f64,
    /// By number of GPUs: sums by NCCL on that many in the host that was measured, over elements.
    pub(super) sums: BTreeMap<u32, Vec<Sample>>,
}

impl Measured {
    pub(super) fn new(
        at_once: u32,
        side_by_side: u32,
        entries: &[ComputeEntry],
        update: &[Point],
        load: &[Point],
    ) -> Measured {
        let mut compute = BTreeMap::<(String, Phase), Vec<Sample>>::new();
        let (mut nearest, mut nearest_narrow) = (Nearest::new(side_by_side), Nearest::new(side_by_side));
        for entry in entries {
            let Some(phase) = Phase::MEASURED.into_iter().find(|phase| phase.name() == entry.phase) else { continue };
            let sample = (f64::from(entry.samples), entry.seconds.value, entry.slowdown);
            compute.entry((entry.chain.clone(), phase)).or_default().push(sample);
            let (chain, precision) = in_precision(&entry.chain);
            let nearest = if precision == Precision::F32 { &mut nearest } else { &mut nearest_narrow };
            nearest.add(chain, phase, entry.samples, entry.seconds.value, entry.slowdown);
        }
        compute.values_mut().for_each(sort);
        let points = |points: &[Point]| {
            let mut samples: Vec<Sample> =
                points.iter().map(|p| (p.elements as f64, p.seconds.value, p.slowdown)).collect();
            sort(&mut samples);
            samples
        };
        Measured {
            at_once: f64::from(at_once),
            compute,
            nearest,
            nearest_narrow,
            by_precision: false,
            update: points(update),
            formulas: BTreeMap::new(),
            load: points(load),
            direct_sum: 0.0,
            sums: BTreeMap::new(),
        }
    }

    /// A slowdown of f for n at once means that each takes f/n of what they share. Without a slowdown the measurement
    /// sets no limit, and `estimate` (the roofline's) is used, at most the 1/n with which n of them just fit.
    pub(super) fn share(&self, slowdown: f64, estimate: f64) -> f64 {
        if slowdown > 1.0 { (slowdown / self.at_once).min(1.0) } else { estimate.min(1.0 / self.at_once) }
    }

    /// The cost of a task that took `seconds` alone, combined with its roofline: cores of a CPU share its memory,
    /// learners of a GPU its multiprocessors.
    pub(super) fn cost(&self, device: &Device, (seconds, slowdown): (f64, f64), roof: Cost) -> Cost {
        match device.kind {
            DeviceKind::Cpu(_) => Cost { seconds, memory: self.share(slowdown, roof.memory), ..roof },
            DeviceKind::Gpu(_) | DeviceKind::Switch(_) => {
                let memory = if seconds > 0.0 { (roof.memory * roof.seconds / seconds).min(1.0) } else { 0.0 };
                Cost { seconds, memory, occupancy: self.share(slowdown, roof.occupancy) }
            }
        }
    }

    pub(super) fn chain(&self, program: &Program, chain: usize, phase: Phase, samples: u32) -> Option<(f64, f64)> {
        let key = if self.by_precision { cpu_chain_key(program, chain) } else { chain_key(program, chain) };
        let points = self.compute.get(&(key, phase))?;
        Some(interpolate(points, f64::from(samples)))
    }

    /// An estimate from similar chains: from those in the program's precision, if any.
    pub(super) fn estimate(
        &self,
        device: &Device,
        of: (&Program, usize),
        phase: Phase,
        samples: u32,
    ) -> Option<(f64, f64)> {
        let (program, chain) = of;
        let nodes: Vec<&Node> = program.chains[chain].iter().map(|id| program.model.node(*id)).collect();
        let from = |nearest: &Nearest| nearest.estimate(device, (&nodes, Numbers::of(program)), phase, samples);
        let narrow = self.by_precision && program.precision != Precision::F32;
        narrow.then(|| from(&self.nearest_narrow)).flatten().or_else(|| from(&self.nearest))
    }
}

/// Points by the name of their operation, ascending.
pub(super) fn formulas(entries: &[FormulaEntry]) -> BTreeMap<String, Vec<Sample>> {
    let mut all = BTreeMap::<String, Vec<Sample>>::new();
    for entry in entries {
        let sample = (entry.elements as f64, entry.seconds.value, entry.slowdown);
        all.entry(entry.formula.clone()).or_default().push(sample);
    }
    all.values_mut().for_each(sort);
    all
}

pub(super) fn sort(samples: &mut Vec<Sample>) {
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    samples.dedup_by_key(|sample| sample.0);
}

/// Seconds and slowdown at `size`: linear between measured sizes. Beyond them along the nearest two: below the
/// smallest at least in proportion and at most its time, above the largest at least its time. One size alone scales
/// in proportion.
pub(super) fn interpolate(samples: &[Sample], size: f64) -> (f64, f64) {
    let at = samples.partition_point(|sample| sample.0 < size);
    if let Some(exact) = samples.get(at).filter(|sample| sample.0 == size) {
        return (exact.1, exact.2);
    }
    let line = |a: Sample, b: Sample| a.1 + (b.1 - a.1) * (size - a.0) / (b.0 - a.0);
    match (at.checked_sub(1).map(|below| samples[below]), samples.get(at)) {
        (Some(a), Some(b)) => (line(a, *b), a.2 + (b.2 - a.2) * (size - a.0) / (b.0 - a.0)),
        (None, Some(first)) => {
            let proportional = first.1 * size / first.0;
            let along = samples.get(1).map_or(proportional, |second| line(*first, *second));
            (along.max(proportional).min(first.1), first.2)
        }
        (Some(last), None) => {
            let proportional = last.1 * size / last.0;
            let along = if at > 1 { line(samples[at - 2], last) } else { proportional };
            (along.max(last.1), last.2)
        }
        (None, None) => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolation_by_hand() {
        let samples = [(16.0, 2.0, 1.0), (64.0, 5.0, 1.6)];
        assert_eq!(interpolate(&samples, 16.0), (2.0, 1.0));
        assert_eq!(interpolate(&samples, 40.0), (3.5, 1.3)); // half way
        assert_eq!(interpolate(&samples, 128.0), (9.0, 1.6)); // 3 seconds per 48
        assert_eq!(interpolate(&samples, 8.0), (1.5, 1.0)); // along the line, which beats 2·8/16 = 1
        assert_eq!(interpolate(&samples[..1], 32.0), (4.0, 1.0)); // one size alone: in proportion
        // Falling times are noise: never below what was measured at the largest size.
        assert_eq!(interpolate(&[(16.0, 2.0, 1.0), (64.0, 1.0, 1.0)], 128.0).0, 1.0);
    }
}
