//! Profiles GPUs: times layers, updates, loads, copies and learners on those of this machine.
//!
//! | what | how |
//! |---|---|
//! | each phase of each chain, updates | marks between the tasks of a step, all of it queued before the device starts |
//! | loads | how long the computation waits for samples that are sent while the step before is computed |
//! | learners | several replicas on threads of this process, each running its own steps |
//! | copies | each direction by itself |
//! | messages between GPUs | as between ranks of one process |
//! | sums by NCCL | one thread per member, from when all have called until all have the result |
//! | the host | as `lockstep calibrate` measures its messages and its memory |

mod learners;
mod rows;
mod steps;
mod whole;

use std::sync::Arc;

use lockstep_cuda::{Direct, Gpu, Gpus, LibraryFolders, Rates, Way, free_memory, probe, rates};
use lockstep_data::Dataset;
use lockstep_exec::ExecError;
use lockstep_exec::device::{DeviceError, Devices};
use lockstep_experiment::DeviceChoice;
use lockstep_models::memory::Memory;
use lockstep_models::profile::{
    ComputeEntry, CopyEntry, DirectEntry, GpuEntry, HardwareEntry, MemoryEntry, Point, Profile, SumEntry, chain_key,
};
use lockstep_models::{Model, Op, Phase, Program};
use lockstep_report::failure::Failure;
use lockstep_topology::InputError;

use self::steps::{Laps, Stand};
use crate::calibrate::{interval, merge, of_host, one_worker};
use crate::devices::gpus;
use crate::quiet::Quiet;
use crate::run_failure::run_failure;

pub use rows::gpu_rows;

/// Bytes of a large copy, and how often each is done.
const COPY_BYTES: u64 = 64 << 20;
const COPIES: u32 = 20;
/// Elements of sums, up to those of a large copy.
const SUMS: [u64; 4] = [1 << 10, 1 << 15, 1 << 20, 1 << 24];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The models whose layers are timed.
    pub models: Vec<Arc<Model>>,
    /// Samples in a batch, ascending.
    pub batches: Vec<u32>,
    /// Numbers of concurrent learners, ascending.
    pub learners: Vec<u32>,
    /// The device: a kind of `cuda`.
    pub device: DeviceChoice,
    /// Steps whose median is each figure.
    pub steps: u32,
    /// The data set.
    pub data: String,
    /// The command, for the profile.
    pub command: String,
}

/// Measures the GPUs of this machine, one of each model, and their host; `note` is called with what is being measured
/// and with what is skipped because it does not fit.
///
/// # Errors
/// No GPU, data that cannot be loaded, no batch that fits, a lost device.
pub fn profile(wanted: &Wanted, quiet: &mut Quiet, mut note: impl FnMut(&str)) -> Result<Profile, Failure> {
    let Some(gpus) = gpus(wanted.device)? else {
        let message = "is not a GPU: use cuda, cuda:tf32 or cuda:bf16, or measure the CPU with lockstep calibrate";
        return Err(InputError::flag("device", wanted.device.to_string(), message).into());
    };
    let machine =
        probe(&LibraryFolders::usual()).map_err(|why| run_failure(DeviceError::Unavailable(why.to_string())))?;
    let mut sets: Vec<(Program, Dataset)> = Vec::new();
    for model in &wanted.models {
        for batch in &wanted.batches {
            sets.push((one_worker(model, *batch)?, Dataset::load_of_any_size(&wanted.data, model)?.0));
        }
    }
    let mut entries = Vec::new();
    for (ordinal, gpu) in machine.gpus.iter().enumerate() {
        if machine.gpus[..ordinal].iter().any(|other| other.name == gpu.name) {
            continue;
        }
        let count = machine.gpus.iter().filter(|other| other.name == gpu.name).count() as u32;
        let at = Site { gpus: &gpus, gpu, ordinal: ordinal as u32, count };
        entries.push(at.measure(wanted, &sets, &mut note)?);
    }
    let mut profile = of_host(&wanted.command, quiet, &mut note)?;
    profile.gpus = entries;
    profile.check("profile")?;
    Ok(profile)
}

/// A GPU to measure.
struct Site<'a> {
    gpus: &'a Gpus,
    gpu: &'a Gpu,
    ordinal: u32,
    /// Number of GPUs of its model.
    count: u32,
}

impl Site<'_> {
    fn measure(
        &self,
        wanted: &Wanted,
        sets: &[(Program, Dataset)],
        note: &mut impl FnMut(&str),
    ) -> Result<GpuEntry, Failure> {
        note(&format!("copies to and from {}", self.gpu.name));
        let rates = rates(self.ordinal, COPY_BYTES, COPIES).map_err(run_failure)?;
        let direct = self.gpus.direct(self.ordinal, COPY_BYTES, COPIES).map_err(run_failure)?;
        let mut found = GpuFigures { nccl: self.sums(note).map_err(run_failure)?, ..GpuFigures::default() };
        for (program, data) in sets {
            let (model, samples) = (program.model.name().to_owned(), program.batch_per_rank);
            note(&format!("layers of {model} at a batch of {samples} on {}", self.gpu.name));
            self.gpus.clear();
            match self.layers(program, data, wanted.steps) {
                Ok((laps, memory)) => {
                    let planned_bytes = Memory::of_role(program, 0, 1)?.total();
                    let entry = MemoryEntry { model: model.clone(), samples, planned_bytes, taken_bytes: memory };
                    found.memory.push(entry);
                    found.sets.push((program, laps));
                }
                Err(ExecError::Device(error @ DeviceError::OutOfMemory { .. })) => {
                    note(&format!("{model} at a batch of {samples} is left out: {error}"));
                    continue;
                }
                Err(error) => return Err(run_failure(error)),
            }
            note(&format!("learners of {model} at a batch of {samples}: {:?}", wanted.learners));
            for count in &wanted.learners {
                // Ranks are distributed round-robin over all GPUs.
                let ranks: Vec<u32> =
                    (0..*count).map(|learner| self.ordinal + learner * self.gpus.count() as u32).collect();
                let stand = Stand { devices: self.gpus, program, data };
                match learners::steps(&stand, &ranks, wanted.steps) {
                    Ok(steps) => found.learners.push((model.clone(), samples, *count, steps)),
                    Err(ExecError::Device(error @ DeviceError::OutOfMemory { .. })) => {
                        note(&format!("{count} learners of {model} at a batch of {samples} are left out: {error}"));
                        break;
                    }
                    Err(error) => return Err(run_failure(error)),
                }
            }
        }
        self.gpus.clear();
        found.entry(self, wanted, (&rates, direct.as_ref()))
    }

    /// Sums by NCCL on two, four, … and all GPUs, where they are of one model.
    fn sums(&self, note: &mut impl FnMut(&str)) -> Result<Vec<SumEntry>, DeviceError> {
        let all = self.gpus.count() as u32;
        let mut entries = Vec::new();
        if self.count < all || all < 2 {
            return Ok(entries);
        }
        note(&format!("sums by NCCL on up to {all} x {}", self.gpu.name));
        let powers = std::iter::successors(Some(2), |members| Some(members * 2)).take_while(|members| *members < all);
        for ranks in powers.chain([all]) {
            let sums = self.gpus.sums(ranks, &SUMS, COPIES)?.unwrap_or_default();
            let entry = |(elements, seconds)| SumEntry { ranks, elements, seconds: interval(seconds) };
            entries.extend(sums.into_iter().map(entry));
        }
        Ok(entries)
    }

    /// The times of the tasks, and the device memory in bytes that a rank took.
    fn layers(&self, program: &Program, data: &Dataset, steps: u32) -> Result<(Laps, u64), ExecError> {
        let before = free_memory(self.ordinal)?;
        let stand = Stand { devices: self.gpus, program, data };
        let mut rank = stand.rank(self.ordinal)?;
        rank.step()?;
        let taken = before.saturating_sub(free_memory(self.ordinal)?);
        Ok((rank.laps(steps)?, taken))
    }
}

/// The figures of one GPU.
#[derive(Default)]
struct GpuFigures<'a> {
    sets: Vec<(&'a Program, Laps)>,
    memory: Vec<MemoryEntry>,
    /// Model, samples, learners, and the times of their steps.
    learners: Vec<(String, u32, u32, learners::Steps)>,
    nccl: Vec<SumEntry>,
}

impl GpuFigures<'_> {
    /// The steps of one learner of a program.
    fn alone(&self, program: &Program) -> Option<&learners::Steps> {
        let own = self.learners.iter().find(|(model, samples, count, _)| {
            *count == 1 && (model.as_str(), *samples) == (program.model.name(), program.batch_per_rank)
        });
        own.map(|(.., steps)| steps)
    }

    fn entry(
        self,
        of: &Site<'_>,
        wanted: &Wanted,
        (rates, direct): (&Rates, Option<&Direct>),
    ) -> Result<GpuEntry, Failure> {
        if self.sets.is_empty() {
            let batches: Vec<String> = wanted.batches.iter().map(u32::to_string).collect();
            let message = format!("none of them fits on {}: use smaller ones", of.gpu.name);
            return Err(InputError::flag("batch_per_rank", batches.join(","), message).into());
        }
        let learners = learners::entries(&self.learners);
        // Figures of all sets are comparable only where all had the same number of learners.
        let most = |model: &str, samples: u32| {
            let own = learners.iter().filter(|entry| entry.model == model && entry.samples == samples);
            own.map(|entry| entry.learners).max().unwrap_or(1)
        };
        let at_once =
            self.sets.iter().map(|(program, _)| most(program.model.name(), program.batch_per_rank)).min().unwrap_or(1);
        let slowdown = |program: &Program| {
            let own = learners.iter().find(|entry| {
                (entry.model.as_str(), entry.samples, entry.learners)
                    == (program.model.name(), program.batch_per_rank, at_once)
            });
            own.map_or(1.0, |entry| entry.slowdown)
        };
        let Entries { compute, update, load, marks, flops_s } = self.entries(slowdown);
        if flops_s <= 0.0 {
            let message = format!("{}'s clock has seen no layer take any time: nothing can be predicted", of.gpu.name);
            return Err(Failure::Run(message));
        }
        let hardware = HardwareEntry {
            count: of.count,
            device: wanted.device.to_string(),
            multiprocessors: of.gpu.multiprocessors,
            memory_bytes: of.gpu.memory,
            flops_s,
            launch: interval(rates.launch.clone()),
            mark: interval(marks),
            to_device: copies(&rates.to_device),
            to_host: copies(&rates.to_host),
            within: copies(&rates.within),
            to_peer: rates.to_peer.as_ref().map(copies),
            direct: direct.map(messages),
            nccl: self.nccl,
        };
        Ok(GpuEntry {
            model: of.gpu.name.clone(),
            at_once,
            compute,
            update,
            load,
            hardware: Some(hardware),
            learners,
            memory: self.memory,
        })
    }

    /// The figures of all sets' tasks, where all learners at once take a program `slowdown` times as long as one.
    fn entries(&self, slowdown: impl Fn(&Program) -> f64) -> Entries {
        let mut all = Entries::default();
        for (program, laps) in &self.sets {
            let point = |(elements, seconds): &(u64, Vec<f64>)| Point {
                elements: *elements,
                seconds: interval(seconds.clone()),
                slowdown: slowdown(program),
            };
            merge(&mut all.update, laps.updates.iter().map(point).collect());
            all.marks.extend(laps.marks.iter().copied());
            let elements = loaded(program);
            let waits = self.alone(program).map(|steps| steps.loads.clone()).unwrap_or_default();
            merge(&mut all.load, vec![Point { elements, seconds: interval(waits), slowdown: slowdown(program) }]);
        }
        for (program, laps) in &self.sets {
            let beside =
                value_at(&all.update, program.model.parameter_elements()) + value_at(&all.load, loaded(program));
            let share = whole::share(laps, self.alone(program), beside);
            for (op, seconds) in &laps.tasks {
                let Op::Compute { chain, phase, samples, .. } = op else { continue };
                if *phase == Phase::Recompute {
                    continue;
                }
                let (key, phase) = (chain_key(program, *chain), *phase);
                if all.compute.iter().any(|e| (&e.chain, &*e.phase, e.samples) == (&key, phase.name(), *samples)) {
                    continue;
                }
                let seconds = interval(seconds.iter().map(|seconds| seconds * share).collect());
                if phase == Phase::Forward && seconds.value > 0.0 {
                    all.flops_s = all.flops_s.max(flops(program, *chain, *samples) / seconds.value);
                }
                let (phase, slowdown) = (phase.name().to_owned(), slowdown(program));
                all.compute.push(ComputeEntry { chain: key, phase, samples: *samples, seconds, slowdown });
            }
        }
        all
    }
}

/// Figures of tasks on a GPU.
#[derive(Default)]
struct Entries {
    compute: Vec<ComputeEntry>,
    update: Vec<Point>,
    load: Vec<Point>,
    /// Seconds between two marks of the GPU's clock with nothing between them.
    marks: Vec<f64>,
    /// The highest rate of a forward pass; 0 where none took any time.
    flops_s: f64,
}

/// Elements of a batch.
fn loaded(program: &Program) -> u64 {
    u64::from(program.batch_per_rank) * program.model.input().elements()
}

/// The value measured at `elements`, in seconds.
fn value_at(points: &[Point], elements: u64) -> f64 {
    points.iter().find(|point| point.elements == elements).map_or(0.0, |point| point.seconds.value)
}

fn copies(way: &Way) -> CopyEntry {
    CopyEntry { latency: interval(way.small.clone()), byte: interval(way.byte.clone()) }
}

fn messages(direct: &Direct) -> DirectEntry {
    let of = |seconds: &Vec<f64>| interval(seconds.clone());
    DirectEntry { latency: of(&direct.small), copy: of(&direct.copy), sum: of(&direct.sum) }
}

/// FLOPs of a chain's forward pass.
fn flops(program: &Program, chain: usize, samples: u32) -> f64 {
    program.chains[chain].iter().map(|id| program.model.node(*id).flops(Phase::Forward, samples)).sum()
}
