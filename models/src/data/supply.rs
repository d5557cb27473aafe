//! `Input`: states how samples get from storage to a computing device (Kumar et al. 2018, §4.1).
//!
//! Ranks of a host share its storage and its threads. A batch is read, then decoded: cropped, flipped and normalised
//! with it; then it is copied to the device, and its load begins. These are tasks of the program; up to `prefetch`
//! batches are in flight while a device computes. With
//!
//! ```text
//! R = missed bytes / storage's bandwidth
//! D = samples · (missed · latency + decoding + transformation) / threads
//! C = bytes of fp32 samples / bandwidth of the route, and its latency
//! ```
//!
//! for the batches of all ranks of a host and a step of T that computes, where nothing else uses the host's cores and
//! links a batch comes every max(T, R, D, C, (R + D + C) / prefetch), or every T + R + D + C without prefetching.

use lockstep_topology::{Bandwidth, Bytes, Time};

/// How samples reach devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Samples of the whole set.
    pub samples: u64,
    /// Bytes of one as it is stored, compressed.
    pub sample_bytes: Bytes,
    /// The source of a node's samples.
    pub source: SampleSource,
    /// Threads of a node that read, decode and transform.
    pub threads: u32,
    /// The time of a thread to decode one sample.
    pub decode: Time,
    /// The share of the memory bandwidth that a decoding thread takes, from 0 to 1.
    pub decode_memory: f64,
    /// The time of a thread to crop, flip and normalise one.
    pub transform: Time,
    /// Batches in flight to a rank while it computes; 1 is double buffering, 0 none at all.
    pub prefetch: u32,
    /// The task that copies a batch to its device.
    pub copied_by: CopiedBy,
}

/// Where stored samples are.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleSource {
    /// In files: a request for each, unless the page cache has it.
    Files {
        /// A node's bandwidth of the storage.
        bandwidth: Bandwidth,
        /// From a request to its first byte.
        latency: Time,
        /// A node's page cache, which evicts the least recently used samples.
        page_cache: Bytes,
    },
    /// In the nodes' memory.
    Memory {
        /// Groups of nodes that each hold the whole set; as many as nodes: each node does.
        groups: u32,
        /// Steps from one shuffle among the nodes of a group to the next, if there are any.
        shuffle_every: Option<u32>,
    },
}

/// The task that copies a batch from its host's memory to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedBy {
    /// The upload, over the route from the host's CPU; the load takes no time.
    Upload,
    /// The load, as it was measured; the upload takes no time.
    Load,
}

/// The share of reads that miss a cache of the share `cached` of the set, if each epoch reads every sample once in a
/// new random order and the cache evicts the least recently used.
///
/// Between place u of an epoch and v of the next (as shares) 1 − u·(1 − v) of the set is read, counted once. A sample
/// is still cached if that is less than c: with probability c + (1 − c)·ln(1 − c), about c²/2.
pub fn missed_share(cached: f64) -> f64 {
    let left = 1.0 - cached;
    if left > 0.0 { left * (1.0 - libm::log(left)) } else { 0.0 }
}

impl Input {
    /// Bytes of the whole set.
    pub fn bytes(&self) -> u64 {
        self.samples.saturating_mul(self.sample_bytes.0)
    }

    /// The share of reads that go to the storage.
    fn missed(&self) -> f64 {
        match &self.source {
            SampleSource::Files { page_cache, .. } => missed_share(page_cache.0 as f64 / self.bytes().max(1) as f64),
            SampleSource::Memory { .. } => 0.0,
        }
    }

    /// Seconds of the storage for `samples` samples.
    pub fn stored_s(&self, samples: u32) -> f64 {
        match &self.source {
            SampleSource::Files { bandwidth, .. } => {
                self.missed() * f64::from(samples) * self.sample_bytes.0 as f64 / bandwidth.bytes_per_s()
            }
            SampleSource::Memory { .. } => 0.0,
        }
    }

    /// Seconds of threads for them, with or without transforming, and the share of that in which a thread is on a core:
    /// during a request's latency it waits.
    pub fn threads_s(&self, samples: u32, transforms: bool) -> (f64, f64) {
        let latency = match &self.source {
            SampleSource::Files { latency, .. } => self.missed() * latency.as_secs_f64(),
            SampleSource::Memory { .. } => 0.0,
        };
        let transform = if transforms { self.transform.as_secs_f64() } else { 0.0 };
        let working = self.decode.as_secs_f64() + transform;
        let each = latency + working;
        (f64::from(samples) * each, if each > 0.0 { working / each } else { 1.0 })
    }

    /// Threads that work on batches of `samples` samples of one rank at a time: on as many batches as may be in flight.
    pub fn threads_on(&self, samples: u32) -> u32 {
        self.threads.min(samples.saturating_mul(self.prefetch.max(1))).max(1)
    }
}

/// A group that holds a whole set among its nodes.
#[derive(Debug, Clone, Copy)]
pub struct SetPerNode {
    /// Nodes of the group.
    pub nodes: u32,
    /// Bytes on each of them.
    pub bytes: u64,
}
