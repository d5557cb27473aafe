//! How long a program takes on a cluster.

pub mod event;
pub mod fluid;
