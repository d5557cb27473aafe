//! The devices a rank computes on, one folder each.

pub mod cpu;
pub mod cuda;
mod error;

pub use error::DeviceError;
