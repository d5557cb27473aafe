//! torchtitan: FSDP2 for each layer over parameters in fp32, products in bf16, gradients reduced in fp32, fused AdamW.

use lockstep_models::{Module, Recompute};

use crate::decoder::Decoder;
use crate::layout::{ContextExchange, Layout, Loss, Sharding};
use crate::numbers::Precision;
use crate::part::Part;
use crate::saved::Saved;
use crate::stack::eager::Eager;
use crate::stack::{Choices, Feature, Head, Holding, Kept, LOSSES, Stack, States, sharded};

pub(super) struct Torchtitan;

impl Torchtitan {
    fn layer(layout: &Layout) -> Eager {
        Eager {
            norm_input: layout.element(),
            norm_of_products: false,
            joined: false,
            repeated: true,
            one_adapter: false,
            compiled: layout.compile,
        }
    }
}

impl Stack for Torchtitan {
    fn name(&self) -> &'static str {
        "torchtitan"
    }

    fn source(&self) -> &'static str {
        "pytorch/torchtitan: models/llama3, distributed/activation_checkpoint; PyTorch's fully_shard"
    }

    fn features(&self) -> &'static [Feature] {
        &[
            Feature::Tensor,
            Feature::Pipeline,
            Feature::Context,
            Feature::SequenceParallel,
            Feature::Interleave,
            Feature::Compile,
            Feature::SmallMoments,
            Feature::Selective,
        ]
    }

    fn choices(&self) -> Choices {
        Choices {
            shardings: &[Sharding::None, Sharding::Parameters],
            precisions: &[Precision::F32, Precision::PureBf16, Precision::Bf16, Precision::F16, Precision::F8],
            losses: LOSSES,
        }
    }

    fn loss(&self, layout: &Layout) -> Loss {
        if layout.compile { Loss::Fused } else { Loss::Plain }
    }

    fn context_exchange(&self) -> ContextExchange {
        ContextExchange::AllGather
    }

    fn states(&self, layout: &Layout) -> States {
        let shards = layout.shards(Sharding::Parameters);
        let kept = |bytes| Kept { bytes, shards };
        let bytes = if layout.precision == Precision::PureBf16 { 2 } else { 4 };
        // Without FSDP, autocast keeps a copy of the weights for the products of a step.
        let copy = if shards == 1 && !matches!(layout.precision, Precision::F32 | Precision::PureBf16) { 2 } else { 0 };
        let moments = if layout.offload { 0 } else { layout.optimizer.moments(bytes) };
        States { weights: kept(bytes + copy), gradients: kept(bytes), optimizer: kept(moments), step: kept(0) }
    }

    fn frozen(&self, holding: &Holding, layout: &Layout) -> u64 {
        (holding.all() * layout.element()).div_ceil(layout.shards(Sharding::Parameters))
    }

    fn saved(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved> {
        let saved = Torchtitan::layer(layout).saved(decoder, layout);
        if !matches!(layout.recompute, Recompute::Selective(_)) {
            return saved;
        }
        // Its selective recomputation keeps the output of attention and of every second product, and drops all else; the outputs of
        // products that nothing else reads are kept as well.
        let element = layout.element();
        let all: &'static [Module] = &Module::ALL;
        let (queries, keys, inner) = (decoder.query_features(), decoder.key_features(), decoder.feed_forward);
        let kept = ["input", "output of attention", "sums of exponentials"];
        let mut list: Vec<Saved> = saved
            .into_iter()
            .map(|one| Saved { of: if kept.contains(&one.name) { &[] } else { all }, ..one })
            .collect();
        let split = |bytes: u64| (layout.tokens() * bytes * element).div_ceil(layout.tensor);
        let products = [
            ("product of queries", Part::Attention, split(queries)),
            ("product of values", Part::Attention, split(keys)),
            ("product into feed-forward", Part::FeedForward, split(inner)),
            ("product out of feed-forward", Part::FeedForward, layout.whole_tokens() * decoder.hidden * element),
        ];
        list.extend(products.map(|(name, part, bytes)| Saved { name, part, bytes, of: &[] }));
        list
    }

    fn backward(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        Torchtitan::layer(layout).backward(decoder, layout)
    }

    fn head(&self, decoder: &Decoder, layout: &Layout, table: u64) -> Head {
        let (tokens, element) = (layout.tokens(), layout.element());
        let scores = tokens * (table / decoder.hidden.max(1));
        let features = tokens * decoder.hidden * element;
        // Plain: log-softmax in fp32, its gradient and that of the loss; compiled: scores and their gradient.
        let (kept, most) = match layout.loss.unwrap_or(self.loss(layout)) {
            Loss::Plain => (4 * scores, 12 * scores),
            Loss::Fused => (element * scores, 2 * element * scores),
            Loss::Chunked => (2 * features, 12 * scores / 8),
        };
        let last = 2 * features;
        Head { kept: last + kept, forward: last + kept + element * scores, backward: last + most + features }
    }

    fn gathered(&self, _: &Decoder, holding: &Holding, layout: &Layout) -> [u64; 3] {
        sharded::gathered(holding, layout, 4, false, false)
    }

    fn buffers(&self, _: &Decoder, _: &Holding, _: &Layout) -> u64 {
        0
    }
}
