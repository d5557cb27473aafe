//! Models noise: durations that vary from run to run, replayed from a record or drawn from stated distributions.

mod distribution;
mod draw;
mod fit;
mod record;
mod stated;

pub use distribution::{Distribution, Family};
pub use fit::{Fit, fits};
pub use record::Noise;
pub(crate) use record::Place;
pub use stated::Jitter;
