//! Prices tasks by a measured table: a calibrated profile, interpolated over sizes.
//!
//! A layer that was not measured is estimated from the most similar measured layers (`near.rs`), and is listed
//! in the notes.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_models::profile::{GpuEntry, MoveEntry, Profile, RepeatedEntry, TransportEntry, formula_key};
use lockstep_models::{Op, Partition, Phase, Program, SampleMove};
use lockstep_topology::cluster::{Device, DeviceKind, Route, Stack};
use lockstep_topology::{Dtype, InputError, Library};

use super::measured::{Measured, Sample, formulas, interpolate, sort};
use super::{Cost, Costs, MessageCost, Pair, Roofline, in_fp32};
use crate::noise::Noise;

/// The seed of the start in a profile's noise.
const NOISE_SEED: u64 = 1;

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
        let cpu = Measured { formulas: formulas(&profile.formulas), by_precision: true, ..cpu };
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
        let estimate = || measured.estimate(device, (program, chain), phase, samples);
        let figures = measured.chain(program, chain, phase, samples).or_else(estimate);
        figures.map_or(roof, |figures| measured.cost(device, figures, roof))
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        let roof = Roofline.update(device, elements);
        let Some(measured) = self.measured(device).filter(|of| !of.update.is_empty()) else { return roof };
        measured.cost(device, interpolate(&measured.update, elements as f64), roof)
    }

    fn formula(&self, device: &Device, name: &str, elements: u64, bytes: u64) -> Cost {
        let all = in_fp32(bytes * elements);
        let moved = self.moved(device, all);
        let Some(measured) = self.measured(device) else { return moved };
        measured.formulas.get(name).map_or(moved, |points| {
            measured.cost(device, interpolate(points, elements as f64), Roofline.moved(device, all))
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
        let names: BTreeSet<String> = keys.map(|key| key.name).collect();
        let unknown = |name: &String| all().all(|measured| !measured.formulas.contains_key(name));
        let of_formula = |name: String| format!("{name} was not measured: estimated from the update by what it moves");
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
}
