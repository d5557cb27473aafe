//! What a profile knows of GPUs: layers and steps on one of them, the copies that reach it, and what learners cost each other.

use serde::{Deserialize, Serialize};

use super::{ComputeEntry, Interval, Point};

/// Kernels on one model of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuEntry {
    /// What clusters call its `model`, e.g. `NVIDIA H200`.
    pub model: String,
    /// How many learners did the same at once for the slowdowns.
    pub at_once: u32,
    /// Layers: seconds alone on the whole GPU; a slowdown is that of `at_once` learners.
    pub compute: Vec<ComputeEntry>,
    /// The optimizer's step, by parameters.
    pub update: Vec<Point>,
    /// Samples, by their elements: what the computation waits for them when they are sent while the step before is computed.
    pub load: Vec<Point>,
    /// What the profile's own host has of this model; `None` where layers were measured and nothing else.
    #[serde(default)]
    pub hardware: Option<HardwareEntry>,
    /// Steps of several learners at once.
    #[serde(default)]
    pub learners: Vec<LearnersEntry>,
    /// Memory that ranks took.
    #[serde(default)]
    pub memory: Vec<MemoryEntry>,
}

/// GPUs of one model in the host that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareEntry {
    /// How many there are.
    pub count: u32,
    /// What was trained on: `cuda`, `cuda:tf32` or `cuda:bf16`.
    pub device: String,
    /// Multiprocessors of one.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The most FLOP/s that a measured layer came to: the roof for what was not measured.
    pub flops_s: f64,
    /// Seconds from one small kernel to the next.
    pub launch: Interval,
    /// Seconds of two marks with nothing between them, which all times on the device leave out.
    pub mark: Interval,
    /// From page-locked memory of the host to the GPU's.
    pub to_device: CopyEntry,
    /// The other way.
    pub to_host: CopyEntry,
    /// From the GPU's memory to itself.
    pub within: CopyEntry,
    /// To another GPU of the host; `None` where there is none.
    pub to_peer: Option<CopyEntry>,
    /// Messages straight from another's memory; `None` where ranks of one process send them through the host's.
    #[serde(default)]
    pub direct: Option<DirectEntry>,
    /// Sums by NCCL on several of them; none where they were not measured.
    #[serde(default)]
    pub nccl: Vec<SumEntry>,
}

/// A sum over ranks, each on a GPU of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumEntry {
    /// How many ranks.
    pub ranks: u32,
    /// fp32 elements of each.
    pub elements: u64,
    /// Seconds from when all ask for it until all have it.
    pub seconds: Interval,
}

/// Messages from one GPU's memory to another's, as ranks of one process take them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectEntry {
    /// Seconds of one element, from the host's order until the host sees that it is there.
    pub latency: Interval,
    /// Seconds more per byte that is copied.
    pub copy: Interval,
    /// Seconds more per byte that is added.
    pub sum: Interval,
}

/// Copies over one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyEntry {
    /// Seconds of a copy of one element.
    pub latency: Interval,
    /// Seconds per byte of a large one.
    pub byte: Interval,
}

/// Steps of learners that share a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnersEntry {
    /// The model.
    pub model: String,
    /// Samples in the batch of each.
    pub samples: u32,
    /// How many they were.
    pub learners: u32,
    /// Seconds in which each made a step.
    pub step: Interval,
    /// How many times longer than one alone.
    pub slowdown: f64,
}

/// Memory of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEntry {
    /// The model.
    pub model: String,
    /// Samples in its batch.
    pub samples: u32,
    /// Bytes by the memory plan.
    pub planned_bytes: u64,
    /// Bytes of the GPU that it took.
    pub taken_bytes: u64,
}

impl GpuEntry {
    /// A figure that cannot have been measured, and why.
    pub(super) fn fault(&self) -> Option<(String, &'static str)> {
        let positive = |figure: f64| figure > 0.0 && figure.is_finite();
        if self.at_once == 0 {
            return Some(("at_once = 0".to_owned(), "must be at least 1"));
        }
        for entry in &self.learners {
            if entry.learners == 0 || entry.samples == 0 || !positive(entry.slowdown) {
                return Some((format!("{entry:?}"), "must be positive"));
            }
        }
        let hardware = self.hardware.as_ref()?;
        let wrong = |entry: &&SumEntry| entry.ranks < 2 || entry.elements == 0 || !positive(entry.seconds.value);
        if let Some(entry) = hardware.nccl.iter().find(wrong) {
            return Some((format!("{entry:?}"), "must be of two ranks or more, and positive"));
        }
        let direct = hardware.direct.iter().flat_map(|direct| [direct.copy.value, direct.sum.value]);
        let mut rates = hardware.copies().map(|(_, copy)| copy.byte.value).chain([hardware.flops_s]).chain(direct);
        if hardware.count == 0 || hardware.multiprocessors == 0 || hardware.memory_bytes == 0 {
            return Some(("hardware".to_owned(), "must have at least one GPU with multiprocessors and memory"));
        }
        rates.find(|rate| !positive(*rate)).map(|rate| {
            (format!("a rate of {rate}"), "must be positive and finite, as rates of copies and of arithmetic are")
        })
    }

    /// Every interval beside those of layers, updates and loads, with its name.
    pub(super) fn intervals(&self) -> Vec<(String, &Interval)> {
        let named = |name: &str| format!("{}: {name}", self.model);
        let mut all: Vec<(String, &Interval)> =
            self.learners.iter().map(|entry| (named("step of learners"), &entry.step)).collect();
        if let Some(hardware) = &self.hardware {
            all.push((named("launch"), &hardware.launch));
            all.push((named("mark"), &hardware.mark));
            for (name, copy) in hardware.copies() {
                all.extend([(named(name), &copy.latency), (named(name), &copy.byte)]);
            }
            all.extend(hardware.nccl.iter().map(|entry| (named("sum by NCCL"), &entry.seconds)));
            if let Some(direct) = &hardware.direct {
                all.extend(
                    [&direct.latency, &direct.copy, &direct.sum].map(|figure| (named("direct message"), figure)),
                );
            }
        }
        all
    }
}

impl HardwareEntry {
    /// The copies that were measured.
    pub fn copies(&self) -> impl Iterator<Item = (&'static str, &CopyEntry)> {
        let ways = [
            ("copy to the device", &self.to_device),
            ("copy to the host", &self.to_host),
            ("copy on the device", &self.within),
        ];
        ways.into_iter().chain(self.to_peer.iter().map(|copy| ("copy to another device", copy)))
    }
}
