//! The architectures whose `config.json` is read: what each of its keys is in a decoder, and which keys have no effect on it.

use lockstep_models::RotaryPairing;
use lockstep_topology::InputError;

use super::Keys;
use super::gemma::{gemma, gemma2, gemma3};
use super::rotary::{self, Turned};
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

/// A key, and what transformers takes for an absent one.
pub(super) type Needed = (&'static str, &'static str);

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

/// `gelu_new`, `silu`, ….
pub(super) fn activation(of: &Keys<'_>, key: &str, otherwise: Activation) -> Result<Activation, InputError> {
    Ok(match of.word(key)? {
        None => otherwise,
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Activation::Gelu,
        Some("gelu") => Activation::ExactGelu,
        Some("silu" | "swish") => Activation::Silu,
        Some("relu") => Activation::Relu,
        Some(_) => {
            return Err(of.error(key, "must be one of gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, silu, swish, relu"));
        }
    })
}

/// The sizes that Llama and those after it have in common, and `start` for what a file does not state.
fn sizes(of: &Keys<'_>, start: Decoder, turned: Turned) -> Result<Decoder, InputError> {
    of.leave_out_dropout(&["attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop"]);
    Ok(Decoder {
        vocabulary: of.need("vocab_size")?,
        positions: of.need("max_position_embeddings")?,
        hidden: of.need("hidden_size")?,
        layers: of.need("num_hidden_layers")?,
        heads: of.need("num_attention_heads")?,
        feed_forward: Some(of.need("intermediate_size")?),
        deviation: of.number("initializer_range")?.unwrap_or(0.02),
        tied: of.flag("tie_word_embeddings")?.unwrap_or(start.tied),
        theta: turned.theta.or(start.theta),
        local_theta: turned.local_theta,
        rotary_fraction: turned.fraction.unwrap_or(start.rotary_fraction),
        scaling: turned.scaling,
        ..start
    })
}

/// The same with heads of keys, a width of heads and norms by root mean squares.
pub(super) fn alike(of: &Keys<'_>, start: Decoder, turned: Turned) -> Result<Decoder, InputError> {
    Ok(Decoder {
        key_heads: of.size("num_key_value_heads")?,
        head_width: of.size("head_dim")?.or(start.head_width),
        epsilon: of.number_or("rms_norm_eps", start.epsilon)?,
        ..sizes(of, start, turned)?
    })
}

/// The same with `hidden_act`, and rotary positions of whole heads.
fn common(of: &Keys<'_>, start: Decoder) -> Result<Decoder, InputError> {
    Ok(Decoder { activation: activation(of, "hidden_act", start.activation)?, ..alike(of, start, rotary::whole(of)?)? })
}

/// A window, and the layers that `layer_types` gives it to.
pub(super) fn window(of: &Keys<'_>, otherwise: Windowed) -> Result<(Option<u32>, Windowed), InputError> {
    let window = of.size("sliding_window")?;
    let Some(types) = of.words("layer_types")? else { return Ok((window, otherwise)) };
    let known = |kind: &&str| matches!(*kind, "full_attention" | "sliding_attention");
    let layers = of.need("num_hidden_layers")?;
    if types.len() != layers as usize || !types.iter().all(known) {
        let message = format!("must list full_attention and sliding_attention, one for each of {layers} layers");
        return Err(of.error("layer_types", format!("{message}, and lists {}", types.len())));
    }
    Ok((window, Windowed::Listed(types.iter().map(|kind| *kind == "sliding_attention").collect())))
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
