//! Prices tasks by a measured table: a calibrated profile, interpolated over sizes.
//!
//! A layer that was not measured is estimated from the most similar measured layers (`near.rs`), and is listed
//! in the notes.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_models::profile::{
    ComputeEntry, FormulaEntry, GpuEntry, MoveEntry, Point, Profile, RepeatedEntry, TransportEntry, chain_key,
    formula_key,
};
use lockstep_models::{Node, Op, Partition, Phase, Program, SampleMove};
use lockstep_topology::cluster::{Device, DeviceKind, Route, Stack};
use lockstep_topology::{Dtype, InputError, Library};

use super::near::Nearest;
use super::roofline::Numbers;
use super::{Cost, Costs, MessageCost, Pair, Roofline};
use crate::noise::Noise;

/// The seed of the start in a profile's noise.
const NOISE_SEED: u64 = 1;

/// One measured size: size, seconds, slowdown.
type Sample = (f64, f64, f64);

/// Measured figures of devices of one model.
#[derive(Debug, Clone)]
struct Measured {
    /// How many ran at once for the slowdowns: cores of a CPU, learners of a GPU.
    at_once: f64,
    /// By chain and phase, over samples, ascending.
    compute: BTreeMap<(String, Phase), Vec<Sample>>,
    /// The same, for chains that are not among them.
    nearest: Nearest,
    update: Vec<Sample>,
    /// By name.
    formulas: BTreeMap<String, Vec<Sample>>,
    load: Vec<Sample>,
    /// Seconds per byte that a sum directly from another GPU's memory takes longer than a copy.
    direct_sum: f64,
    /// By number of GPUs: sums by NCCL on that many in the host that was measured, over elements.
    sums: BTreeMap<u32, Vec<Sample>>,
}

/// Costs as measured on a host; they apply to its CPUs and to GPUs of the measured models, others keep the roofline.
#[derive(Debug, Clone)]
pub struct CostTable {
    cpu: Measured,
    /// By model.
    gpus: BTreeMap<String, Measured>,
    memory: TransportEntry,
    moves: Vec<MoveEntry>,
    mpi: Option<TransportEntry>,
    noise: Option<Noise>,
    /// Whether devices are those of the measured host.
    is_at_home: bool,
}

impl Measured {
    fn new(at_once: u32, side_by_side: u32, entries: &[ComputeEntry], update: &[Point], load: &[Point]) -> Measured {
        let (mut compute, mut nearest) = (BTreeMap::<(String, Phase), Vec<Sample>>::new(), Nearest::new(side_by_side));
        let phases = [Phase::Forward, Phase::BackwardData, Phase::BackwardWeight, Phase::Backward];
        for entry in entries {
            let Some(phase) = phases.into_iter().find(|phase| phase.name() == entry.phase) else { continue };
            let sample = (f64::from(entry.samples), entry.seconds.value, entry.slowdown);
            compute.entry((entry.chain.clone(), phase)).or_default().push(sample);
            nearest.add(&entry.chain, phase, entry.samples, entry.seconds.value, entry.slowdown);
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
            update: points(update),
            formulas: BTreeMap::new(),
            load: points(load),
            direct_sum: 0.0,
            sums: BTreeMap::new(),
        }
    }

    /// A slowdown of f for n at once means that each takes f/n of what they share. Without a slowdown the measurement
    /// sets no limit, and `estimate` (the roofline's) is used, at most the 1/n with which n of them just fit.
    fn share(&self, slowdown: f64, estimate: f64) -> f64 {
        if slowdown > 1.0 { (slowdown / self.at_once).min(1.0) } else { estimate.min(1.0 / self.at_once) }
    }

    /// The cost of a task that took `seconds` alone, combined with its roofline: cores of a CPU share its memory,
    /// learners of a GPU its multiprocessors.
    fn cost(&self, device: &Device, (seconds, slowdown): (f64, f64), roof: Cost) -> Cost {
        match device.kind {
            DeviceKind::Cpu(_) => Cost { seconds, memory: self.share(slowdown, roof.memory), ..roof },
            DeviceKind::Gpu(_) | DeviceKind::Switch(_) => {
                let memory = if seconds > 0.0 { (roof.memory * roof.seconds / seconds).min(1.0) } else { 0.0 };
                Cost { seconds, memory, occupancy: self.share(slowdown, roof.occupancy) }
            }
        }
    }

    fn chain(&self, program: &Program, chain: usize, phase: Phase, samples: u32) -> Option<(f64, f64)> {
        let points = self.compute.get(&(chain_key(program, chain), phase))?;
        Some(interpolate(points, f64::from(samples)))
    }
}

/// Every (chain, phase, samples) that the program computes, once.
fn computed(program: &Program) -> Vec<(usize, Phase, u32)> {
    let mut all: Vec<(usize, Phase, u32)> = Vec::new();
    for task in program.roles.iter().flat_map(|role| &role.tasks) {
        if let Op::Compute { chain, phase, samples: samples @ 1.., .. } = task.op
            && !all.contains(&(chain, phase, samples))
        {
            all.push((chain, phase, samples));
        }
    }
    all
}

impl CostTable {
    /// The table of a profile.
    ///
    /// # Errors
    /// Impossible figures.
    pub fn new(profile: &Profile) -> Result<CostTable, InputError> {
        profile.check("profile")?;
        let cpu = Measured::new(profile.cores, profile.side_by_side, &profile.compute, &profile.update, &profile.load);
        let cpu = Measured { formulas: formulas(&profile.formulas), ..cpu };
        let gpu = |gpu: &GpuEntry| {
            let direct = gpu.hardware.as_ref().and_then(|hardware| hardware.direct.as_ref());
            let direct_sum = direct.map_or(0.0, |direct| (direct.sum.value - direct.copy.value).max(0.0));
            let measured = Measured::new(gpu.at_once, profile.side_by_side, &gpu.compute, &gpu.update, &gpu.load);
            let mut sums: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
            for entry in gpu.hardware.iter().flat_map(|hardware| &hardware.nccl) {
                let sample = (entry.elements as f64, entry.seconds.value, 1.0);
                sums.entry(entry.ranks).or_default().push(sample);
            }
            sums.values_mut().for_each(sort);
            (gpu.model.clone(), Measured { direct_sum, sums, ..measured })
        };
        Ok(CostTable {
            cpu,
            gpus: profile.gpus.iter().map(gpu).collect(),
            memory: profile.memory.clone(),
            moves: profile.moves.clone(),
            mpi: profile.mpi.clone(),
            noise: profile.noise.clone().and_then(|trace| Noise::new(trace, NOISE_SEED)),
            is_at_home: false,
        })
    }

    /// The same for the measured host itself, whose GPUs are connected as they were.
    #[must_use]
    pub fn at_home(self) -> CostTable {
        CostTable { is_at_home: true, ..self }
    }

    /// The measured figures of devices like this one.
    fn measured(&self, device: &Device) -> Option<&Measured> {
        match &device.kind {
            DeviceKind::Cpu(_) => Some(&self.cpu),
            DeviceKind::Gpu(gpu) => {
                self.gpus.iter().find(|(model, _)| gpu.is_model(model)).map(|(_, measured)| measured)
            }
            DeviceKind::Switch(_) => None,
        }
    }

    fn transport(&self, entry: &TransportEntry) -> MessageCost {
        MessageCost {
            latency: entry.latency.value,
            // Between processes it is not measured; ranks in turn are the same there.
            wake: entry.wake.or(self.memory.wake).map_or(0.0, |wake| wake.value),
            overhead: entry.overhead.value,
            copy: entry.copy.value,
            cold: entry.cold.map(|cold| cold.value),
            sum: entry.sum.value,
            memory: self.cpu.share(entry.slowdown, 1.0),
            ..MessageCost::default()
        }
    }
}

/// Points by the name of their operation, ascending.
fn formulas(entries: &[FormulaEntry]) -> BTreeMap<String, Vec<Sample>> {
    let mut all = BTreeMap::<String, Vec<Sample>>::new();
    for entry in entries {
        let sample = (entry.elements as f64, entry.seconds.value, entry.slowdown);
        all.entry(entry.formula.clone()).or_default().push(sample);
    }
    all.values_mut().for_each(sort);
    all
}

fn sort(samples: &mut Vec<Sample>) {
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    samples.dedup_by_key(|sample| sample.0);
}

/// Seconds and slowdown at `size`: linear between measured sizes. Beyond them along the nearest two: below the
/// smallest at least in proportion and at most its time, above the largest at least its time. One size alone scales
/// in proportion.
fn interpolate(samples: &[Sample], size: f64) -> (f64, f64) {
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

/// Seconds to copy and to add a byte of a buffer of `bytes`: linear in the logarithm of the size between measured
/// sizes, and those of the nearest size beyond them.
fn by_size(entries: &[RepeatedEntry], bytes: u64) -> Option<(f64, f64)> {
    let of = |entry: &RepeatedEntry| (entry.copy.value, entry.sum.value);
    let below = entries.iter().filter(|entry| entry.bytes <= bytes).max_by_key(|entry| entry.bytes);
    let above = entries.iter().filter(|entry| entry.bytes > bytes).min_by_key(|entry| entry.bytes);
    let (Some(below), Some(above)) = (below, above) else { return below.or(above).map(of) };
    let ratio = |to: u64| libm::log(to as f64 / below.bytes as f64);
    let share = ratio(bytes) / ratio(above.bytes);
    let ((copy, sum), (copy_above, sum_above)) = (of(below), of(above));
    Some((copy + (copy_above - copy) * share, sum + (sum_above - sum) * share))
}

impl Costs for CostTable {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        let roof = Roofline.compute(device, program, chain, phase, samples);
        let Some(measured) = self.measured(device) else { return roof };
        let estimate = || {
            let nodes: Vec<&Node> = program.chains[chain].iter().map(|id| program.model.node(*id)).collect();
            measured.nearest.estimate(device, (&nodes, Numbers::of(program)), phase, samples)
        };
        let figures = measured.chain(program, chain, phase, samples).or_else(estimate);
        figures.map_or(roof, |figures| measured.cost(device, figures, roof))
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        let roof = Roofline.update(device, elements);
        let Some(measured) = self.measured(device).filter(|of| !of.update.is_empty()) else { return roof };
        measured.cost(device, interpolate(&measured.update, elements as f64), roof)
    }

    fn formula(&self, device: &Device, name: &str, elements: u64, accesses: u64) -> Cost {
        let moved = self.moved(device, accesses * elements);
        let Some(measured) = self.measured(device) else { return moved };
        measured.formulas.get(name).map_or(moved, |points| {
            measured.cost(device, interpolate(points, elements as f64), Roofline.moved(device, accesses * elements))
        })
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        let roof = Roofline.load(device, program, samples);
        let Some(measured) = self.measured(device).filter(|of| !of.load.is_empty()) else { return roof };
        // Measured for fp32; other formats by their bytes.
        let each = program.model.sample().bytes() as f64 / Dtype::F32.bytes(1) as f64;
        let elements = f64::from(samples) * each;
        measured.cost(device, interpolate(&measured.load, elements), roof)
    }

    fn samples(&self, device: &Device, program: &Program, to: SampleMove, bytes: u64) -> Cost {
        let each = program.model.input().elements().max(1);
        let samples = bytes.div_ceil(program.model.sample().bytes().max(1));
        let load = self.load(device, program, samples.try_into().unwrap_or(u32::MAX));
        let nearest = self.moves.iter().min_by_key(|entry| entry.elements.abs_diff(each));
        let (Some(entry), DeviceKind::Cpu(_)) = (nearest, &device.kind) else { return load };
        let per_sample = match to {
            SampleMove::Pack => entry.pack,
            SampleMove::Unpack => entry.unpack,
        };
        let seconds = per_sample.value * bytes as f64 / Dtype::F32.bytes(entry.elements.max(1)) as f64;
        self.cpu.cost(device, (seconds, entry.slowdown), load)
    }

    fn sample_copy(&self) -> Option<(f64, f64)> {
        let entry = self.moves.iter().find(|entry| Dtype::F32.bytes(entry.elements) >= Partition::PACKED_BELOW)?;
        // Writing to random places is the slower half of a copy.
        Some((entry.unpack.value / Dtype::F32.bytes(entry.elements) as f64, self.cpu.share(entry.slowdown, 1.0)))
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        match (pair, &self.mpi) {
            (Pair::Memory, _) => self.transport(&self.memory),
            (Pair::Host, Some(mpi)) => self.transport(mpi),
            // Its latency is the link's plus that of a message between threads, which notifies the receiver.
            (Pair::Wire, _) if route.transport.protocol.stack == Stack::Peer => MessageCost {
                latency: self.memory.latency.value,
                sum: self.measured(receiver).map_or(0.0, |of| of.direct_sum),
                ..Roofline.message(pair, receiver, route)
            },
            (Pair::Host, None) | (Pair::Wire, _) => Roofline.message(pair, receiver, route),
        }
    }

    fn repeated(&self, pair: Pair, bytes: u64) -> Option<(f64, f64)> {
        let entry = match pair {
            Pair::Memory => &self.memory,
            Pair::Host => self.mpi.as_ref()?,
            Pair::Wire => return None,
        };
        by_size(&entry.repeated, bytes)
    }

    fn library(&self, of: Library, devices: &[&Device], elements: u64) -> Option<f64> {
        let first = *devices.first().filter(|_| self.is_at_home && of == Library::Devices)?;
        let alike = |device: &&Device| match (&device.kind, &first.kind) {
            (DeviceKind::Gpu(own), DeviceKind::Gpu(other)) => own.model == other.model,
            _ => false,
        };
        let apart = devices.windows(2).all(|pair| pair[0].id < pair[1].id);
        let sums = &self.measured(first).filter(|_| apart && devices.iter().all(alike))?.sums;
        sums.get(&(devices.len() as u32)).map(|sums| interpolate(sums, elements as f64).0)
    }

    fn traffic(&self, device: &Device) -> f64 {
        Roofline.traffic(device)
    }

    fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }

    fn alike(&self) -> bool {
        true
    }

    fn notes(&self, program: &Program) -> Vec<String> {
        let all = || std::iter::once(&self.cpu).chain(self.gpus.values());
        let known = |(chain, phase, samples): &(usize, Phase, u32)| {
            all().any(|measured| measured.chain(program, *chain, *phase, *samples).is_some())
        };
        let mut missing: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (chain, phase, _) in computed(program).into_iter().filter(|task| !known(task)) {
            let phases = missing.entry(chain).or_default();
            if !phases.contains(&phase.name()) {
                phases.push(phase.name());
            }
        }
        let some = all().any(|measured| !measured.compute.is_empty());
        let from = if some { "estimated from layers like it that were" } else { "taken from a roofline" };
        let note = |(chain, phases): (usize, Vec<&str>)| {
            format!("{} {} was not measured: {from}", phases.join(" and "), program.chain_name(chain))
        };
        let keys = program.roles.iter().flat_map(|role| &role.tasks).filter_map(|task| formula_key(program, &task.op));
        let names: BTreeSet<&str> = keys.map(|(name, _)| name).collect();
        let unknown = |name: &&str| all().all(|measured| !measured.formulas.contains_key(*name));
        let of_formula = |name| format!("{name} was not measured: estimated from the update by what it moves");
        missing.into_iter().map(note).chain(names.into_iter().filter(unknown).map(of_formula)).collect()
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::profile::Interval;

    use super::*;

    #[test]
    fn sizes_by_hand() {
        let entry = |bytes: u64, copy: f64| {
            let [copy, sum] = [copy, 2.0 * copy].map(Interval::exact);
            RepeatedEntry { bytes, copy, sum }
        };
        let entries = [entry(1024, 1.0), entry(4096, 3.0)];
        assert_eq!(by_size(&entries, 2048), Some((2.0, 4.0))); // half way from 2^10 to 2^12
        assert_eq!([1, 1024, 4096, 1 << 30].map(|bytes| by_size(&entries, bytes).unwrap().0), [1.0, 1.0, 3.0, 3.0]);
        assert_eq!(by_size(&[], 1024), None);
    }

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
