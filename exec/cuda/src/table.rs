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

use super::kernel::{KernelEntry, KernelSource, source};

const BATCH_NORM: KernelSource = source!("batch_norm.cu");
const BUFFERS: KernelSource = source!("buffers.cu");
const CHANNELS: KernelSource = source!("channels.cu");
const COLUMNS: KernelSource = source!("columns.cu");
const ELEMENTWISE: KernelSource = source!("elementwise.cu");
const LOSSES: KernelSource = source!("losses.cu");
const MOVES: KernelSource = source!("moves.cu");
const OPTIMIZER: KernelSource = source!("optimizer.cu");
const PICTURES: KernelSource = source!("pictures.cu");
const STATISTICS: KernelSource = source!("statistics.cu");

/// These kernels, each for all its scalars.
pub(crate) fn entries() -> Vec<KernelEntry> {
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
