//! Megatron-Core with Transformer Engine: flat buffers of weights in 2 bytes and gradients in 4, a distributed optimizer, fused layers.
//!
//! With unfused attention and dropout a layer saves what Korthikanti et al. 2022 (arXiv 2205.05198, §4) count: 34sbh + 5as²b bytes.

use lockstep_models::Module;

use crate::decoder::Decoder;
use crate::layout::{AttentionKernel, ContextExchange, Layout, Loss, Sharding};
use crate::lora::Target;
use crate::numbers::Precision;
use crate::part::Part;
use crate::saved::Saved;
use crate::stack::{Choices, Feature, Head, Holding, Kept, LOSSES, Stack, States, cublas_workspace};

pub(super) struct Megatron;

/// Products that are one, and have one adapter.
const QKV: &[Target] = &[Target::Query, Target::Key, Target::Value];
const OUTPUT: &[Target] = &[Target::Output];
const UP: &[Target] = &[Target::Gate, Target::Up];
const DOWN: &[Target] = &[Target::Down];

impl Megatron {
    /// Bytes of an element of a product's input that is kept for the gradient of its weight.
    fn kept_input(layout: &Layout) -> u64 {
        if layout.precision == Precision::F8 { 1 } else { layout.element() }
    }

    /// Bytes of an element of a layer's matrix: in fp8 (`--fp8-param-gather`) one in each order that is kept.
    fn of_matrix(layout: &Layout) -> u64 {
        if layout.precision == Precision::F8 && !layout.transpose_cache { 1 } else { layout.element() }
    }

    /// Whether layers are Transformer Engine's, which keep dummy gradients.
    fn is_fused(layout: &Layout) -> bool {
        layout.attention == AttentionKernel::Flash && layout.precision != Precision::F32
    }
}

impl Stack for Megatron {
    fn name(&self) -> &'static str {
        "megatron"
    }

    fn source(&self) -> &'static str {
        "NVIDIA/Megatron-LM core (distributed optimizer, tensor_parallel/layers.py, fusions), TransformerEngine 2.8 and later"
    }

    fn features(&self) -> &'static [Feature] {
        &[
            Feature::Tensor,
            Feature::Pipeline,
            Feature::Context,
            Feature::SequenceParallel,
            Feature::Interleave,
            Feature::HalfGradients,
            Feature::OneOrder,
            Feature::DeferredHeads,
            Feature::Dropout,
            Feature::Adapters,
            Feature::SmallMoments,
            Feature::Selective,
            Feature::Offload,
        ]
    }

    fn choices(&self) -> Choices {
        Choices {
            shardings: &[Sharding::None, Sharding::Optimizer],
            precisions: &[Precision::F32, Precision::PureBf16, Precision::Bf16, Precision::F16, Precision::F8],
            losses: LOSSES,
        }
    }

    fn caveat(&self, layout: &Layout) -> Option<&'static str> {
        match (&layout.lora, layout.precision) {
            (Some(_), _) => Some("published runs with adapters took up to 26 % more than their account"),
            (None, Precision::F8) => Some("published runs in fp8 took up to 14 % less than their account"),
            (None, _) => None,
        }
    }

    fn loss(&self, _: &Layout) -> Loss {
        Loss::Plain
    }

    fn context_exchange(&self) -> ContextExchange {
        ContextExchange::Ring
    }

    fn table(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        // `--make-vocab-size-divisible-by 128`, for each tensor rank.
        decoder.vocabulary.next_multiple_of(128 * layout.tensor) / layout.tensor * decoder.hidden
    }

    fn states(&self, layout: &Layout) -> States {
        let shards = layout.shards(Sharding::Optimizer);
        let whole = |bytes| Kept { bytes, shards: 1 };
        let moments = layout.optimizer.moments(4);
        let (weights, gradients, master) = match layout.precision {
            Precision::F32 => (4, 4, 0),
            Precision::PureBf16 => (2, 2, 0),
            Precision::F8 | Precision::Bf16 | Precision::F16 => (2, if layout.half_gradients { 2 } else { 4 }, 4),
        };
        let step = if layout.half_gradients && master > 0 { 4 } else { 0 };
        States {
            weights: whole(weights),
            gradients: whole(gradients),
            optimizer: Kept { bytes: if layout.offload { 0 } else { master + moments }, shards },
            step: Kept { bytes: if layout.offload { 0 } else { step }, shards },
        }
    }

    fn weights(&self, holding: &Holding, layout: &Layout) -> u64 {
        match layout.precision {
            Precision::F8 => {
                let matrices = holding.layers * holding.matrices;
                matrices * Megatron::of_matrix(layout) + (holding.all() - matrices) * layout.element()
            }
            _ => self.states(layout).weights.of(holding.all()),
        }
    }

    fn frozen(&self, holding: &Holding, layout: &Layout) -> u64 {
        let matrices = holding.layers * holding.matrices;
        let stored = match layout.quantize {
            Some(format) => format.bytes(matrices),
            None => matrices * Megatron::of_matrix(layout),
        };
        stored + (holding.all() - matrices) * layout.element()
    }

    fn saved(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved> {
        let (tokens, whole, t) = (layout.tokens(), layout.whole_tokens(), layout.tensor);
        let (element, input) = (layout.element(), Megatron::kept_input(layout));
        let split = |features: u64, bytes: u64| (tokens * features * bytes).div_ceil(t);
        // A norm fused with a product keeps its output, whether the product trains or not.
        let norm = whole * decoder.hidden * if layout.lora.is_some() { element } else { input };
        // An adapter keeps its input: what tensor ranks have gathered, or what is dropped of the norm's output.
        let read = |targets: &[Target]| match &layout.lora {
            Some(lora) if lora.has(targets) && (whole < tokens || lora.dropout) => {
                tokens * decoder.hidden * lora.input_bytes(element)
            }
            _ => 0,
        };
        let kept = |name, part, bytes, of: &'static [Module]| Saved { name, part, bytes, of };
        let mut all = vec![
            kept("input", Part::Norms, whole * decoder.hidden * element, &[]),
            kept("norm before attention", Part::Norms, norm, &[Module::LayerNorm]),
            kept("input of adapters before attention", Part::Norms, read(QKV), &[]),
        ];
        all.extend(self.attention(decoder, layout));
        if layout.dropout {
            all.push(kept("mask behind attention", Part::Attention, whole * decoder.hidden, &[]));
        }
        let second = &[Module::LayerNorm, Module::Mlp];
        let inner = if decoder.gated { 2 } else { 1 } * decoder.feed_forward;
        let output = match &layout.lora {
            None => input,
            Some(lora) if lora.has(DOWN) => lora.input_bytes(element),
            Some(_) => 0,
        };
        all.extend([
            kept("input of the second norm", Part::Norms, whole * decoder.hidden * element, &[]),
            kept("norm before feed-forward", Part::Norms, norm, second),
            kept("input of adapters before feed-forward", Part::Norms, read(UP), &[Module::Mlp]),
            kept("input of the activation", Part::FeedForward, split(inner, element), &[Module::Mlp]),
            kept("output of the activation", Part::FeedForward, split(decoder.feed_forward, output), &[Module::Mlp]),
        ]);
        if layout.dropout {
            all.push(kept("mask behind feed-forward", Part::FeedForward, whole * decoder.hidden, &[]));
        }
        all
    }

    fn backward(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        let (tokens, element) = (layout.tokens(), layout.element());
        let inner = if decoder.gated { 2 } else { 1 } * decoder.feed_forward;
        // Gradient of the activation's input, or a gathered gradient and that of its output; beside the residual's gradient.
        let activation = (tokens * inner * element).div_ceil(layout.tensor);
        let gathered =
            if layout.sequence_parallel && layout.tensor > 1 { tokens * decoder.hidden * element } else { 0 };
        let output = (tokens * decoder.feed_forward * element).div_ceil(layout.tensor) + gathered;
        let exchanged = match layout.context > 1 && self.exchange(layout) == ContextExchange::AllToAll {
            // Each of queries, keys and values as it was, as it is sent, received and ordered again.
            true => {
                let features = decoder.query_features() + 2 * decoder.key_features();
                (4 * tokens * features * element).div_ceil(layout.tensor)
            }
            false => 0,
        };
        let largest = decoder.shapes().iter().map(|(i, o)| i * o).max().unwrap_or(0);
        let transposed = if layout.transpose_cache { 0 } else { largest.div_ceil(layout.tensor) };
        activation.max(output).max(exchanged) + layout.whole_tokens() * decoder.hidden * element + transposed
    }

    fn head(&self, decoder: &Decoder, layout: &Layout, table: u64) -> Head {
        let (tokens, element) = (layout.tokens(), layout.element());
        let scores = tokens * (table / decoder.hidden.max(1));
        let features = tokens * decoder.hidden * element;
        let gathered = if layout.sequence_parallel && layout.tensor > 1 { features } else { 0 };
        // Input and output of the last norm.
        let last = 2 * layout.whole_tokens() * decoder.hidden * element;
        // A fused loss writes gradients over the scores; else softmax stays in fp32 beside the gradient in 2 bytes.
        let (kept, most) = match layout.loss.unwrap_or(self.loss(layout)) {
            Loss::Plain => (scores * 4, scores * (4 + element)),
            Loss::Fused => (scores * element, scores * element),
            Loss::Chunked => (0, scores * (4 + element) / tokens.div_ceil(1024).max(1)),
        };
        // The head's own dummy gradient is written when its backward pass ends.
        let dummy = if Megatron::is_fused(layout) && layout.lora.is_none() { table * 2 } else { 0 };
        Head { kept: last + kept, forward: last + most + gathered, backward: last + most + gathered + features + dummy }
    }

    fn deferred_head(&self, decoder: &Decoder, layout: &Layout, table: u64) -> u64 {
        // Gradient of the scores, and what the output layer has read.
        let scores = layout.tokens() * (table / decoder.hidden.max(1));
        (scores + layout.whole_tokens() * decoder.hidden) * layout.element()
    }

    fn gathered(&self, _: &Decoder, _: &Holding, _: &Layout) -> [u64; 3] {
        [0; 3]
    }

    fn buffers(&self, decoder: &Decoder, _: &Holding, layout: &Layout) -> u64 {
        if !Megatron::is_fused(layout) || layout.lora.is_some() {
            return 0;
        }
        // One dummy gradient in 2 bytes of each shape: the products have added theirs to the flat buffer already.
        let mut shapes = decoder.shapes().to_vec();
        shapes.sort_unstable();
        shapes.dedup();
        shapes.iter().map(|(i, o)| (i * o).div_ceil(layout.tensor) * 2).sum()
    }

    fn gradients_stay(&self, _: &Layout) -> bool {
        true
    }

    fn workspace(&self, capability: u32) -> u64 {
        // Transformer Engine has one of its own.
        cublas_workspace(capability) + if capability >= 90 { 32 << 20 } else { 4 << 20 }
    }
}

impl Megatron {
    /// What attention saves, and the adapters of its products.
    fn attention(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved> {
        let (tokens, t) = (layout.tokens(), layout.tensor);
        let (element, input) = (layout.element(), Megatron::kept_input(layout));
        let split = |features: u64, bytes: u64| (tokens * features * bytes).div_ceil(t);
        let (queries, keys) = (decoder.query_features(), decoder.key_features());
        let mut all: Vec<Saved> = Vec::new();
        let mut save = |name, bytes, of: &'static [Module]| all.push(Saved { name, part: Part::Attention, bytes, of });
        if decoder.query_norm {
            save("input of norms of heads", split(queries + keys, element), &[]);
        }
        save("queries", split(queries, element), &[]);
        save("keys", split(keys, element), &[]);
        save("values", split(keys, element), &[]);
        if layout.attention == AttentionKernel::Flash {
            // In fp8 the product behind attention keeps a copy of its own, so that recomputation drops the output.
            let copied = input != element && layout.lora.is_none();
            let of: &'static [Module] = if copied { &[Module::CoreAttention] } else { &[] };
            save("output of attention", split(queries, element), of);
            if copied {
                save("output of attention in fp8", split(queries, input), &[]);
            }
            save("sums of exponentials", split(decoder.heads, 4), &[Module::CoreAttention]);
            if layout.context > 1 && self.exchange(layout) == ContextExchange::AllToAll {
                save("output before the all-to-all", split(queries, element), &[]);
            }
        } else {
            let scores = split(decoder.heads * layout.seq_length, 1);
            save("softmax", scores * element, &[Module::CoreAttention]);
            if layout.dropout {
                save("dropped scores", scores * element, &[Module::CoreAttention]);
                save("mask of scores", scores, &[Module::CoreAttention]);
            }
            save("output of attention", split(queries, element), &[]);
        }
        if let Some(lora) = &layout.lora {
            // The output of attention is there already, but for what is dropped of it.
            if lora.dropout && lora.has(OUTPUT) {
                save("dropped output of attention", split(queries, lora.input_bytes(element)), &[]);
            }
            let adapters = [QKV, OUTPUT, UP, DOWN].iter().filter(|of| lora.has(of)).count() as u64;
            save("features inside adapters", tokens * u64::from(lora.rank) * adapters * element, &[]);
        }
        all
    }

    fn exchange(&self, layout: &Layout) -> ContextExchange {
        layout.context_exchange.unwrap_or(self.context_exchange())
    }
}
