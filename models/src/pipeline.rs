//! Cuts a model into the stages of a pipeline and lists, checks and times what each stage does.
//!
//! A stage is one chunk of consecutive layers or several: chunk c belongs to stage c % stages. Stages, chunks
//! and micro-batches count from 0. The lists are data: the same checks hold for those of a named schedule and
//! for any other.

mod check;
mod cut;
mod layout;
mod order;
mod schedule;
mod stages;
mod step;
#[cfg(test)]
mod tests;
mod times;

pub use check::{check, check_within};
pub use cut::StageCut;
pub use layout::StageLayout;
pub use order::{StageBody, StageOrder};
pub use schedule::PipelineSchedule;
pub use stages::{StageChunk, Stages};
pub use step::{PipelinePass, PipelineStep};
pub use times::{idle_shares, makespan, times};
