//! Noise: how durations vary from one run of a thing to the next, replayed from a record or drawn from stated distributions.

mod distribution;
mod draw;
mod fit;
mod record;
mod stated;

pub use distribution::{Distribution, FAMILIES, Family};
pub use fit::{Fit, fit};
pub(crate) use record::Place;
pub use record::{Noise, NoiseTrace};
pub use stated::Jitter;
