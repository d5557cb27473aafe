//! Input: how samples get from storage to a device while it computes (Kumar et al. 2018, §4.1).
//!
//! Threads of a node take samples one after the other, whoever is free the next one: they read it, from storage or from memory,
//! decode it, and crop, flip and normalise it. What is ready is copied to the device of the rank that asks for it. So a batch
//! passes two stages, production and copy, and up to `prefetch` batches are on their way while a device computes. With
//!
//! ```text
//! P = max(missed bytes / storage's bandwidth, samples · (missed · latency + decoding + transformation) / threads)
//! C = bytes of fp32 samples / bandwidth of the route, and its latency
//! ```
//!
//! and a step of T that computes, a batch comes every max(T, P, C, (P + C) / prefetch), or every T + P + C without prefetching. What
//! a shuffle takes is added to the steps from one to the next, in equal parts: nobody loads meanwhile, and few batches are ahead.
//! Figures are a node's; its ranks share threads and storage by the samples that they load.

use lockstep_topology::{Bandwidth, Bytes, Time};

/// How samples reach devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Samples of the whole set.
    pub samples: u64,
    /// Bytes of one as it is stored, compressed.
    pub sample_bytes: Bytes,
    /// Where a node reads them.
    pub source: SampleSource,
    /// Threads of a node that read, decode and transform.
    pub threads: u32,
    /// What decoding one sample takes of a thread.
    pub decode: Time,
    /// The share of the memory bandwidth that a thread takes which decodes, from 0 to 1.
    pub decode_memory: f64,
    /// What cropping, flipping and normalising one takes.
    pub transform: Time,
    /// Who does that.
    pub transform_at: TransformAt,
    /// Batches on their way to a rank while it computes; 1 is double buffering, 0 none at all.
    pub prefetch: u32,
}

/// Where stored samples are.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleSource {
    /// In files: a request for each, unless the page cache has it.
    Files {
        /// What a node gets of the storage.
        bandwidth: Bandwidth,
        /// From a request to its first byte.
        latency: Time,
        /// A node's page cache; of a set drawn at random it has that share.
        page_cache: Bytes,
    },
    /// In the nodes' memory.
    Memory {
        /// Groups of nodes that each hold the whole set; as many as nodes: everybody does.
        groups: u32,
        /// Steps from one shuffle among the nodes of a group to the next, if there are any.
        shuffle_every: Option<u32>,
    },
}

/// Who transforms samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransformAt {
    /// The threads that decode.
    Host,
    /// The device, before it computes.
    Device,
    /// The threads, until a device has waited for them; from then on the device.
    WhenLate,
}

/// What one batch of a rank takes, in each stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stages {
    /// Production where threads transform, and where they do not.
    pub(crate) produce: [Time; 2],
    /// The copy to the device.
    pub(crate) copy: Time,
    /// The transformation on the device.
    pub(crate) device: Time,
    /// What a shuffle takes, in which nobody loads, spread over the batches from one to the next.
    pub(crate) shuffle: Time,
    /// Whether storage is what production waits for.
    pub(crate) stored: bool,
}

#[cfg(test)]
impl Stages {
    /// Of a test's figures.
    pub(crate) fn of_test(produce: [Time; 2], copy: Time, device: Time) -> Stages {
        Stages { produce, copy, device, shuffle: Time::ZERO, stored: false }
    }
}

impl Input {
    /// Bytes of the whole set.
    pub fn bytes(&self) -> u64 {
        self.samples.saturating_mul(self.sample_bytes.0)
    }

    /// The share of reads that go to the storage.
    fn missed(&self) -> f64 {
        match &self.source {
            SampleSource::Files { page_cache, .. } => (1.0 - page_cache.0 as f64 / self.bytes().max(1) as f64).max(0.0),
            SampleSource::Memory { .. } => 0.0,
        }
    }

    /// Seconds of the storage that a read of `samples` samples takes, and of one of the threads that these are decoded by.
    pub(crate) fn tasks(&self, samples: u32) -> [f64; 2] {
        let samples = f64::from(samples);
        let (stored, _) = self.production(samples, true);
        [stored, samples * self.of_thread(true)]
    }

    /// What a sample takes of a thread: its request's latency, decoding, and transformation where threads do it.
    fn of_thread(&self, transforms: bool) -> f64 {
        let latency = match &self.source {
            SampleSource::Files { latency, .. } => self.missed() * latency.as_secs_f64(),
            SampleSource::Memory { .. } => 0.0,
        };
        let transform = if transforms { self.transform.as_secs_f64() } else { 0.0 };
        latency + self.decode.as_secs_f64() + transform
    }

    /// Seconds of production of `samples` samples by a node, by its storage and by its threads.
    pub(crate) fn production(&self, samples: f64, transforms: bool) -> (f64, f64) {
        let stored = match &self.source {
            SampleSource::Files { bandwidth, .. } => {
                self.missed() * samples * self.sample_bytes.0 as f64 / bandwidth.bytes_per_s()
            }
            SampleSource::Memory { .. } => 0.0,
        };
        (stored, samples * self.of_thread(transforms) / f64::from(self.threads.max(1)))
    }
}

/// A group that holds a whole set among its nodes.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Nodes of the group.
    pub nodes: u32,
    /// Bytes on each of them.
    pub bytes: u64,
}
