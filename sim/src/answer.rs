//! Explains a prediction: what bounds it, what would change it, what memory it needs.
//!
//! Everything is computed from a finished prediction, or by simulating again: with derivatives, or on a platform with
//! other figures.

mod bound;
mod device_memory;
mod hiding;
mod perturbed;
mod sensitivity;
mod slowed;
mod subject;

pub use bound::{Bound, ClassUse, IMBALANCE, LATENCY, UNFILLED, bound, class_uses, collective_bound};
pub use device_memory::{DeviceMemory, device_capacity, fullest_device};
pub use hiding::{HIDDEN, Hiding, hiding};
pub use perturbed::{CostParameter, OwnTime};
pub use sensitivity::{Sensitivity, collective_sensitivities, parameters};
#[cfg(test)]
pub(crate) use sensitivity::{collective_derivatives, on_scaled};
pub use slowed::{Computation, computation};
pub use subject::{Basis, Derivatives, Subject, Sums};
