//! Reads keys that the files of several architectures share: sizes, activations, windows.

use lockstep_topology::InputError;

use super::Keys;
use super::rotary::{self, Turned};
use crate::decoder::{Activation, Decoder, Windowed};

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
pub(super) fn sizes(of: &Keys<'_>, start: Decoder, turned: Turned) -> Result<Decoder, InputError> {
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
pub(super) fn common(of: &Keys<'_>, start: Decoder) -> Result<Decoder, InputError> {
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
