//! Declared symmetries: permutations of ranks that leave an algorithm, a cluster and a placement as they are.
//!
//! An algorithm declares its permutations of members ([`Schedule::symmetry`](crate::Schedule::symmetry)), a cluster
//! with ranks on it declares those of ranks ([`Levels`]), and a [`Fold`] is what both have in common. Simulating one
//! rank of each orbit then gives the result for all, because whatever is unique (a max-min share, the order of events)
//! must be as symmetric as what it follows from.

mod fold;
mod images;
mod layers;
mod levels;
mod permutations;
#[cfg(test)]
mod tests;

pub use fold::Fold;
pub use levels::Levels;
pub use permutations::Permutations;
