//! Predicts experiments: simulates them on a site, row by row, explained, anchored, under scenarios, tuned and swept.

#![forbid(unsafe_code)]

pub mod anchor;
mod cost;
pub mod explain;
mod largest_batch;
mod periodic;
mod predicted;
pub mod rows;
mod scenario;
mod setup;
mod shipped;
mod site;
pub mod sweep;
mod trials;
mod tune;
mod typical_error;

pub use cost::TrainingCost;
pub use predicted::{Predicted, predict};
pub use setup::Setup;
pub use shipped::load_profile;
pub use site::{PROFILE_PATH, Site};
pub use tune::tune;
pub use typical_error::error_notes;
