//! TRL and transformers' Trainer with accelerate: autocast over fp32 weights, DDP or FSDP1, PEFT's adapters, bitsandbytes.

use crate::decoder::Decoder;
use crate::layout::{ContextExchange, Layout, Loss, Sharding};
use crate::numbers::Precision;
use crate::saved::Saved;
use crate::stack::{Choices, Feature, Head, Holding, Kept, LOSSES, Stack, States, hugging_face, sharded};

pub(super) struct Trl;

impl Stack for Trl {
    fn name(&self) -> &'static str {
        "trl"
    }

    fn source(&self) -> &'static str {
        "huggingface/transformers models/llama and loss/loss_utils, peft tuners/lora, accelerate; PyTorch's FullyShardedDataParallel"
    }

    fn features(&self) -> &'static [Feature] {
        &[Feature::Adapters, Feature::Quantised, Feature::SmallMoments]
    }

    fn choices(&self) -> Choices {
        Choices {
            shardings: &[Sharding::None, Sharding::Parameters],
            precisions: &[Precision::F32, Precision::PureBf16, Precision::Bf16, Precision::F16],
            losses: LOSSES,
        }
    }

    fn loss(&self, _: &Layout) -> Loss {
        Loss::Plain
    }

    fn context_exchange(&self) -> ContextExchange {
        ContextExchange::AllGather
    }

    fn states(&self, layout: &Layout) -> States {
        let shards = layout.shards(Sharding::Parameters);
        let kept = |bytes| Kept { bytes, shards };
        let bytes = if layout.precision == Precision::PureBf16 { 2 } else { 4 };
        let mixed = !matches!(layout.precision, Precision::F32 | Precision::PureBf16);
        // Autocast keeps a copy of the weights for the products of a step; adapters are small beside it.
        let copy = if mixed && shards == 1 { 2 } else { 0 };
        let moments = if layout.offload { 0 } else { layout.optimizer.moments(bytes) };
        States { weights: kept(bytes + copy), gradients: kept(bytes), optimizer: kept(moments), step: kept(0) }
    }

    fn frozen(&self, holding: &Holding, layout: &Layout) -> u64 {
        frozen(holding, layout)
    }

    fn saved(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved> {
        hugging_face::LAYER.saved(decoder, layout)
    }

    fn backward(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        hugging_face::backward(decoder, layout)
    }

    fn head(&self, decoder: &Decoder, layout: &Layout, _: u64) -> Head {
        hugging_face::head(decoder, layout, layout.loss.unwrap_or(self.loss(layout)))
    }

    fn gathered(&self, _: &Decoder, holding: &Holding, layout: &Layout) -> [u64; 3] {
        // PEFT wraps adapters apart from the weights that are frozen.
        sharded::gathered(holding, layout, 2, true, false)
    }

    fn buffers(&self, _: &Decoder, holding: &Holding, layout: &Layout) -> u64 {
        // DDP copies gradients into buckets of its own.
        let trained = if layout.lora.is_some() { holding.layers * holding.adapters } else { holding.all() };
        let is_ddp = layout.copies() > 1 && layout.sharding == Sharding::None;
        if is_ddp { trained * self.states(layout).gradients.bytes } else { 0 }
    }
}

/// Frozen weights: quantised matrices of layers, all else in 2 bytes, or in 4 where training is in fp32.
pub(super) fn frozen(holding: &Holding, layout: &Layout) -> u64 {
    let matrices = holding.layers * holding.matrices;
    let stored = layout.quantize.map_or(matrices * layout.element(), |format| format.bytes(matrices));
    (stored + (holding.all() - matrices) * layout.element()).div_ceil(layout.shards(Sharding::Parameters))
}
