//! Describes the samples of a set: where they lie, how they are drawn, changed and brought to devices.

mod augmentation;
mod partition;
mod sampling;
mod set_sizes;
mod supply;
mod transform_at;

pub use augmentation::Augmentation;
pub use partition::Partition;
pub use sampling::Sampling;
pub use set_sizes::{SampleForm, SetSizes, StoredSamples};
pub use supply::{CopiedBy, Input, SampleSource, SetPerNode, missed_share};
pub use transform_at::TransformAt;
