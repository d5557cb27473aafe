//! Defines the GPU part of a profile: layers and steps on one GPU, the copies that reach it, and the slowdown of
//! learners that share it.

use serde::{Deserialize, Serialize};

use super::{ComputeEntry, Interval, Point};

/// Kernels on one model of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuEntry {
    /// The `model` of clusters, e.g. `NVIDIA H200`.
    pub model: String,
    /// How many learners ran at once for the slowdowns.
    pub at_once: u32,
    /// Layers: seconds alone on the whole GPU; a slowdown is that of `at_once` learners.
    pub compute: Vec<ComputeEntry>,
    /// The optimizer's step, by parameters.
    pub update: Vec<Point>,
    /// Samples, by their elements: how long computation waits for them when they are sent during the step before.
    pub load: Vec<Point>,
    /// The GPUs of this model in the profile's own host; `None` where only layers were measured.
    #[serde(default)]
    pub hardware: Option<HardwareEntry>,
    /// Steps of several learners at once.
    #[serde(default)]
    pub learners: Vec<LearnersEntry>,
    /// Memory of ranks.
    #[serde(default)]
    pub memory: Vec<MemoryEntry>,
}

/// GPUs of one model in the host that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareEntry {
    /// The number of GPUs.
    pub count: u32,
    /// The device that was trained on: `cuda`, `cuda:tf32` or `cuda:bf16`.
    pub device: String,
    /// Multiprocessors of one.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The most FLOP/s of any measured layer: the roof for layers that were not measured.
    pub flops_s: f64,
    /// Seconds from one small kernel to the next.
    pub launch: Interval,
    /// Seconds between two consecutive marks, which are subtracted from all times on the device.
    pub mark: Interval,
    /// From page-locked memory of the host to the GPU's.
    pub to_device: CopyEntry,
    /// The opposite direction.
    pub to_host: CopyEntry,
    /// Within the GPU's memory.
    pub within: CopyEntry,
    /// To another GPU of the host; `None` where there is none.
    pub to_peer: Option<CopyEntry>,
    /// Messages read directly from another GPU's memory; `None` where ranks of one process send them
    /// through the host's.
    #[serde(default)]
    pub direct: Option<DirectEntry>,
    /// Sums by NCCL on several of them; empty where they were not measured.
    #[serde(default)]
    pub nccl: Vec<SumEntry>,
}

/// A sum over ranks, each on its own GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumEntry {
    /// How many ranks.
    pub ranks: u32,
    /// fp32 elements of each.
    pub elements: u64,
    /// Seconds from when all have called it until all have the result.
    pub seconds: Interval,
}

/// Messages from one GPU's memory to another's, as between ranks of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectEntry {
    /// Seconds of one element, from the host's launch until the host sees its arrival.
    pub latency: Interval,
    /// Seconds more per copied byte.
    pub copy: Interval,
    /// Seconds more per added byte.
    pub sum: Interval,
}

/// Copies in one direction.
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
    /// How many there were.
    pub learners: u32,
    /// Seconds of a step of each.
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
    /// Bytes of the GPU that it used.
    pub taken_bytes: u64,
}

impl GpuEntry {
    /// The name of an impossible figure, and why it is one.
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

    /// Every interval besides those of layers, updates and loads, with its name.
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
