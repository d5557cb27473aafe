//! `lockstep papers`: predicts the figures of five papers and of tables of training speeds, and prints each next to the
//! published one.
//!
//! A paper is one file of `experiments/papers`: what its experiments have in common, and a row for each published
//! figure. A machine's figures are in its cluster file and belong to no row. At most one row of a configuration, on any
//! number of ranks, is an anchor, to which the cost of computation is scaled. Figures of a machine that no source gives
//! are fitted to rows that say so; the errors of those rows are then those of a fit without them. Every row is printed,
//! also those that fail.

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
pub use html::save_papers;
pub use paper::Paper;
pub use plotting::bounds_line;
pub use shipped::{PAPERS, Shipped, TABLES};
