//! The names of tensors in the files of transformers: for each architecture, which of our layers lie in which tensor, and how.

use lockstep_models::Model;

/// How the rows of our layers lie in a tensor, one row for each output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lies {
    /// Layer after layer, row after row.
    Rows,
    /// The same with inputs as rows and outputs as columns (GPT-2).
    Columns,
    /// Head after head, of each the rows of all layers (GPT-NeoX).
    Heads,
    /// A norm's factors, and its shifts where it has some.
    Norm,
}

use Lies::{Columns, Heads, Norm, Rows};

/// A tensor: our layers in it, its name without `.weight` or `.bias`, and how they lie in it. `*` is the number of a layer.
pub(super) type Row = (&'static [&'static str], &'static str, Lies);

/// The names of some architectures.
#[derive(Debug)]
pub(super) struct Names {
    /// Their `model_type`.
    pub(super) architectures: &'static [&'static str],
    /// What names begin with but that of the layer of scores; files of a model without that layer leave it out.
    pub(super) base: &'static str,
    /// The tensors.
    pub(super) rows: &'static [&'static [Row]],
    /// Whether norms have shifts.
    pub(super) shifts: bool,
    /// Another name of the layer of scores.
    pub(super) other_head: Option<&'static str>,
}

const ENDS: &[Row] =
    &[(&["embedding"], "model.embed_tokens", Rows), (&["norm"], "model.norm", Norm), (&[super::HEAD], "lm_head", Rows)];

/// Norms before attention and before the feed-forward part.
const BEFORE: &[Row] = &[
    (&["layers.*.attention_norm"], "model.layers.*.input_layernorm", Norm),
    (&["layers.*.feed_forward_norm"], "model.layers.*.post_attention_layernorm", Norm),
];

/// Norms behind both.
const AFTER: &[Row] = &[
    (&["layers.*.attention_post_norm"], "model.layers.*.post_attention_layernorm", Norm),
    (&["layers.*.feed_forward_post_norm"], "model.layers.*.post_feedforward_layernorm", Norm),
];

/// Before and behind each, as Gemma names them.
const AROUND: &[Row] = &[
    (&["layers.*.attention_norm"], "model.layers.*.input_layernorm", Norm),
    (&["layers.*.attention_post_norm"], "model.layers.*.post_attention_layernorm", Norm),
    (&["layers.*.feed_forward_norm"], "model.layers.*.pre_feedforward_layernorm", Norm),
    (&["layers.*.feed_forward_post_norm"], "model.layers.*.post_feedforward_layernorm", Norm),
];

/// The same as GLM names them.
const AROUND_IN_GLM: &[Row] = &[
    (&["layers.*.attention_norm"], "model.layers.*.input_layernorm", Norm),
    (&["layers.*.attention_post_norm"], "model.layers.*.post_self_attn_layernorm", Norm),
    (&["layers.*.feed_forward_norm"], "model.layers.*.post_attention_layernorm", Norm),
    (&["layers.*.feed_forward_post_norm"], "model.layers.*.post_mlp_layernorm", Norm),
];

const ATTENTION: &[Row] = &[
    (&["layers.*.query"], "model.layers.*.self_attn.q_proj", Rows),
    (&["layers.*.key"], "model.layers.*.self_attn.k_proj", Rows),
    (&["layers.*.value"], "model.layers.*.self_attn.v_proj", Rows),
    (&["layers.*.output"], "model.layers.*.self_attn.o_proj", Rows),
];

/// Queries, keys and values in one tensor.
const FUSED_ATTENTION: &[Row] = &[
    (&["layers.*.query", "layers.*.key", "layers.*.value"], "model.layers.*.self_attn.qkv_proj", Rows),
    (&["layers.*.output"], "model.layers.*.self_attn.o_proj", Rows),
];

const QUERY_NORMS: &[Row] = &[
    (&["layers.*.query_norm"], "model.layers.*.self_attn.q_norm", Norm),
    (&["layers.*.key_norm"], "model.layers.*.self_attn.k_norm", Norm),
];

const GATED: &[Row] = &[
    (&["layers.*.gate"], "model.layers.*.mlp.gate_proj", Rows),
    (&["layers.*.up"], "model.layers.*.mlp.up_proj", Rows),
    (&["layers.*.down"], "model.layers.*.mlp.down_proj", Rows),
];

/// Both products of the gated unit in one tensor.
const FUSED_GATED: &[Row] = &[
    (&["layers.*.gate", "layers.*.up"], "model.layers.*.mlp.gate_up_proj", Rows),
    (&["layers.*.down"], "model.layers.*.mlp.down_proj", Rows),
];

const GPT2: &[Row] = &[
    (&["embedding"], "transformer.wte", Rows),
    (&[super::POSITIONS], "transformer.wpe", Rows),
    (&["norm"], "transformer.ln_f", Norm),
    (&[super::HEAD], "lm_head", Rows),
    (&["layers.*.attention_norm"], "transformer.h.*.ln_1", Norm),
    (&["layers.*.query", "layers.*.key", "layers.*.value"], "transformer.h.*.attn.c_attn", Columns),
    (&["layers.*.output"], "transformer.h.*.attn.c_proj", Columns),
    (&["layers.*.feed_forward_norm"], "transformer.h.*.ln_2", Norm),
    (&["layers.*.up"], "transformer.h.*.mlp.c_fc", Columns),
    (&["layers.*.down"], "transformer.h.*.mlp.c_proj", Columns),
];

const GPT_NEOX: &[Row] = &[
    (&["embedding"], "gpt_neox.embed_in", Rows),
    (&["norm"], "gpt_neox.final_layer_norm", Norm),
    (&[super::HEAD], "embed_out", Rows),
    (&["layers.*.attention_norm"], "gpt_neox.layers.*.input_layernorm", Norm),
    (&["layers.*.query", "layers.*.key", "layers.*.value"], "gpt_neox.layers.*.attention.query_key_value", Heads),
    (&["layers.*.output"], "gpt_neox.layers.*.attention.dense", Rows),
    (&["layers.*.feed_forward_norm"], "gpt_neox.layers.*.post_attention_layernorm", Norm),
    (&["layers.*.up"], "gpt_neox.layers.*.mlp.dense_h_to_4h", Rows),
    (&["layers.*.down"], "gpt_neox.layers.*.mlp.dense_4h_to_h", Rows),
];

/// Names as Llama has them, with the other rows of an architecture.
const fn as_llama(architectures: &'static [&'static str], rows: &'static [&'static [Row]]) -> Names {
    Names { architectures, base: "model.", rows, shifts: false, other_head: None }
}

/// All names. A model whose file states no architecture has the first that fit.
const NAMES: &[Names] = &[
    Names { architectures: &["gpt2"], base: "transformer.", rows: &[GPT2], shifts: true, other_head: None },
    as_llama(&["llama", "mistral", "qwen2", "gemma"], &[ENDS, BEFORE, ATTENTION, GATED]),
    as_llama(&["qwen3"], &[ENDS, BEFORE, ATTENTION, QUERY_NORMS, GATED]),
    as_llama(&["olmo2"], &[ENDS, AFTER, ATTENTION, QUERY_NORMS, GATED]),
    as_llama(&["gemma2"], &[ENDS, AROUND, ATTENTION, GATED]),
    as_llama(&["gemma3_text"], &[ENDS, AROUND, ATTENTION, QUERY_NORMS, GATED]),
    as_llama(&["phi3"], &[ENDS, BEFORE, FUSED_ATTENTION, FUSED_GATED]),
    as_llama(&["glm4"], &[ENDS, AROUND_IN_GLM, ATTENTION, FUSED_GATED]),
    Names {
        architectures: &["gpt_neox"],
        base: "gpt_neox.",
        rows: &[GPT_NEOX],
        shifts: true,
        other_head: Some("lm_head"),
    },
];

/// Ends of the names of tensors that are no weights: masks, and frequencies of rotary positions.
const NO_WEIGHTS: [&str; 5] =
    [".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"];

/// The tensor of a norm's shifts.
pub(super) const SHIFT: &str = "beta";

/// Whether a tensor of this name is no weight, whatever is in it.
pub(super) fn is_no_weight(name: &str) -> bool {
    NO_WEIGHTS.iter().any(|end| name.ends_with(end))
}

impl Names {
    /// Those that a model may have: of its architecture, or any whose norms are its own.
    pub(super) fn of(model: &Model) -> impl Iterator<Item = &'static Names> {
        let shifts = model.layers().iter().flat_map(|node| &node.parameters).any(|of| of.tensor() == SHIFT);
        let architecture = model.architecture();
        NAMES.iter().filter(move |names| match architecture {
            Some(own) => names.architectures.contains(&own),
            None => names.shifts == shifts,
        })
    }

    /// The tensors of a layer's number, or those of no layer.
    pub(super) fn rows(&self, of_layers: bool) -> impl Iterator<Item = &'static Row> {
        let is_of_layer = |row: &Row| row.1.contains('*');
        self.rows.iter().copied().flatten().filter(move |row| is_of_layer(row) == of_layers)
    }
}

#[cfg(test)]
pub(super) fn architectures() -> impl Iterator<Item = &'static str> {
    NAMES.iter().flat_map(|names| names.architectures).copied()
}
