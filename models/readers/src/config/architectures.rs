//! The architectures whose `config.json` is read: what each of its keys is in a decoder, and which keys have no effect on it.

use lockstep_models::{RotaryPairing, RotaryScaling};
use lockstep_topology::InputError;

use super::Keys;
use crate::decoder::{Activation, Decoder, Norm, Norms, QueryNorm, Windowed};

/// An architecture of transformers.
pub(super) struct Architecture {
    /// Its `model_type`.
    pub(super) name: &'static str,
    /// Its decoder.
    pub(super) read: fn(&Keys<'_>) -> Result<Decoder, InputError>,
    /// Keys without effect on layers and sizes.
    pub(super) without_effect: &'static [&'static str],
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
    Architecture { name: "llama", read: llama, without_effect: &[] },
    Architecture { name: "mistral", read: mistral, without_effect: &[] },
    Architecture { name: "qwen2", read: qwen2, without_effect: &[] },
    Architecture { name: "qwen3", read: qwen3, without_effect: &[] },
    Architecture { name: "gemma", read: gemma, without_effect: &[] },
    Architecture { name: "gemma2", read: gemma2, without_effect: &[] },
    Architecture { name: "gemma3_text", read: gemma3, without_effect: &["use_bidirectional_attention"] },
    Architecture { name: "phi3", read: phi3, without_effect: &[] },
    Architecture { name: "glm4", read: glm4, without_effect: &[] },
    Architecture { name: "olmo2", read: olmo2, without_effect: &[] },
    Architecture { name: "gpt_neox", read: gpt_neox, without_effect: &["is_decoder"] },
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
fn activation(of: &Keys<'_>, key: &str, otherwise: Activation) -> Result<Activation, InputError> {
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

/// The sizes, the epsilon and the rotary positions that Llama's descendants have in common.
fn common(of: &Keys<'_>, start: Decoder) -> Result<Decoder, InputError> {
    of.leave_out_dropout(&["attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop"]);
    let (theta, scaling) = rotary(of)?;
    Ok(Decoder {
        vocabulary: of.need("vocab_size")?,
        positions: of.need("max_position_embeddings")?,
        hidden: of.need("hidden_size")?,
        layers: of.need("num_hidden_layers")?,
        heads: of.need("num_attention_heads")?,
        key_heads: of.size("num_key_value_heads")?.or(start.key_heads),
        head_width: of.size("head_dim")?.or(start.head_width),
        feed_forward: Some(of.need("intermediate_size")?),
        activation: activation(of, "hidden_act", start.activation)?,
        epsilon: of.number("rms_norm_eps")?.unwrap_or(start.epsilon),
        deviation: of.number("initializer_range")?.unwrap_or(0.02),
        tied: of.flag("tie_word_embeddings")?.unwrap_or(start.tied),
        theta: Some(theta.or(start.theta).unwrap_or(10_000.0)),
        scaling,
        ..start
    })
}

/// Base and scaling of rotary positions: `rope_theta` and `rope_scaling`, or both in `rope_parameters`.
fn rotary(of: &Keys<'_>) -> Result<(Option<f32>, RotaryScaling), InputError> {
    let mut theta = of.number("rope_theta")?;
    let (scaling, parameters) = (of.inner("rope_scaling")?, of.inner("rope_parameters")?);
    let Some(inner) = parameters.or(scaling) else { return Ok((theta, RotaryScaling::None)) };
    theta = inner.number("rope_theta")?.or(theta);
    // Newer files say `rope_type`, older ones `type`, some both.
    let older = inner.word("type")?;
    let kind = inner.word("rope_type")?.or(older).unwrap_or("default");
    let need = |key: &str| inner.number(key)?.ok_or_else(|| inner.missing(key));
    let original = || {
        let key = "original_max_position_embeddings";
        inner.size(key)?.ok_or_else(|| inner.missing(key))
    };
    let scaling = match kind {
        "default" => RotaryScaling::None,
        "linear" => RotaryScaling::Linear { factor: need("factor")? },
        "llama3" => RotaryScaling::Llama3 {
            factor: need("factor")?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_max_position_embeddings: original()?,
        },
        "yarn" => RotaryScaling::Yarn {
            factor: need("factor")?,
            beta_fast: inner.number("beta_fast")?.unwrap_or(32.0),
            beta_slow: inner.number("beta_slow")?.unwrap_or(1.0),
            original_max_position_embeddings: original()?,
        },
        _ => {
            let message =
                format!("\"{kind}\" is no scaling of rotary positions that is known: default, linear, llama3 or yarn");
            return Err(
                of.error(if of.get("rope_parameters").is_some() { "rope_parameters" } else { "rope_scaling" }, message)
            );
        }
    };
    inner.all_read("a scaling of rotary positions")?;
    Ok((theta, scaling))
}

/// A window, and the layers that `layer_types` gives it to.
fn window(of: &Keys<'_>, otherwise: Windowed) -> Result<(Option<u32>, Windowed), InputError> {
    let window = of.size("sliding_window")?;
    let Some(types) = of.words("layer_types")? else { return Ok((window, otherwise)) };
    let known = |kind: &&str| matches!(*kind, "full_attention" | "sliding_attention");
    if types.is_empty() || !types.iter().all(known) {
        return Err(of.error("layer_types", "must list full_attention and sliding_attention, one for each layer"));
    }
    Ok((window, Windowed::Listed(types.iter().map(|kind| *kind == "sliding_attention").collect())))
}

fn llama(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let feed_forward_bias = of.flag("mlp_bias")?.unwrap_or(false);
    Ok(Decoder { attention_bias: bias, output_bias: bias, feed_forward_bias, ..common(of, Decoder::llama())? })
}

fn mistral(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let (window, windowed) = window(of, Windowed::All)?;
    Ok(Decoder { window, windowed, ..common(of, Decoder::llama())? })
}

/// Only with `use_sliding_window`, layers from `max_window_layers` on have a window.
fn qwen2(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let (found, windowed) = window(of, Windowed::From(of.size("max_window_layers")?.unwrap_or(28)))?;
    let window = found.filter(|_| of.flag("use_sliding_window").ok().flatten() == Some(true));
    of.flag("use_sliding_window")?;
    of.only("use_mrope", false)?;
    Ok(Decoder { attention_bias: true, window, windowed, ..common(of, Decoder::llama())? })
}

fn qwen3(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let decoder = qwen2(of)?;
    let head_width = decoder.head_width.or(Some(128));
    Ok(Decoder { attention_bias: bias, output_bias: bias, query_norm: QueryNorm::Heads, head_width, ..decoder })
}

fn gemma(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let start = Decoder {
        norm: Norm::RmsUnitOffset,
        activation: Activation::Gelu,
        tied: true,
        head_width: Some(256),
        epsilon: 1e-6,
        ..Decoder::llama()
    };
    let decoder = common(of, start)?;
    // Files say "gelu" for what has been computed by the hyperbolic tangent since.
    let activation = activation(of, "hidden_activation", Activation::Gelu)?;
    let embedding_factor = Some((decoder.hidden as f32).sqrt());
    Ok(Decoder { activation, attention_bias: bias, output_bias: bias, embedding_factor, ..decoder })
}

fn gemma2(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let (window, windowed) = window(of, Windowed::AllBut(2))?;
    let scale = of.number("query_pre_attn_scalar")?.map(|scalar| 1.0 / scalar.sqrt());
    Ok(Decoder {
        norms: Norms::Both,
        window,
        windowed,
        scale,
        soft_cap: of.number("attn_logit_softcapping")?,
        final_soft_cap: of.number("final_logit_softcapping")?,
        ..gemma(of)?
    })
}

/// Each sixth layer has no window, and queries and keys are normalised.
fn gemma3(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let every = of.size("sliding_window_pattern")?.unwrap_or(6);
    let local_theta = of.number("rope_local_base_freq")?.or(Some(10_000.0));
    let decoder = gemma2(of)?;
    let windowed = match decoder.windowed {
        Windowed::Listed(list) => Windowed::Listed(list),
        _ => Windowed::AllBut(every),
    };
    let theta = if of.get("rope_theta").is_some() { decoder.theta } else { Some(1_000_000.0) };
    Ok(Decoder { query_norm: QueryNorm::Heads, local_theta, theta, windowed, ..decoder })
}

fn phi3(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let (window, windowed) = window(of, Windowed::All)?;
    of.size("original_max_position_embeddings")?;
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let rotary_fraction = of.number("partial_rotary_factor")?.unwrap_or(1.0);
    let decoder = common(of, Decoder::llama())?;
    Ok(Decoder { window, windowed, rotary_fraction, attention_bias: bias, ..decoder })
}

fn glm4(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let rotary_fraction = of.number("partial_rotary_factor")?.unwrap_or(0.5);
    let attention_bias = of.flag("attention_bias")?.unwrap_or(false);
    let pairing = RotaryPairing::Neighbours;
    let decoder = common(of, Decoder { head_width: Some(128), ..Decoder::llama() })?;
    Ok(Decoder { norms: Norms::Both, rotary_fraction, pairing, attention_bias, ..decoder })
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
    let theta = of.number("rotary_emb_base")?.or(Some(10_000.0));
    let rotary_fraction = of.number("rotary_pct")?.unwrap_or(0.25);
    let bias = of.flag("attention_bias")?.unwrap_or(true);
    let start = Decoder { norm: Norm::Layer, activation: Activation::ExactGelu, gated: false, ..Decoder::llama() };
    Ok(Decoder {
        epsilon: of.number("layer_norm_eps")?.unwrap_or(1e-5),
        parallel: of.flag("use_parallel_residual")?.unwrap_or(true),
        theta,
        rotary_fraction,
        attention_bias: bias,
        output_bias: bias,
        feed_forward_bias: true,
        ..common(of, start)?
    })
}
