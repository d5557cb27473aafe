//! Models clusters, the placement of ranks on them, and the collective algorithms.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod aliases;
pub mod cluster;
pub mod collective;
pub mod document;
mod dtype;
mod input_error;
mod named;
pub mod placement;
pub mod symmetry;
mod terminal;
mod text;
mod units;

pub use cluster::Cluster;
pub use collective::nccl;
pub use collective::{
    Action, Algorithm, Collective, ExpressionId, Group, Lane, LaneStep, Library, PipelinePhase, Reason, ReductionOrder,
    Schedule, ScheduleError, Wait, check, library_of_gpus, shard,
};
pub use dtype::Dtype;
pub use input_error::{ErrorPlace, InputError, nearest};
pub use named::unknown_name;
pub use placement::{Hosting, HostingRule, Limits, Placement, PlacementRule, Rank, blocks};
pub use symmetry::{Fold, Levels, Permutations};
pub use terminal::{printable, printable_json, printable_line, shortened};
pub use text::{DESCRIPTION, LINE, LineIndex, MODEL, RECORD, Unreadable, open_file, read_bytes, read_line, read_text};
pub use units::{Bandwidth, Bytes, Time};
