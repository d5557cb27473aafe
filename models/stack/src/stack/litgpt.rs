//! LitGPT: weights and adapters in bf16 throughout, one product for queries, keys and values, scores in pieces, FSDP.

use crate::decoder::Decoder;
use crate::layout::{ContextExchange, Layout, Loss, Sharding};
use crate::numbers::Precision;
use crate::saved::Saved;
use crate::stack::eager::Eager;
use crate::stack::{Choices, Feature, Head, Holding, Kept, Stack, States, sharded};

pub(super) struct LitGpt;

/// Tokens of a piece of the scores (`lm_head_chunk_size`).
const PIECE: u64 = 128;

impl LitGpt {
    fn layer(decoder: &Decoder, layout: &Layout) -> Eager {
        Eager {
            // Root mean squares are of a copy in fp32 (since its commit 6178c7cc); PyTorch's layer norm keeps its input.
            norm_input: if decoder.rms { 4 } else { layout.element() },
            norm_of_products: true,
            joined: true,
            repeated: false,
            one_adapter: true,
            compiled: false,
        }
    }
}

impl Stack for LitGpt {
    fn name(&self) -> &'static str {
        "litgpt"
    }

    fn source(&self) -> &'static str {
        "Lightning-AI/litgpt model.py, lora.py, finetune/lora.py; Fabric's precision plugins; bitsandbytes autograd/_functions.py"
    }

    fn features(&self) -> &'static [Feature] {
        &[Feature::Adapters, Feature::Quantised, Feature::SmallMoments]
    }

    fn choices(&self) -> Choices {
        Choices {
            shardings: &[Sharding::None, Sharding::Parameters],
            precisions: &[Precision::F32, Precision::PureBf16],
            losses: &[Loss::Chunked],
        }
    }

    fn loss(&self, _: &Layout) -> Loss {
        Loss::Chunked
    }

    fn context_exchange(&self) -> ContextExchange {
        ContextExchange::AllGather
    }

    fn states(&self, layout: &Layout) -> States {
        let shards = layout.shards(Sharding::Parameters);
        let kept = |bytes| Kept { bytes, shards };
        let bytes = if layout.precision == Precision::F32 { 4 } else { 2 };
        let moments = if layout.offload { 0 } else { layout.optimizer.moments(bytes) };
        States { weights: kept(bytes), gradients: kept(bytes), optimizer: kept(moments), step: kept(0) }
    }

    fn frozen(&self, holding: &Holding, layout: &Layout) -> u64 {
        // All products are quantised, that of the scores too.
        let matrices = holding.layers * holding.matrices + holding.head;
        let stored = layout.quantize.map_or(matrices * layout.element(), |format| format.bytes(matrices));
        (stored + (holding.all() - matrices) * layout.element()).div_ceil(layout.shards(Sharding::Parameters))
    }

    fn saved(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved> {
        LitGpt::layer(decoder, layout).saved(decoder, layout)
    }

    fn backward(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        LitGpt::layer(decoder, layout).backward(decoder, layout)
    }

    fn head(&self, decoder: &Decoder, layout: &Layout, table: u64) -> Head {
        let (tokens, element) = (layout.tokens(), layout.element());
        let features = tokens * decoder.hidden * element;
        let scores = tokens * decoder.vocabulary;
        let piece = (layout.micro_batch * PIECE).min(tokens) * decoder.vocabulary;
        // Fabric hands scores out in fp32, and the list of pieces stays; log-softmax is as large; gradients are of one piece.
        let kept = 8 * scores;
        let last = 2 * features;
        let weight = layout.quantize.map_or(0, |_| table * element);
        Head {
            kept: last + kept,
            forward: last + kept + element * piece + weight,
            backward: last + kept + (8 + element) * piece + features + weight,
        }
    }

    fn gathered(&self, _: &Decoder, holding: &Holding, layout: &Layout) -> [u64; 3] {
        sharded::gathered(holding, layout, 2, true, true)
    }

    fn buffers(&self, _: &Decoder, holding: &Holding, layout: &Layout) -> u64 {
        // FSDP makes gradients of all parameters of a layer in which any trains.
        let shards = layout.shards(Sharding::Parameters);
        if layout.lora.is_some() && shards > 1 { (holding.all() * layout.element()).div_ceil(shards) } else { 0 }
    }
}
