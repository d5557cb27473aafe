//! Transforms a program, pass by pass, before simulator and executor get it, so both see the same tasks.

mod fuse;
mod input;
mod pad;

pub(crate) use fuse::fuse;
pub use fuse::fused_chains;
pub use input::READ_AHEAD;
pub(crate) use input::input;
pub(crate) use pad::pad;
