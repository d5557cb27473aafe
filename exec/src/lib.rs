//! Runs a program for real.

mod arena;
mod clock;
pub mod data;
pub mod device;
mod error;
pub mod exchange;
mod fingerprint;
mod gather;
mod holdings;
pub mod init;
mod learner;
mod pin;
mod pool;
pub mod reference;
pub mod replica;
mod room;
mod run;
mod state;
pub mod transport;
mod whole;
mod worker;

pub use error::ExecError;
pub use pin::pin;
pub use pool::{Arenas, Pool};
pub use room::most_ranks;
#[cfg(feature = "mpi")]
pub use run::run_processes;
pub use run::{Options, Run, run};
pub use state::{Position, State};
pub use worker::{Evaluations, Log, Order, Saving, Snapshot};
