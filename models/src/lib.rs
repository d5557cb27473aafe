//! What is computed: layers, models, strategies, and the program that is both simulated and executed.

mod layer;
mod model;

pub use layer::{BatchNorm, Conv2d, Dense, Layer, Pool2d, PoolKind, Shape};
pub use model::{Init, LayerId, Model, Node, Parameter, Pass, Work, random_model};
