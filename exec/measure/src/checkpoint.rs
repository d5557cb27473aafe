//! Checkpoints: writes a training between two steps to a file, manages the folder with the last two, and resumes from
//! one.

mod content;
mod file;
mod folder;
mod lock;
mod resume;

pub use file::{Checkpoint, VERSION};
pub use folder::{Every, Folder, latest};
pub use lock::Lock;
pub use resume::{claims_behind, claims_from};
