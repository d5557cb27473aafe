//! `Account`: the memory of each distinct rank over a step, its peak, what is reserved, and whether it fits.

pub(crate) mod holding;
mod moments;

use lockstep_topology::InputError;

use crate::boards::Board;
use crate::decoder::Decoder;
use crate::layout::Layout;
use crate::part::Live;
use crate::stack::{GIB, Stack};

pub use moments::Moment;

/// PyTorch's allocator keeps blocks that it cannot hand out whole: reserved is 1.03 to 1.09 times allocated in published runs.
const RESERVED_PER_ALLOCATED: f64 = 1.05;
/// What the driver's context and loaded kernels take, assumed.
const CONTEXT: u64 = 480 << 20;
/// Buffers of NCCL for a group of ranks, assumed: channels of 4 MiB for each of three protocols' peers.
const PER_GROUP: u64 = 128 << 20;

/// The memory of one rank of a stage of the pipeline; the others of the stage take as much.
#[derive(Debug, Clone, PartialEq)]
pub struct RankAccount {
    /// The stage, from 0.
    pub stage: u64,
    /// How many stages from there on take as much.
    pub stages: u64,
    /// Layers of the stage.
    pub layers: u64,
    /// Micro-batches whose activations are there at once, at most; parts of them where stages have several parts.
    pub in_flight: f64,
    /// What is there when it is most.
    pub peak: Live,
    /// When that is.
    pub when: &'static str,
    /// The moments of a step, in their order.
    pub moments: Vec<Moment>,
}

impl RankAccount {
    /// GiB that tensors take at the peak.
    pub fn allocated_gib(&self) -> f64 {
        self.peak.total() as f64 / GIB
    }

    /// GiB that the allocator has taken from the device by then.
    pub fn reserved_gib(&self) -> f64 {
        self.allocated_gib() * RESERVED_PER_ALLOCATED
    }
}

/// The memory of the ranks of a layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// One rank of each stage that differs from the one before it, ascending.
    pub ranks: Vec<RankAccount>,
    /// GiB of the driver's context and of exchanges' own buffers, outside of the allocator.
    pub context_gib: f64,
}

impl Account {
    /// The account of `layout` for `decoder` under `stack`, on GPUs of `board`.
    ///
    /// # Errors
    /// A layout that the decoder cannot have.
    pub fn of(decoder: &Decoder, layout: &Layout, stack: &dyn Stack, board: &Board) -> Result<Account, InputError> {
        layout.check(decoder)?;
        let ranks = (0..layout.pipeline).map(|stage| {
            let moments = moments::of_stage(decoder, layout, stack, board, stage);
            let most = moments.iter().max_by_key(|moment| moment.live.total());
            let (peak, when) = most.map_or((Live::default(), ""), |moment| (moment.live, moment.name));
            let layers = holding::layers(decoder, layout, stage);
            RankAccount { stage, stages: 1, layers, in_flight: moments::in_flight(layout, stage), peak, when, moments }
        });
        let mut ranks: Vec<RankAccount> = ranks.collect();
        ranks.dedup_by(|next, last| {
            let same = next.peak == last.peak && next.in_flight == last.in_flight;
            last.stages += u64::from(same);
            same
        });
        let groups =
            [layout.tensor, layout.pipeline, layout.copies()].iter().filter(|ranks| **ranks > 1).count() as u64;
        Ok(Account { ranks, context_gib: (CONTEXT + groups * PER_GROUP) as f64 / GIB })
    }

    /// The rank that takes most.
    pub fn worst(&self) -> Option<&RankAccount> {
        self.ranks.iter().max_by_key(|rank| rank.peak.total())
    }

    /// GiB of `board` that would stay free on the rank that takes most; negative where it does not fit.
    pub fn margin_gib(&self, board: &Board) -> f64 {
        let most = self.worst().map_or(0.0, RankAccount::reserved_gib);
        board.usable_gib() - most - self.context_gib
    }

    /// Whether all ranks fit.
    pub fn fits(&self, board: &Board) -> bool {
        self.margin_gib(board) >= 0.0
    }
}
