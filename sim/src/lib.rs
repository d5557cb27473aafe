//! Predicts how long a program takes on a cluster.
//!
//! [`simulate`] turns a program and a [`Platform`] into a timeline, [`simulate_collective`] times one collective with
//! the same engine. Costs and networks are traits with two implementations each; contention is left to [`fluid`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod answer;
mod choices;
mod collective;
mod conditions;
pub mod costs;
mod deadlock;
mod derivative;
mod engine;
mod error;
pub mod event;
pub mod fluid;
mod fold;
mod jobs;
mod machine;
mod nccl;
mod network;
mod noise;
mod orbits;
mod periodic;
mod plan;
mod platform;
mod rccl;
mod simulate;
mod supply;
#[cfg(test)]
mod tests;
mod trace;
mod traffic;

pub use choices::{nccl_choice, nccl_choices};
pub use collective::{CollectiveRun, CollectiveTime, simulate_collective, simulate_collective_within};
pub use conditions::{Background, Conditions, Load, Slowdown};
pub use costs::{Cost, CostTable, Costs, MessageCost, Modelled, Pair, Roofline};
pub use deadlock::{Waiting, WaitsFor};
pub use engine::{Shortcut, ShortcutUse, WhyNot};
pub use error::SimError;
pub use fold::{FoldRule, Folding};
pub use jobs::ASSUMED_STORAGE_BYTES_PER_S;
pub use machine::{Part, Utilisation};
pub use noise::Noise;
pub use periodic::simulate_periodic;
pub use platform::{NetworkModel, Platform};
pub use simulate::{Prediction, SimOptions, simulate, simulate_with};
pub use supply::shuffle_time;
pub use traffic::{Sent, Traffic};
