//! Reads and checks profiles: what `lockstep calibrate` and `lockstep exec profile` measured on one host, as JSON.
//! Predictions are made of single layers and single messages; of whole steps a profile only has how much longer
//! learners on one GPU take than one alone.
//!
//! Every figure is an interval. A slowdown f says how much longer an operation takes when every core does the same at
//! once: each of n cores then takes f/n of the memory bandwidth, so n of them use it up and run at 1/f of their speed.

mod check;
mod decode;
mod disturbed;
mod gpu;
mod key;
mod noise;

use std::path::Path;

use lockstep_topology::{ErrorPlace, InputError, RECORD, read_text};
use serde::{Deserialize, Serialize};

pub use decode::DecodeEntry;
pub use disturbed::{CONTENTION, PROCESS_MESSAGES, THREAD_MESSAGES, disturbed_note};
pub use gpu::{CopyEntry, DirectEntry, GpuEntry, HardwareEntry, LearnersEntry, MemoryEntry, SumEntry};
pub use key::{FormulaKey, chain_key, cpu_chain_key, formula_key, in_precision, key_of, read_key};
pub use noise::NoiseTrace;

/// The version of the format that this code writes and reads.
pub const PROFILE_VERSION: u32 = 3;
/// The oldest version that it still reads: it had no figures of GPUs. The second had neither its kernels nor its speed.
const OLDEST_VERSION: u32 = 1;

/// A measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// The figure itself, a median.
    pub value: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// A figure that is known exactly.
    pub fn exact(value: f64) -> Interval {
        Interval { value, low: value, high: value }
    }
}

/// One phase of one chain of layers at one batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeEntry {
    /// The chain's layers and shapes, as [`cpu_chain_key`] writes them, or [`chain_key`] for GPUs.
    pub chain: String,
    /// `forward`, `backward-data`, `backward-weight` or `backward`.
    pub phase: String,
    /// Samples in the batch.
    pub samples: u32,
    /// Seconds on one core, alone.
    pub seconds: Interval,
    /// How many times longer it takes when every core runs it.
    pub slowdown: f64,
}

/// An operation and its number of elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// fp32 elements.
    pub elements: u64,
    /// Seconds on one core, alone.
    pub seconds: Interval,
    /// How many times longer it takes when every core does it.
    pub slowdown: f64,
}

/// An operation on parameters that takes longer or shorter than momentum SGD's step on as many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormulaEntry {
    /// Its name, as [`formula_key`] gives it.
    pub formula: String,
    /// fp32 elements.
    pub elements: u64,
    /// Seconds on one core, alone.
    pub seconds: Interval,
    /// How many times longer it takes when every core does it.
    pub slowdown: f64,
}

/// A transport between ranks of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransportEntry {
    /// α: seconds from a post until an idle receiver handles the message.
    pub latency: Interval,
    /// Seconds more until a sleeping receiver, because ranks outnumber cores, handles it; `None` where none
    /// was measured.
    #[serde(default)]
    pub wake: Option<Interval>,
    /// o: seconds of the receiver's thread per message.
    pub overhead: Interval,
    /// β: seconds per copied byte.
    pub copy: Interval,
    /// β for data sent once, into memory that is in no cache: samples of a shuffle; `None` where none was measured.
    #[serde(default)]
    pub cold: Option<Interval>,
    /// γ: seconds per added byte.
    pub sum: Interval,
    /// How many times longer copies and sums take when every core does them.
    pub slowdown: f64,
    /// β and γ of buffers that are used again and again, by size; empty in profiles of earlier builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<RepeatedEntry>,
}

/// Copying and adding a buffer that both ranks use again and again, as a benchmark of collectives does: it stays in the
/// nearest cache that holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatedEntry {
    /// Bytes of each rank's buffer.
    pub bytes: u64,
    /// Seconds per copied byte.
    pub copy: Interval,
    /// Seconds per added byte.
    pub sum: Interval,
}

/// What a shuffle does to samples that it packs, on one core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveEntry {
    /// fp32 elements of a sample in messages, on average.
    pub elements: u64,
    /// Seconds to copy a sample from a random place of a rank's part into a message, alone.
    pub pack: Interval,
    /// Seconds to copy it into such a place, alone.
    pub unpack: Interval,
    /// How many times longer these take when every core does the same.
    pub slowdown: f64,
}

/// Reading a file, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageEntry {
    /// From storage, one block after the other; from the file's blocks in the page cache where the system kept them
    /// all the same.
    pub sequential: Interval,
    /// From storage, blocks of 128 KiB in a random order.
    pub random: Interval,
    /// From the page cache.
    pub cached: Interval,
    /// Bytes of memory that the page cache could use.
    pub page_cache: u64,
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_VERSION`].
    pub version: u32,
    /// Name of the host.
    pub host: String,
    /// Its CPU, by its own name.
    pub cpu: String,
    /// Cores that were used at once for the slowdowns.
    pub cores: u32,
    /// When it was measured (RFC 3339).
    pub date: String,
    /// The command that measured it.
    pub command: String,
    /// The name of the kernels that were timed; empty in a profile without it.
    #[serde(default)]
    pub kernels: String,
    /// Images that the CPU kernels process side by side, one in each element of a register: 16 with AVX-512, else 8.
    #[serde(default = "sixteen")]
    pub side_by_side: u32,
    /// Seconds of a reference benchmark on all cores during the measurement: the speed of the machine.
    #[serde(default)]
    pub pulse_s: Option<f64>,
    /// FLOP/s of one core in the fastest matrix product: the roof for layers that were not measured.
    pub flops_per_core_s: f64,
    /// Bytes per second that all cores together read and write.
    pub memory_bandwidth: f64,
    /// Layers.
    pub compute: Vec<ComputeEntry>,
    /// Momentum SGD's step, by parameters.
    pub update: Vec<Point>,
    /// Steps of other optimizers, and sums of squares of gradients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formulas: Vec<FormulaEntry>,
    /// Gathering samples, by their elements.
    pub load: Vec<Point>,
    /// Decoding samples, by kind of sample.
    #[serde(default)]
    pub decode: Vec<DecodeEntry>,
    /// Packing and unpacking samples in a shuffle, by size of a sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveEntry>,
    /// Reading files of samples; `None` where none was measured.
    #[serde(default)]
    pub storage: Option<StorageEntry>,
    /// Messages between ranks of one process.
    pub memory: TransportEntry,
    /// Messages between processes; `None` where there is no MPI.
    pub mpi: Option<TransportEntry>,
    /// Its GPUs, as far as they were measured, one entry per model.
    #[serde(default)]
    pub gpus: Vec<GpuEntry>,
    /// How durations vary on this host; `None` in a profile with medians only.
    #[serde(default)]
    pub noise: Option<NoiseTrace>,
    /// Figures that could not be measured undisturbed, as [`ComputeEntry::name`] and the like name them: they are of times
    /// that other programs, or other virtual machines of the host, may have lengthened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
}

/// In profiles without the number, since all of those are of AVX-512.
fn sixteen() -> u32 {
    16
}

impl Profile {
    /// Reads and checks a profile.
    ///
    /// # Errors
    /// A file that cannot be read, is no profile, or holds impossible figures.
    pub fn load(path: &Path) -> Result<Profile, InputError> {
        let place = path.display().to_string();
        let text = read_text(path, RECORD).map_err(|error| {
            InputError::flag("profile", &place, error.with_cure("write one with lockstep calibrate"))
        })?;
        Profile::parse(&place, &text)
    }

    /// The profile that `text`, the content of `file`, holds.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn parse(file: &str, text: &str) -> Result<Profile, InputError> {
        let profile: Profile = serde_json::from_str(text).map_err(|error| {
            let message =
                format!("is not a profile of this version ({error}): write a new one with lockstep calibrate");
            InputError::new(ErrorPlace::line(file, error.line()), "", message)
        })?;
        profile.check(file)?;
        Ok(profile)
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a profile is plain data")
    }
}
