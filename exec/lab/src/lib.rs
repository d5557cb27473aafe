//! Builds clusters in a box: the hosts of a cluster file as network namespaces of this Linux machine, its switches as
//! bridges, its links as veth pairs of the same rates.
//!
//! [`LabPlan`] describes a lab and [`commands`] builds it, both pure; the rest runs the commands and undoes them.

#![forbid(unsafe_code)]

mod change;
pub mod commands;
mod down;
mod job;
mod name;
mod plan;
mod rate;
mod run;
mod state;
mod tools;
mod tree;
mod up;
mod watch;

pub use change::{Change, change};
pub use down::down;
pub use name::LabName;
pub use plan::{Cable, End, LabHost, LabNode, LabPlan, MOST_HOSTS};
pub use rate::Rate;
pub use run::{run_each, run_mpi};
pub use state::{Lab, LabParts, known, survey};
pub use tools::{find_program, tools};
pub use up::up;
