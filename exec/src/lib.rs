//! Executes a program: the executor, the CPU's kernels, transports, input, and the traits of a device.

mod arena;
mod beginning;
mod bf16;
mod capacity;
mod claims;
mod clock;
pub mod device;
mod device_error;
mod error;
pub mod exchange;
mod fault;
mod fingerprint;
mod flight;
mod gather;
pub mod init;
mod input;
mod observer;
mod patience;
mod periodic;
mod pin;
mod pool;
mod process_outcome;
mod rank_memory;
mod region;
mod regions;
pub mod replica;
mod run;
mod setup;
mod simd;
mod snapshot;
mod stall;
mod state;
mod thread_use;
pub mod transport;
mod watch;
mod whole;
mod worker;
mod workspace;

/// The name of the CPU kernels' sources; it changes with their sources and with how they are compiled.
const KERNELS: &str = env!("LOCKSTEP_KERNELS");

/// Most samples that the CPU kernels of this process process side by side: the elements of a register, at least 8.
pub fn side_by_side() -> usize {
    device::cpu::most_side_by_side()
}

/// The name of the CPU kernels of this process: that of their sources, and the instructions if they are not the widest.
pub fn kernels() -> String {
    match Instructions::current() {
        current if current == Instructions::widest() => KERNELS.to_owned(),
        narrower => format!("{KERNELS}-{}", narrower.name()),
    }
}

pub use arena::Arena;
pub use capacity::{check_buffers, check_threads};
pub use error::ExecError;
pub use fault::InjectedFault;
pub use flight::{Flight, FlightOperation, OPERATIONS};
pub use input::BatchMemory;
pub use lockstep_data::available_memory;
use lockstep_data::number;
pub use observer::{Observer, OnLoad};
pub use patience::{ASIDE, patiently};
pub use pin::{BoundThread, Pins};
pub use pool::{Arenas, Pool};
#[cfg(feature = "mpi")]
pub use run::run_processes;
pub use run::{Run, check_run, run};
pub use setup::{Evaluations, RunOptions};
pub use simd::Instructions;
pub use snapshot::{Log, Order, Snapshot};
pub use stall::{Diagnosis, diagnose};
pub use state::{Position, State, share_state};
pub use thread_use::ThreadUse;
