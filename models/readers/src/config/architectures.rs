//! The architectures whose `config.json` is read: what each of its keys is in a decoder, and which keys have no effect on it.

use lockstep_models::RotaryPairing;
use lockstep_topology::InputError;

use super::Keys;
use super::gemma::{gemma, gemma2, gemma3};
use super::keys::Needed;
use super::rotary::{self, Turned};
use super::shared_keys::{activation, alike, common, sizes, window};
use crate::decoder::{Activation, Decoder, Norm, Norms, QueryNorm, Windowed};

/// An architecture of transformers.
pub(super) struct Architecture {
    /// Its `model_type`.
    pub(super) name: &'static str,
    /// Its decoder.
    pub(super) read: fn(&Keys<'_>) -> Result<Decoder, InputError>,
    /// Keys that must be stated, since an absent one has a value in transformers that does not follow from the other keys.
    pub(super) needed: &'static [Needed],
    /// Keys without effect on layers and sizes.
    pub(super) without_effect: &'static [&'static str],
}

/// As of Llama and others; those without it have the 1e-5 of [`Decoder::llama`], or one of their own.
const EPSILON: Needed = ("rms_norm_eps", "1e-6");
const WINDOW: Needed = ("sliding_window", "4096");
const SCALE: Needed = ("query_pre_attn_scalar", "256");

/// Heads of keys and values.
const fn key_heads(otherwise: &'static str) -> Needed {
    ("num_key_value_heads", otherwise)
}

/// Keys of every architecture without effect on layers and sizes: names, tokens with a meaning, how files are stored and run.
pub(super) const WITHOUT_EFFECT: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

/// Those that are read.
pub(super) const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "gpt2",
        read: gpt2,
        needed: &[],
        without_effect: &[
            "n_ctx",
            "reorder_and_upcast_attn",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        ],
    },
    Architecture { name: "llama", read: llama, needed: &[EPSILON], without_effect: &[] },
    Architecture { name: "mistral", read: mistral, needed: &[key_heads("8"), WINDOW, EPSILON], without_effect: &[] },
    Architecture { name: "qwen2", read: qwen2, needed: &[key_heads("32"), EPSILON], without_effect: &[] },
    Architecture { name: "qwen3", read: qwen3, needed: &[key_heads("32"), EPSILON], without_effect: &[] },
    Architecture { name: "gemma", read: gemma, needed: &[key_heads("16")], without_effect: &[] },
    Architecture {
        name: "gemma2",
        read: gemma2,
        needed: &[key_heads("4"), WINDOW, SCALE, ("attn_logit_softcapping", "50"), ("final_logit_softcapping", "30")],
        without_effect: &[],
    },
    Architecture { name: "gemma3_text", read: gemma3, needed: &[key_heads("4"), WINDOW, SCALE], without_effect: &[] },
    Architecture { name: "phi3", read: phi3, needed: &[], without_effect: &[] },
    Architecture {
        name: "glm4",
        read: glm4,
        needed: &[key_heads("2"), ("rms_norm_eps", "1.5625e-7")],
        without_effect: &[],
    },
    Architecture { name: "olmo2", read: olmo2, needed: &[], without_effect: &[] },
    Architecture { name: "gpt_neox", read: gpt_neox, needed: &[], without_effect: &["is_decoder"] },
];

/// `n_positions`, `n_embd`, … (Radford et al. 2019).
fn gpt2(of: &Keys<'_>) -> Result<Decoder, InputError> {
    of.only("scale_attn_weights", true)?;
    of.only("scale_attn_by_inverse_layer_idx", false)?;
    of.only("add_cross_attention", false)?;
    of.leave_out_dropout(&["attn_pdrop", "embd_pdrop", "resid_pdrop"]);
    Ok(Decoder {
        vocabulary: of.need("vocab_size")?,
        positions: of.need("n_positions")?,
        hidden: of.need("n_embd")?,
        layers: of.need("n_layer")?,
        heads: of.need("n_head")?,
        feed_forward: of.size("n_inner")?,
        activation: activation(of, "activation_function", Activation::Gelu)?,
        epsilon: of.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        deviation: of.number("initializer_range")?.unwrap_or(0.02),
        tied: of.flag("tie_word_embeddings")?.unwrap_or(true),
        ..Decoder::default()
    })
}

fn llama(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let feed_forward_bias = of.flag("mlp_bias")?.unwrap_or(false);
    Ok(Decoder { attention_bias: bias, output_bias: bias, feed_forward_bias, ..common(of, Decoder::llama())? })
}

/// All layers have the window: these have no `layer_types`.
fn mistral(of: &Keys<'_>) -> Result<Decoder, InputError> {
    Ok(Decoder { window: of.size("sliding_window")?, ..common(of, Decoder::llama())? })
}

/// Only with `use_sliding_window`, layers from `max_window_layers` on have a window.
fn qwen2(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let has_window = of.flag("use_sliding_window")?.unwrap_or(false);
    if has_window {
        of.stated(WINDOW)?;
    }
    let (found, listed) = window(of, Windowed::From(of.count("max_window_layers")?.unwrap_or(28)))?;
    let window = found.filter(|_| has_window);
    let windowed = if window.is_some() { listed } else { Windowed::All };
    of.only("use_mrope", false)?;
    Ok(Decoder { attention_bias: true, window, windowed, ..common(of, Decoder::llama())? })
}

fn qwen3(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let decoder = qwen2(of)?;
    let head_width = decoder.head_width.or(Some(128));
    Ok(Decoder { attention_bias: bias, output_bias: bias, query_norm: QueryNorm::Heads, head_width, ..decoder })
}

fn phi3(of: &Keys<'_>) -> Result<Decoder, InputError> {
    of.size("original_max_position_embeddings")?;
    of.only("attention_bias", false)?;
    let activation = activation(of, "hidden_act", Activation::Silu)?;
    let decoder = alike(of, Decoder::llama(), rotary::partial(of, "partial_rotary_factor")?)?;
    Ok(Decoder { window: of.size("sliding_window")?, activation, ..decoder })
}

/// The product behind attention has no bias.
fn glm4(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let start = Decoder {
        norms: Norms::Both,
        head_width: Some(128),
        rotary_fraction: 0.5,
        pairing: RotaryPairing::Neighbours,
        ..Decoder::llama()
    };
    Ok(Decoder {
        activation: activation(of, "hidden_act", Activation::Silu)?,
        attention_bias: of.flag("attention_bias")?.unwrap_or(true),
        ..alike(of, start, rotary::partial(of, "partial_rotary_factor")?)?
    })
}

fn olmo2(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let decoder = common(of, Decoder::llama())?;
    Ok(Decoder {
        norms: Norms::After,
        query_norm: QueryNorm::Whole,
        attention_bias: bias,
        output_bias: bias,
        ..decoder
    })
}

/// `rotary_pct` of each head is turned; both parts of a layer read one input (Black et al. 2022, §2.1).
fn gpt_neox(of: &Keys<'_>) -> Result<Decoder, InputError> {
    of.leave_out_dropout(&["classifier_dropout"]);
    let (turned, base) = (rotary::partial(of, "rotary_pct")?, of.number("rotary_emb_base")?);
    let turned = Turned { theta: turned.theta.or(base), ..turned };
    let bias = of.flag("attention_bias")?.unwrap_or(true);
    let start = Decoder { norm: Norm::Layer, gated: false, rotary_fraction: 0.25, ..Decoder::llama() };
    Ok(Decoder {
        activation: activation(of, "hidden_act", Activation::ExactGelu)?,
        epsilon: of.number_or("layer_norm_eps", start.epsilon)?,
        parallel: of.flag("use_parallel_residual")?.unwrap_or(true),
        attention_bias: bias,
        output_bias: bias,
        feed_forward_bias: true,
        ..sizes(of, start, turned)?
    })
}
