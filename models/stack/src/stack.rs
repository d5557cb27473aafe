//! `Stack`: what one framework keeps, a file each; the list of them.

mod deepspeed;
mod eager;
mod feature;
mod hugging_face;
mod litgpt;
mod megatron;
mod sharded;
mod torchtitan;
mod trl;

use lockstep_topology::{InputError, nearest};

use crate::decoder::Decoder;
use crate::layout::{ContextExchange, Layout, Loss, Sharding};
use crate::numbers::Precision;
use crate::saved::Saved;

pub use feature::Feature;

/// A GiB.
pub const GIB: f64 = (1u64 << 30) as f64;

/// All stacks, by the names that `--stack` takes.
pub const STACKS: [&dyn Stack; 5] =
    [&megatron::Megatron, &torchtitan::Torchtitan, &deepspeed::DeepSpeed, &trl::Trl, &litgpt::LitGpt];

/// The stack of that name.
///
/// # Errors
/// None has it; the nearest names are listed.
pub fn stack(name: &str) -> Result<&'static dyn Stack, InputError> {
    let names = || STACKS.iter().map(|stack| stack.name());
    STACKS.iter().find(|stack| stack.name() == name).copied().ok_or_else(|| {
        let near = nearest(name, names());
        let cure = if near.is_empty() { names().collect::<Vec<_>>().join(", ") } else { near.join(" or ") };
        InputError::flag("stack", name, format!("there is no such stack; did you mean {cure}?"))
    })
}

/// Bytes of a kind of state of each parameter, and the ranks that share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Bytes of a parameter.
    pub bytes: u64,
    /// Ranks.
    pub shards: u64,
}

impl Kept {
    /// Bytes of `elements` parameters on a rank.
    pub fn of(self, elements: u64) -> u64 {
        elements.saturating_mul(self.bytes).div_ceil(self.shards.max(1))
    }
}

/// What is kept of each parameter that trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct States {
    /// Weights, in all formats.
    pub weights: Kept,
    /// Gradients that add up over a step.
    pub gradients: Kept,
    /// Master weights and moments.
    pub optimizer: Kept,
    /// What is there only while the optimizer steps.
    pub step: Kept,
}

/// What scores and loss take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Kept from the forward to the backward pass.
    pub kept: u64,
    /// Most in the forward pass.
    pub forward: u64,
    /// Most in the backward pass.
    pub backward: u64,
}

/// The values that a stack has of settings of which all stacks have some.
#[derive(Debug, Clone, Copy)]
pub struct Choices {
    /// What its data ranks may share.
    pub shardings: &'static [Sharding],
    /// Its formats.
    pub precisions: &'static [Precision],
    /// Its losses.
    pub losses: &'static [Loss],
}

/// All losses.
const LOSSES: &[Loss] = &[Loss::Plain, Loss::Fused, Loss::Chunked];

/// Parameters of a rank's stage of the pipeline, after tensor ranks have split them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    /// Layers.
    pub layers: u64,
    /// Elements of a layer's matrices.
    pub matrices: u64,
    /// Elements of a layer's vectors.
    pub vectors: u64,
    /// Elements of the embedding, with learned positions, where the stage has it.
    pub embedding: u64,
    /// Elements of the head's matrix, where the stage has it; a tied one on the same stage counts with the embedding.
    pub head: u64,
    /// Elements behind the last layer.
    pub last_vectors: u64,
    /// Parameters of the adapters of a layer.
    pub adapters: u64,
}

impl Holding {
    /// Parameters of a layer.
    pub fn layer(&self) -> u64 {
        self.matrices + self.vectors
    }

    /// All parameters but adapters.
    pub fn all(&self) -> u64 {
        self.layers * self.layer() + self.embedding + self.head + self.last_vectors
    }
}

/// What a framework keeps on a rank.
pub trait Stack: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Where its facts come from.
    fn source(&self) -> &'static str;

    /// What of a layout it has, besides data and what data ranks share.
    fn features(&self) -> &'static [Feature];

    /// The values that it has of other settings.
    fn choices(&self) -> Choices;

    /// The precision that it takes where none is stated.
    fn precision(&self) -> Precision {
        let mixed = self.choices().precisions.contains(&Precision::Bf16);
        if mixed { Precision::Bf16 } else { Precision::PureBf16 }
    }

    /// What its account of a layout leaves out, if anything.
    fn caveat(&self, _: &Layout) -> Option<&'static str> {
        None
    }

    /// Refuses a layout with what the stack does not have.
    ///
    /// # Errors
    /// The flag, its value and the stacks that have it.
    fn check(&self, layout: &Layout) -> Result<(), InputError> {
        let refused = |key, value: String, has: &dyn Fn(&dyn Stack) -> bool| {
            let others: Vec<&str> = STACKS.iter().filter(|stack| has(**stack)).map(|stack| stack.name()).collect();
            let (name, others) = (self.name(), others.join(" or "));
            let message = format!("is not part of the account of {name}: take another, or stack {others}");
            Err(InputError::flag(key, value, message))
        };
        let missing = Feature::ALL.iter().filter(|feature| !self.features().contains(feature));
        if let Some((feature, value)) = missing.filter_map(|feature| Some((feature, feature.stated(layout)?))).next() {
            return refused(feature.flag(), value, &|stack| stack.features().contains(feature));
        }
        let Choices { shardings, precisions, losses } = self.choices();
        let Layout { sharding, precision, loss, .. } = layout;
        if !shardings.contains(sharding) {
            return refused("strategy", sharding.to_string(), &|of| of.choices().shardings.contains(sharding));
        }
        if !precisions.contains(precision) {
            return refused("precision", precision.to_string(), &|of| of.choices().precisions.contains(precision));
        }
        if let Some(loss) = loss.filter(|loss| !losses.contains(loss)) {
            return refused("loss", loss.to_string(), &|of| of.choices().losses.contains(&loss));
        }
        feature::together(layout)
    }

    /// The loss that it takes where none is stated.
    fn loss(&self, layout: &Layout) -> Loss;

    /// How its context ranks exchange where nothing is stated.
    fn context_exchange(&self) -> ContextExchange;

    /// Elements of a table of tokens that tensor ranks split: Megatron pads it.
    fn table(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        decoder.table().div_ceil(layout.tensor)
    }

    /// What a parameter that trains takes.
    fn states(&self, layout: &Layout) -> States;

    /// Bytes of the weights that train, where no adapters do.
    fn weights(&self, holding: &Holding, layout: &Layout) -> u64 {
        self.states(layout).weights.of(holding.all())
    }

    /// Bytes of frozen parameters.
    fn frozen(&self, holding: &Holding, layout: &Layout) -> u64;

    /// What a layer saves, its input first.
    fn saved(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved>;

    /// Gradients of activations, at most, in a layer's backward pass.
    fn backward(&self, decoder: &Decoder, layout: &Layout) -> u64;

    /// What scores and loss take; `table` are the elements of the head's matrix on this rank.
    fn head(&self, decoder: &Decoder, layout: &Layout, table: u64) -> Head;

    /// What waits for the end of a step of a micro-batch whose gradient of the head's weight is deferred.
    fn deferred_head(&self, _: &Decoder, _: &Layout, _: u64) -> u64 {
        0
    }

    /// Gathered parameters and their whole gradients: in forward and backward passes of layers, and of the head.
    fn gathered(&self, decoder: &Decoder, holding: &Holding, layout: &Layout) -> [u64; 3];

    /// Buffers of exchanges and of staged results.
    fn buffers(&self, decoder: &Decoder, holding: &Holding, layout: &Layout) -> u64;

    /// Whether gradients have memory from the start of a step on; else each is made in the backward pass of its layer.
    fn gradients_stay(&self, layout: &Layout) -> bool {
        layout.micro_batches > 1
    }

    /// Workspaces of libraries on a GPU of this compute capability.
    fn workspace(&self, capability: u32) -> u64 {
        cublas_workspace(capability)
    }
}

/// PyTorch's workspace of cuBLAS: 32 MiB from compute capability 9 on, else 8,320 KiB (ATen's CUDABlas).
pub(crate) fn cublas_workspace(capability: u32) -> u64 {
    if capability >= 90 { 32 << 20 } else { 8320 << 10 }
}
