//! `Layout`: how training is spread over GPUs, and what is computed, stored and dropped; a plain struct that flags and files fill.

use lockstep_models::Recompute;
use lockstep_topology::InputError;

use crate::buckets::Buckets;
use crate::decoder::Decoder;
use crate::lora::Lora;
use crate::numbers::{Optimizer, Precision, Quantization, names};

/// What the ranks of an axis of data share instead of keeping copies (Rajbhandari et al. 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Sharding {
    /// Nothing (DDP).
    #[default]
    None,
    /// States of the optimizer (ZeRO-1, Megatron's distributed optimizer).
    Optimizer,
    /// Those and gradients (ZeRO-2).
    Gradients,
    /// Those and parameters (ZeRO-3, FSDP).
    Parameters,
}

/// How scores of tokens become a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// By operators one after the other, which keep scores in fp32.
    Plain,
    /// By one kernel, which writes the gradient over the scores.
    Fused,
    /// By pieces of the tokens, so that all scores are never there at once.
    Chunked,
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AttentionKernel {
    /// In one kernel that stores no scores (Dao et al. 2022).
    #[default]
    Flash,
    /// By products, softmax and dropout, which store all scores.
    Unfused,
}

/// How the ranks of the context axis exchange keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ContextExchange {
    /// Around a ring, one part after the other (Liu et al. 2023).
    #[default]
    Ring,
    /// By all-to-alls, so that a rank has all positions of some heads (Ulysses).
    AllToAll,
    /// By gathering all keys and values.
    AllGather,
}

names!(Sharding, "none" => Sharding::None, "zero-1" => Sharding::Optimizer, "zero-2" => Sharding::Gradients,
    "zero-3" => Sharding::Parameters);
names!(Loss, "plain" => Loss::Plain, "fused" => Loss::Fused, "chunked" => Loss::Chunked);
names!(AttentionKernel, "flash" => AttentionKernel::Flash, "unfused" => AttentionKernel::Unfused);
names!(ContextExchange, "ring" => ContextExchange::Ring, "alltoall" => ContextExchange::AllToAll,
    "allgather" => ContextExchange::AllGather);

/// A layout of training: sizes of the axes, what a step computes, what is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Ranks that split each product (t).
    pub tensor: u64,
    /// Stages of the pipeline (p).
    pub pipeline: u64,
    /// Ranks that split the positions of a sequence (c).
    pub context: u64,
    /// Copies of the model, with whatever they share (d).
    pub data: u64,
    /// Ranks that split experts, within data and context.
    pub expert: u64,
    /// Parts of the model that each stage has (v).
    pub virtual_stages: u64,
    /// Sequences that pass through the model at once (b).
    pub micro_batch: u64,
    /// Micro-batches of a step on each copy of the model (m).
    pub micro_batches: u64,
    /// Tokens of a sequence (s).
    pub seq_length: u64,
    /// What the data ranks share.
    pub sharding: Sharding,
    /// Whether tensor ranks split positions where they do not split features.
    pub sequence_parallel: bool,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// Formats of numbers.
    pub precision: Precision,
    /// Whether gradients add up in 2 bytes where the stack would take 4.
    pub half_gradients: bool,
    /// Whether weights in fp8 are kept in both orders, so that the backward pass does not transpose them.
    pub transpose_cache: bool,
    /// Micro-batches whose gradient of the output layer's weight waits for the end of the step, at most.
    pub deferred_heads: u64,
    /// Sizes of the buffers of exchanges.
    pub buckets: Buckets,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Whether the optimizer's states are in the host's memory.
    pub offload: bool,
    /// Adapters, beside which all else is frozen.
    pub lora: Option<Lora>,
    /// The format of frozen matrices.
    pub quantize: Option<Quantization>,
    /// The loss; the stack's own where none is stated.
    pub loss: Option<Loss>,
    /// The kernel of attention.
    pub attention: AttentionKernel,
    /// How context ranks exchange; the stack's own where none is stated.
    pub context_exchange: Option<ContextExchange>,
    /// Whether features are dropped behind attention and the feed-forward part, and scores of attention that are stored.
    pub dropout: bool,
    /// Whether the program is compiled, so that elementwise operators run again instead of being kept.
    pub compile: bool,
}

impl Default for Layout {
    /// One rank, one sequence of 4,096 tokens, mixed precision, AdamW.
    fn default() -> Layout {
        Layout {
            tensor: 1,
            pipeline: 1,
            context: 1,
            data: 1,
            expert: 1,
            virtual_stages: 1,
            micro_batch: 1,
            micro_batches: 1,
            seq_length: 4096,
            sharding: Sharding::None,
            sequence_parallel: false,
            recompute: Recompute::None,
            precision: Precision::Bf16,
            half_gradients: false,
            transpose_cache: true,
            deferred_heads: 0,
            buckets: Buckets::default(),
            optimizer: Optimizer::AdamW,
            offload: false,
            lora: None,
            quantize: None,
            loss: None,
            attention: AttentionKernel::Flash,
            context_exchange: None,
            dropout: false,
            compile: false,
        }
    }
}

/// The most tokens of a micro-batch, and the most ranks: beyond them figures have no meaning.
const MOST: u64 = 1 << 32;
/// The most bytes of activations that are counted.
const MOST_BYTES: u128 = 1 << 60;

impl Layout {
    /// Ranks.
    pub fn ranks(&self) -> u64 {
        self.tensor * self.pipeline * self.context * self.data
    }

    /// Tokens of a micro-batch on a rank.
    pub fn tokens(&self) -> u64 {
        (self.micro_batch * self.seq_length).div_ceil(self.context)
    }

    /// Tokens at which a rank has all features: those between split products.
    pub fn whole_tokens(&self) -> u64 {
        if self.sequence_parallel { self.tokens().div_ceil(self.tensor) } else { self.tokens() }
    }

    /// Ranks that share what is sharded: those of data and context.
    pub fn shards(&self, from: Sharding) -> u64 {
        if self.sharding >= from { self.data * self.context } else { 1 }
    }

    /// Ranks that have a copy of each other's parameters.
    pub fn copies(&self) -> u64 {
        self.data * self.context
    }

    /// Bytes of an element of an activation.
    pub fn element(&self) -> u64 {
        if self.precision == Precision::F32 { 4 } else { 2 }
    }

    /// Refuses what no program of this decoder can have.
    ///
    /// # Errors
    /// The flag, its value and the cure.
    pub fn check(&self, decoder: &Decoder) -> Result<(), InputError> {
        self.check_sizes(decoder)?;
        self.check_parts(decoder)
    }

    /// Refuses numbers that are none or cannot be counted.
    fn check_sizes(&self, decoder: &Decoder) -> Result<(), InputError> {
        let counts = [
            ("tp", self.tensor),
            ("pp", self.pipeline),
            ("cp", self.context),
            ("dp", self.data),
            ("ep", self.expert),
            ("interleave", self.virtual_stages),
            ("micro_batch_size", self.micro_batch),
            ("micro_batches", self.micro_batches),
            ("seq_length", self.seq_length),
        ];
        for (key, count) in counts {
            if count == 0 || count > MOST {
                return wrong(key, count, format!("must be a whole number from 1 to {MOST}"));
            }
        }
        let ranks =
            [self.tensor, self.pipeline, self.context, self.data].iter().try_fold(1u64, |a, b| a.checked_mul(*b));
        if ranks.is_none_or(|ranks| ranks > MOST) || self.micro_batch.saturating_mul(self.seq_length) > MOST {
            return wrong(
                "micro_batch_size",
                self.micro_batch,
                "makes more tokens or ranks than can be counted".into(),
            );
        }
        // Scores of attention and of the loss, and features of a layer, each of at most 16 bytes.
        let wide = [decoder.vocabulary, 64 * decoder.hidden, 16 * decoder.feed_forward];
        let of_token =
            wide.iter().fold(u128::from(decoder.heads) * u128::from(self.seq_length), |sum, of| sum + u128::from(*of));
        let tokens = u128::from(self.micro_batch) * u128::from(self.seq_length);
        if tokens * of_token * 16 * u128::from(decoder.layers.max(1)) > MOST_BYTES {
            let message = "makes more bytes than can be counted: take a shorter one".to_owned();
            return wrong("seq_length", self.seq_length, message);
        }
        Ok(())
    }

    /// Refuses parts that the decoder does not have.
    fn check_parts(&self, decoder: &Decoder) -> Result<(), InputError> {
        if self.expert > 1 {
            let message = "the model has no experts: leave it out".to_owned();
            return wrong("ep", self.expert, message);
        }
        for (heads, what) in [(decoder.heads, "heads"), (decoder.key_heads, "heads of keys and values")] {
            if !heads.is_multiple_of(self.tensor) {
                return wrong("tp", self.tensor, format!("does not divide {heads} {what}: take a divisor"));
            }
        }
        if !decoder.feed_forward.is_multiple_of(self.tensor) {
            let message = format!("does not divide {} features: take a divisor", decoder.feed_forward);
            return wrong("tp", self.tensor, message);
        }
        let parts = self.pipeline.saturating_mul(self.virtual_stages);
        if decoder.layers < parts {
            let message = format!("makes {parts} parts of {} layers: take fewer", decoder.layers);
            return wrong("pp", self.pipeline, message);
        }
        if self.virtual_stages > 1 && self.pipeline == 1 {
            return wrong("interleave", self.virtual_stages, "needs a pipeline: give pp too".into());
        }
        if let Some(most) = decoder.learned_positions.filter(|most| self.seq_length > *most) {
            let message =
                format!("the model has learned vectors of {most} positions: write {}:positions=N", decoder.name);
            return wrong("seq_length", self.seq_length, message);
        }
        if self.quantize.is_some() && self.lora.is_none() {
            let message = "quantised weights do not train: give lora too";
            return Err(InputError::flag(
                "quantize",
                self.quantize.map_or(String::new(), |of| of.to_string()),
                message,
            ));
        }
        Ok(())
    }
}

fn wrong(key: &'static str, value: u64, message: String) -> Result<(), InputError> {
    Err(InputError::flag(key, value.to_string(), message))
}
