//! Transforms a program, pass by pass, before simulator and executor get it, so both see the same tasks.

mod fuse;
mod input;
mod pad;

pub use fuse::fused_chains;
pub(crate) use fuse::{fuse, fused_chains_within};
pub use input::READ_AHEAD;
pub(crate) use input::input;
pub(crate) use pad::pad;
