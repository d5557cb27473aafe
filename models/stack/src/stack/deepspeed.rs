//! DeepSpeed over a model of Hugging Face's transformers: 16 bits beside master weights, ZeRO 0 to 3 (Rajbhandari et al. 2020).

use crate::buckets::Elements;
use crate::decoder::Decoder;
use crate::layout::{ContextExchange, Layout, Loss, Sharding};
use crate::numbers::Precision;
use crate::saved::Saved;
use crate::stack::{Choices, Feature, Head, Holding, Kept, LOSSES, Stack, States, hugging_face, trl};

pub(super) struct DeepSpeed;

/// Elements of the bucket in which gradients are reduced (the default of its configuration).
const BUCKET: u64 = 500_000_000;
/// Elements of parameters that stay gathered at most (`stage3_max_live_parameters`).
const LIVE: u64 = 1_000_000_000;
/// Elements that are fetched ahead (`stage3_prefetch_bucket_size`).
const AHEAD: u64 = 50_000_000;

impl Stack for DeepSpeed {
    fn name(&self) -> &'static str {
        "deepspeed"
    }

    fn source(&self) -> &'static str {
        "deepspeedai/DeepSpeed runtime/zero (stage_1_and_2.py, stage3.py, config.py); arXiv 1910.02054"
    }

    fn features(&self) -> &'static [Feature] {
        &[
            Feature::Adapters,
            Feature::Quantised,
            Feature::SmallMoments,
            Feature::Offload,
            Feature::ReduceBucket,
            Feature::AheadBucket,
            Feature::LiveParameters,
        ]
    }

    fn choices(&self) -> Choices {
        Choices {
            shardings: &[Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters],
            precisions: &[Precision::F32, Precision::Bf16, Precision::F16],
            losses: LOSSES,
        }
    }

    fn caveat(&self, layout: &Layout) -> Option<&'static str> {
        let other = layout.sharding == Sharding::None && layout.precision == Precision::Bf16;
        other.then_some(
            "without ZeRO its optimizer for bf16 keeps gradients in fp32 and shards states; neither is counted",
        )
    }

    fn loss(&self, _: &Layout) -> Loss {
        Loss::Plain
    }

    fn context_exchange(&self) -> ContextExchange {
        ContextExchange::AllToAll
    }

    fn states(&self, layout: &Layout) -> States {
        let full = layout.precision == Precision::F32;
        let (element, master) = if full { (4, 0) } else { (2, 4) };
        let optimizer = if layout.offload { 0 } else { master + layout.optimizer.moments(4) };
        let kept = |bytes, from| Kept { bytes, shards: layout.shards(from) };
        States {
            weights: kept(element, Sharding::Parameters),
            gradients: kept(element, Sharding::Gradients),
            optimizer: kept(optimizer, Sharding::Optimizer),
            // The step reads gradients in fp32.
            step: kept(if layout.offload { 0 } else { master }, Sharding::Optimizer),
        }
    }

    fn frozen(&self, holding: &Holding, layout: &Layout) -> u64 {
        trl::frozen(holding, layout)
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

    fn gathered(&self, decoder: &Decoder, holding: &Holding, layout: &Layout) -> [u64; 3] {
        if layout.sharding < Sharding::Parameters || layout.copies() == 1 {
            return [0; 3];
        }
        let element = layout.element();
        // Parameters that are read again soon are not released: up to so many stay, at least a layer and what is fetched ahead.
        let largest = holding.layer().max(holding.head).max(holding.embedding);
        let squares = decoder.hidden * decoder.hidden;
        let ahead = Elements::of(layout.buckets.ahead, squares * 9 / 10, AHEAD);
        let live = (largest + ahead).max(Elements::of(layout.buckets.live, LIVE, LIVE)).min(holding.all());
        let gradient = |elements: u64| if layout.lora.is_none() { elements * element } else { 0 };
        [live * element, live * element + gradient(holding.layer()), live * element + gradient(holding.head)]
    }

    fn buffers(&self, decoder: &Decoder, holding: &Holding, layout: &Layout) -> u64 {
        if layout.copies() == 1 {
            return 0;
        }
        let trained = if layout.lora.is_some() { holding.layers * holding.adapters } else { holding.all() };
        // ZeRO's has its whole size however few gradients there are; without ZeRO gradients are copied into one as they need it.
        let bucket = Elements::of(layout.buckets.reduce, decoder.hidden * decoder.hidden, BUCKET);
        let elements = if layout.sharding == Sharding::None { bucket.min(trained) } else { bucket };
        elements * layout.element()
    }
}
