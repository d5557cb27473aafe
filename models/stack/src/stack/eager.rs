//! What a layer of PyTorch's operators, one after the other, saves: those of Hugging Face's transformers, LitGPT, torchtitan.

use lockstep_models::Module;

use crate::decoder::Decoder;
use crate::layout::{AttentionKernel, Layout};
use crate::lora::Target;
use crate::part::Part;
use crate::saved::Saved;

/// How a framework writes the layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Eager {
    /// Bytes of an element that a norm keeps of its input: 4 where it works on a copy in fp32.
    pub(super) norm_input: u64,
    /// Whether a norm is written as products, so that one that trains keeps its normalised features too.
    pub(super) norm_of_products: bool,
    /// Whether queries, keys and values are one product, whose output stays because the values are a view of it.
    pub(super) joined: bool,
    /// Whether keys and values are repeated for each head of queries before attention.
    pub(super) repeated: bool,
    /// Whether an adapter has one copy of dropped features for the joined product.
    pub(super) one_adapter: bool,
    /// Whether elementwise operators run again in the backward pass, because the program is compiled.
    pub(super) compiled: bool,
}

impl Eager {
    /// What a layer saves.
    pub(super) fn saved(&self, decoder: &Decoder, layout: &Layout) -> Vec<Saved> {
        let mut list = List { decoder, layout, all: Vec::new() };
        self.norm(&mut list, "input", "norm before attention", &[Module::LayerNorm], self.inputs_of_attention(layout));
        self.attention(&mut list);
        let inputs = self.inputs_of_feed_forward(decoder, layout);
        self.norm(
            &mut list,
            "input of the second norm",
            "norm before feed-forward",
            &[Module::LayerNorm, Module::Mlp],
            inputs,
        );
        for _ in 2..decoder.norms {
            let bytes = layout.whole_tokens() * decoder.hidden * self.norm_input;
            list.save("input of a norm behind", Part::Norms, bytes, &[Module::LayerNorm]);
        }
        self.feed_forward(&mut list);
        list.all
    }

    /// Whether the frozen or trained products that read the first norm keep its output.
    fn inputs_of_attention(&self, layout: &Layout) -> bool {
        layout.lora.is_none() || layout.quantize.is_some()
    }

    fn inputs_of_feed_forward(&self, decoder: &Decoder, layout: &Layout) -> bool {
        // A norm whose output the one before attention is already.
        self.inputs_of_attention(layout) && !(decoder.parallel && decoder.norms < 2)
    }

    fn norm(&self, list: &mut List<'_>, input: &'static str, out: &'static str, of: &'static [Module], kept: bool) {
        let whole = list.layout.whole_tokens() * list.decoder.hidden;
        let element = list.layout.element();
        let shared = list.decoder.parallel && self.norm_input == element && input != "input";
        if !shared {
            // The residual itself is kept where no copy is made, whatever runs again.
            let dropped: &'static [Module] = if self.norm_input == element { &[] } else { of };
            list.save(input, Part::Norms, whole * self.norm_input, dropped);
        }
        if self.norm_of_products && list.decoder.rms && list.layout.lora.is_none() {
            list.save("normalised features", Part::Norms, whole * element, of);
        }
        if kept && !self.compiled {
            list.save(out, Part::Norms, whole * element, of);
        }
    }

    fn attention(&self, list: &mut List<'_>) {
        let (decoder, layout) = (list.decoder, list.layout);
        let element = layout.element();
        let (queries, keys) = (decoder.query_features(), decoder.key_features());
        self.adapters(list, &[Target::Query, Target::Key, Target::Value], Part::Attention, &[]);
        let (kept_keys, kept_values) = match (self.repeated, self.joined) {
            (true, false) => (queries, queries),
            (_, true) => (keys, queries + 2 * keys),
            (false, false) => (keys, keys),
        };
        list.split("queries", Part::Attention, queries * element, &[]);
        list.split("keys", Part::Attention, kept_keys * element, &[]);
        list.split("values", Part::Attention, kept_values * element, &[]);
        if decoder.query_norm {
            list.split("input of norms of heads", Part::Attention, (queries + keys) * self.norm_input, &[]);
        }
        match layout.attention {
            AttentionKernel::Flash => list.split("sums of exponentials", Part::Attention, decoder.heads * 4, &[]),
            AttentionKernel::Unfused => {
                let scores = decoder.heads * layout.seq_length;
                // Softmax in fp32, and what the second product reads.
                list.split("softmax", Part::Attention, scores * (4 + element), &[Module::CoreAttention]);
            }
        }
        list.split("output of attention", Part::Attention, queries * element, &[]);
        self.adapters(list, &[Target::Output], Part::Attention, &[]);
    }

    fn feed_forward(&self, list: &mut List<'_>) {
        let (decoder, element) = (list.decoder, list.layout.element());
        let inner = decoder.feed_forward * element;
        self.adapters(list, &[Target::Gate, Target::Up], Part::FeedForward, &[Module::Mlp]);
        let kept = self.inputs_of_attention(list.layout);
        if decoder.gated {
            list.split("gate", Part::FeedForward, inner, &[Module::Mlp]);
            if !self.compiled {
                list.split("activation", Part::FeedForward, inner, &[Module::Mlp]);
            }
            list.split("up", Part::FeedForward, inner, &[Module::Mlp]);
        } else {
            list.split("input of the activation", Part::FeedForward, inner, &[Module::Mlp]);
        }
        if kept && !self.compiled {
            list.split("input of the last product", Part::FeedForward, inner, &[Module::Mlp]);
        }
        self.adapters(list, &[Target::Down], Part::FeedForward, &[Module::Mlp]);
    }

    /// What adapters beside these products keep: features after dropout, its mask, and features between their products.
    fn adapters(&self, list: &mut List<'_>, of: &[Target], part: Part, modules: &'static [Module]) {
        let Some(lora) = &list.layout.lora else { return };
        let here: Vec<Target> = lora.here(list.decoder).filter(|target| of.contains(target)).collect();
        if here.is_empty() {
            return;
        }
        let element = list.layout.element();
        let of_dropout = element + u64::from(lora.dropout);
        let inputs: u64 = here.iter().map(|target| target.features(list.decoder).0).sum();
        let inputs = if self.one_adapter { inputs / here.len() as u64 } else { inputs };
        let between = u64::from(lora.rank) * here.len() as u64 * element;
        list.save("inputs of adapters", part, list.layout.tokens() * (inputs * of_dropout + between), modules);
        if self.one_adapter && of.contains(&Target::Query) && here.len() < of.len() {
            // Outputs of adapters are copied to their places among queries, keys and values.
            let outputs: u64 = here.iter().map(|target| target.features(list.decoder).1).sum();
            list.split("outputs of adapters", part, outputs * element, modules);
        }
    }

    /// Gradients of activations, at most, in the backward pass: those of the feed-forward part, of the residual, of a norm's copy.
    pub(super) fn backward(&self, decoder: &Decoder, layout: &Layout) -> u64 {
        let inner = if decoder.gated { 3 } else { 2 } * decoder.feed_forward * layout.element();
        let inside = (layout.tokens() * inner).div_ceil(layout.tensor);
        let whole = layout.whole_tokens() * decoder.hidden * (layout.element() + self.norm_input);
        inside + whole + dequantised(decoder, layout)
    }
}

/// A matrix in the format of products, as one that is quantised becomes where it is read: the largest of a layer.
pub(super) fn dequantised(decoder: &Decoder, layout: &Layout) -> u64 {
    layout.quantize.map_or(0, |_| decoder.hidden * decoder.feed_forward * layout.element())
}

/// What a layer has saved so far.
struct List<'a> {
    decoder: &'a Decoder,
    layout: &'a Layout,
    all: Vec<Saved>,
}

impl List<'_> {
    fn save(&mut self, name: &'static str, part: Part, bytes: u64, of: &'static [Module]) {
        self.all.push(Saved { name, part, bytes, of });
    }

    /// A tensor of that many bytes a token, of which tensor ranks have parts.
    fn split(&mut self, name: &'static str, part: Part, bytes: u64, of: &'static [Module]) {
        self.save(name, part, (self.layout.tokens() * bytes).div_ceil(self.layout.tensor), of);
    }
}
