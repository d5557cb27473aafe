//! Manages the GPUs of a process, and what the ranks on one share: its kernels, and the arenas of learning tasks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lockstep_exec::device::DeviceError;

use crate::driver::{Cache, Context, Event, Fill, GpuMemory, Modules};
use crate::{LibraryFolders, Missing, probe};
use lockstep_models::Precision;

/// An arena that learners of a device use in turn, with an event for the end of its last use.
pub(super) struct Lent {
    pub(super) memory: GpuMemory,
    /// Its number among all arenas made, so that a learner gets its own again.
    pub(super) number: usize,
    pub(super) free: Event,
}

#[derive(Default)]
pub(super) struct Pool {
    pub(super) free: Vec<Lent>,
    made: usize,
}

/// An open GPU.
pub(super) struct Gpu {
    pub(super) context: Arc<Context>,
    pub(super) modules: Arc<Modules>,
    /// Why NCCL is unavailable, if it is.
    pub(super) no_nccl: Option<String>,
    /// Messages received directly into its memory.
    pub(super) taken: Arc<AtomicU64>,
    pub(super) pool: Mutex<Pool>,
}

impl Gpu {
    /// An arena of at least `bytes` bytes: preferably the learner's previous one, else a free one, else a new one, and
    /// when memory has run out one that is still in use. The caller must wait for its `free`.
    pub(super) fn lend(&self, bytes: u64, preferred: Option<usize>) -> Result<Lent, DeviceError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut best = None;
        for (index, lent) in pool.free.iter().enumerate().filter(|(_, lent)| lent.memory.bytes() >= bytes) {
            let rank = if Some(lent.number) == preferred { 0 } else { 1 + u8::from(!lent.free.finished()?) };
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, index));
            }
        }
        if let Some((0 | 1, index)) = best {
            return Ok(pool.free.swap_remove(index));
        }
        let made = GpuMemory::new(&self.context, "an arena of activations", bytes, Fill::Poison);
        match (made, best) {
            (Ok(memory), _) => {
                pool.made += 1;
                Ok(Lent { memory, number: pool.made, free: Event::new(&self.context, false)? })
            }
            (Err(DeviceError::OutOfMemory { .. }), Some((_, index))) => Ok(pool.free.swap_remove(index)),
            (Err(error), _) => Err(error),
        }
    }

    /// Free arenas of at least this size.
    pub(super) fn arenas(&self, bytes: u64) -> u64 {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.iter().filter(|lent| lent.memory.bytes() >= bytes).count() as u64
    }

    /// Returns an arena.
    pub(super) fn take_back(&self, lent: Lent) {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).free.push(lent);
    }
}

/// The GPUs of this process.
#[derive(Clone)]
pub struct Gpus {
    pub(super) all: Vec<Arc<Gpu>>,
    pub(super) precision: Precision,
    /// Whether images have channels last.
    pub(super) channels_last: bool,
    pub(super) graphs: bool,
    /// Whether messages may go directly from one GPU's memory to another's.
    pub(super) peers: bool,
}

impl fmt::Debug for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GPUs, {:?}", self.all.len(), self.precision)
    }
}

/// A process opens its GPUs once: their contexts belong to the process in any case.
static OPEN: Mutex<Vec<Arc<Gpu>>> = Mutex::new(Vec::new());

impl Gpus {
    /// All GPUs of this machine, their kernels compiled and loaded.
    ///
    /// # Errors
    /// A library that is missing, no GPU, one that is too old, a kernel that does not compile.
    pub fn open(precision: Precision) -> Result<Gpus, DeviceError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_empty() {
            let places = LibraryFolders::usual();
            let machine = probe(&places).map_err(|reason| DeviceError::Unavailable(reason.in_short()))?;
            let no_nccl = machine.missing.first().map(Missing::to_string);
            let gpu = |ordinal: usize| -> Result<Arc<Gpu>, DeviceError> {
                let context = Context::open(&places, ordinal as u32)?;
                let modules = Arc::new(Modules::load(&context, &Cache::usual())?);
                Ok(Arc::new(Gpu {
                    context,
                    modules,
                    no_nccl: no_nccl.clone(),
                    taken: Arc::default(),
                    pool: Mutex::default(),
                }))
            };
            *open = (0..machine.gpus.len()).map(gpu).collect::<Result<_, _>>()?;
        }
        let graphs = std::env::var_os("LOCKSTEP_NO_GRAPHS").is_none();
        let peers = std::env::var_os("LOCKSTEP_NO_PEERS").is_none();
        let channels_last = channels_last(precision)?;
        Ok(Gpus { all: open.clone(), precision, channels_last, graphs, peers })
    }

    /// The GPU of the ranks of `device`, round-robin.
    pub(super) fn of(&self, device: u32) -> &Arc<Gpu> {
        &self.all[device as usize % self.all.len()]
    }

    /// Number of GPUs.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The same, with exchanges through copies in host memory.
    pub fn by_host(self) -> Gpus {
        Gpus { peers: false, ..self }
    }

    /// The same, with channels of images last or first.
    pub fn with_channels(self, last: bool) -> Gpus {
        Gpus { channels_last: last, ..self }
    }

    /// Messages so far that ranks of this process received directly into a GPU's memory, without a copy on the host.
    pub fn direct_messages(&self) -> u64 {
        self.all.iter().map(|gpu| gpu.taken.load(Ordering::Relaxed)).sum()
    }

    /// Whether NCCL is available.
    pub(super) fn has_nccl(&self) -> bool {
        self.all.iter().all(|gpu| gpu.no_nccl.is_none())
    }
}

/// Tensor cores process a pixel's channels together; for fp32's own units the layout does not matter.
fn channels_last(precision: Precision) -> Result<bool, DeviceError> {
    const NAME: &str = "LOCKSTEP_CHANNELS";
    match std::env::var(NAME).as_deref() {
        Err(_) => Ok(precision != Precision::F32),
        Ok("last") => Ok(true),
        Ok("first") => Ok(false),
        Ok(other) => {
            let reason = format!("`{other}`: an image's channels lie `first` or `last`");
            Err(DeviceError::Refused { call: NAME.to_owned(), reason })
        }
    }
}
