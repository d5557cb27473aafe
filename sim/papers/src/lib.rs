//! `lockstep papers`: what five papers and tables of training speeds say, each figure beside what is predicted for it.
//!
//! A paper is one file of `experiments/papers`: what its experiments have in common, and a row for each published figure. A
//! machine's figures stand in its cluster file and belong to no row; at most one row of a configuration, on whatever number of ranks,
//! is an anchor, to which the cost of computation is scaled; what else no source tells of a machine is fitted to rows that say so, whose errors are then those of
//! a fit without them. Every row is printed, also those that fail.

#![forbid(unsafe_code)]

mod account;
mod case;
mod chart;
mod computed;
pub mod curves;
pub mod errors;
mod figures;
mod fit;
mod html;
mod load;
mod machine;
mod paper;
mod plot;
mod plotting;
mod quantity;
mod read;
mod row;
mod shipped;
#[cfg(test)]
mod tests;
mod unit;

pub use account::{Account, account};
pub use html::page;
pub use paper::Paper;
pub use plotting::told;
pub use shipped::{PAPERS, Shipped, TABLES};
