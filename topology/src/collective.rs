//! Defines collectives and their algorithms, each written once as lazy lanes of steps.
//!
//! A [`Collective`] defines the result, an [`Algorithm`] how it is reached, and a [`Schedule`] combines the two for one
//! [`Group`] and one buffer. The simulator times its steps and the executor performs them; neither knows which
//! collective it is. [`check`] proves a schedule against the meaning of its collective without running it.
//!
//! # What a lane means
//!
//! - A lane is a chain of [`LaneStep`]s on one member; its steps run in order. A `Send` is posted and does not wait, a
//!   receive waits for its message.
//! - Messages of one (sender, receiver, lane) are matched in order and have equal lengths. No message is empty.
//! - Lanes of one index on different members belong together; those of different indices are independent: disjoint
//!   elements. A member starts its lanes in index order and has at most [`Schedule::window`] in flight, so that the
//!   lowest unfinished lane always progresses, whatever the window.
//! - Sums into one element happen inside one lane, so in one fixed order: results are repeatable to the bit.
//! - Sends need no copy: the receiver may read the sent range until its receive is done. A lane does not
//!   write a range that it has sent until a later message proves that the receiver has read it. It ends once all its
//!   sends have been read. [`check`] proves the first by vector clocks; the code that runs lanes ensures the second.
//! - All collectives but `AllToAllV` work in place on one buffer, and a receive writes the range sent. What is not part
//!   of the result is scratch afterwards: `Reduce` and the reduce-scatters leave partial sums in it.

mod algorithm;
mod algorithms;
mod blocks;
mod checker;
mod contract;
mod fault;
mod group;
mod lane;
mod lanes;
mod meaning;
pub mod nccl;
mod node_trees;
mod of_gpus;
mod phase;
mod reduction_order;
mod replay;
mod schedule;
mod shard;
mod step;
#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, Library};
pub use checker::check;
pub use fault::{Reason, ScheduleError, Wait};
pub use group::Group;
pub use lane::Lane;
pub use meaning::Collective;
pub use of_gpus::library_of_gpus;
pub use phase::PipelinePhase;
pub use reduction_order::{ExpressionId, ReductionOrder};
pub use schedule::Schedule;
pub use shard::shard;
pub use step::{Action, LaneStep};
