//! What is computed: layers, models, strategies, and the program that is both simulated and executed.

mod layer;

pub use layer::{BatchNorm, Conv2d, Dense, Layer, Pool2d, PoolKind, Shape};
