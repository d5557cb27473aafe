//! Brings samples to ranks: threads prepare batches ahead, into memory from which devices copy.

mod batch;
mod batch_memory;
mod decoders;
mod feed;
mod ring;

pub(crate) use batch::MadeTimes;
pub use batch_memory::BatchMemory;
pub(crate) use decoders::Decoders;
pub(crate) use feed::Feed;
pub(crate) use ring::{Prepared, Ring};
