//! Declares symmetries: permutations of ranks that leave an algorithm, a cluster and a placement unchanged.
//!
//! An algorithm declares its permutations of members ([`Schedule::symmetry`](crate::Schedule::symmetry)), a cluster
//! with ranks on it declares those of ranks ([`Levels`]), and a [`Fold`] is what both have in common. Simulating one
//! rank of each orbit then gives the result for all, because a unique result (a max-min share, the order of events) is
//! as symmetric as its inputs.

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
