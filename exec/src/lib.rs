//! Runs a program for real.

mod arena;
pub mod data;
pub mod device;
mod error;
pub mod exchange;
mod fingerprint;
mod gather;
pub mod init;
mod pin;
pub mod replica;
mod run;
pub mod transport;
mod worker;

pub use error::ExecError;
pub use run::{Options, Run, run};
