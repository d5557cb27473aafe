//! `Batch`: how many samples a step takes, and what follows for each rank and micro-batch.

use lockstep_models::Axis;
use lockstep_topology::InputError;

use crate::Experiment;

/// How many samples a step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// Samples per rank and micro-batch (weak scaling), one configuration each.
    PerRank(Vec<u32>),
    /// Samples per step over all ranks (strong scaling), one configuration each.
    Global(Vec<u64>),
    /// Both, as Megatron-LM's `--micro-batch-size` and `--global-batch-size`: the micro-batches of a step follow.
    Accumulated {
        /// Samples per rank and micro-batch.
        per_rank: u32,
        /// Samples per step over all ranks, one configuration each.
        global: Vec<u64>,
    },
}

impl Batch {
    /// The sizes per rank and micro-batch, if each is a configuration.
    pub fn per_rank(&self) -> &[u32] {
        if let Batch::PerRank(sizes) = self { sizes } else { &[] }
    }

    /// The sizes over all ranks, if they are set.
    pub fn global(&self) -> &[u64] {
        match self {
            Batch::Global(sizes) | Batch::Accumulated { global: sizes, .. } => sizes,
            Batch::PerRank(_) => &[],
        }
    }

    /// With these sizes per rank and micro-batch; beside those of a step there is one.
    pub fn with_per_rank(self, sizes: Vec<u32>) -> Batch {
        match (self, sizes.as_slice()) {
            (Batch::Accumulated { global, .. }, &[per_rank]) => Batch::Accumulated { per_rank, global },
            _ => Batch::PerRank(sizes),
        }
    }

    /// With these sizes over all ranks.
    pub fn with_global(self, sizes: Vec<u64>) -> Batch {
        match self {
            Batch::Accumulated { per_rank, .. } => Batch::Accumulated { per_rank, global: sizes },
            _ => Batch::Global(sizes),
        }
    }

    /// With the first size alone.
    pub fn first(&self) -> Batch {
        match self {
            Batch::PerRank(sizes) => Batch::PerRank(sizes.iter().take(1).copied().collect()),
            Batch::Global(sizes) => Batch::Global(sizes.iter().take(1).copied().collect()),
            Batch::Accumulated { per_rank, global } => {
                Batch::Accumulated { per_rank: *per_rank, global: global.iter().take(1).copied().collect() }
            }
        }
    }
}

impl Experiment {
    /// Sets the samples of a micro-batch beside those of a step.
    ///
    /// # Errors
    /// Several of a micro-batch.
    pub fn set_batches(&mut self, per_rank: &[u32], global: Vec<u64>) -> Result<(), InputError> {
        let &[per_rank] = per_rank else {
            let all: Vec<String> = per_rank.iter().map(ToString::to_string).collect();
            let message = "are several, and with global_batch there is one: give one";
            return Err(self.locate(InputError::flag("batch_per_rank", all.join(","), message)));
        };
        self.batch = Batch::Accumulated { per_rank, global };
        Ok(())
    }

    /// Samples per rank and micro-batch, the micro-batches of a step, and the size that names configuration number `batch`.
    ///
    /// # Errors
    /// A global batch that does not divide, and micro-batches that are stated beside both.
    pub(crate) fn batch_of(&self, batch: usize, ranks: u32) -> Result<(u32, u32, u64), InputError> {
        Ok(match &self.batch {
            Batch::PerRank(sizes) => (sizes[batch], self.accumulate, u64::from(sizes[batch])),
            Batch::Global(sizes) => (self.share(sizes[batch], ranks)?, self.accumulate, sizes[batch]),
            Batch::Accumulated { per_rank, global } => {
                (*per_rank, self.micro_batches(*per_rank, global[batch], ranks)?, global[batch])
            }
        })
    }

    /// The parts among which a global batch is divided in a micro-batch, and what they are.
    fn sources(&self, ranks: u32) -> (u32, &'static str) {
        match &self.mesh {
            Some(mesh) => (mesh.size(Axis::Data), "coordinates of data"),
            None => (ranks, "ranks"),
        }
    }

    /// The micro-batches of a step of `global` samples, each of `per_rank` on every rank with samples of its own.
    ///
    /// # Errors
    /// A global batch that is no multiple of what a micro-batch takes.
    pub fn micro_batches(&self, per_rank: u32, global: u64, ranks: u32) -> Result<u32, InputError> {
        self.refuse_accumulate(self.states("accumulate"))?;
        let ((sources, what), period) = (self.sources(ranks), self.strategy.period());
        let each = u64::from(per_rank).saturating_mul(sources.into()).saturating_mul(period.into());
        let count = u32::try_from(global / each.max(1)).ok().filter(|count| *count > 0 && global.is_multiple_of(each));
        count.ok_or_else(|| {
            let steps = if period > 1 { format!(" x {period} steps of {}", self.strategy) } else { String::new() };
            let message =
                format!("is not a multiple of {per_rank} samples x {sources} {what}{steps}: use a multiple of {each}");
            self.locate(InputError::flag("global_batch", global.to_string(), message))
        })
    }

    /// Refuses micro-batches that are stated where they follow from two batches.
    ///
    /// # Errors
    /// That.
    pub(crate) fn refuse_accumulate(&self, stated: bool) -> Result<(), InputError> {
        if !stated || !matches!(self.batch, Batch::Accumulated { .. }) {
            return Ok(());
        }
        let message = "follows from batch_per_rank and global_batch: leave one of the three out";
        Err(self.locate(InputError::flag("accumulate", self.accumulate.to_string(), message)))
    }

    /// Samples per rank and micro-batch of a global batch.
    fn share(&self, global: u64, ranks: u32) -> Result<u32, InputError> {
        let micro_batches = self.accumulate.saturating_mul(self.strategy.period());
        let (sources, what) = self.sources(ranks);
        let parts = u64::from(sources) * u64::from(micro_batches);
        if !global.is_multiple_of(parts) {
            let message = format!(
                "does not divide among {sources} {what} x {micro_batches} micro-batches: use a multiple of {parts}",
            );
            return Err(self.locate(InputError::flag("global_batch", global.to_string(), message)));
        }
        u32::try_from(global / parts).map_err(|_| {
            let message = format!("gives {} samples per rank: at most {} are possible", global / parts, u32::MAX);
            self.locate(InputError::flag("global_batch", global.to_string(), message))
        })
    }
}
