//! Lists the kernels shared by several layers or used outside of layers: for channels, copies, losses, and parameter
//! updates.

mod batch_norm;
mod channels;
mod elementwise;
mod losses;
mod moves;
mod parameters;
mod pictures;

pub use batch_norm::*;
pub use channels::*;
pub use elementwise::*;
pub use losses::*;
pub use moves::*;
pub use parameters::*;
pub use pictures::*;

use super::kernel::{Entry, Source, source};

const BATCH_NORM: Source = source!("batch_norm.cu");
const BUFFERS: Source = source!("buffers.cu");
const CHANNELS: Source = source!("channels.cu");
const COLUMNS: Source = source!("columns.cu");
const ELEMENTWISE: Source = source!("elementwise.cu");
const LOSSES: Source = source!("losses.cu");
const MOVES: Source = source!("moves.cu");
const OPTIMIZER: Source = source!("optimizer.cu");
const PICTURES: Source = source!("pictures.cu");
const STATISTICS: Source = source!("statistics.cu");

/// These kernels, each for all its scalars.
pub(crate) fn entries() -> Vec<Entry> {
    [
        batch_norm::entries(),
        channels::entries(),
        elementwise::entries(),
        losses::entries(),
        moves::entries(),
        parameters::entries(),
        pictures::entries(),
    ]
    .concat()
}
