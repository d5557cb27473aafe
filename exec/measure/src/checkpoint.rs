//! Checkpoints: a training between two steps as a file, the folder that holds the last two, and going on from one.

mod file;
mod folder;
mod lock;
mod resume;

pub use file::{Checkpoint, VERSION};
pub use folder::{Every, Folder, latest};
pub use lock::Lock;
pub use resume::{claims_behind, claims_from};
