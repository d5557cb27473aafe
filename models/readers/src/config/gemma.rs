//! The architectures of Gemma: embeddings times √hidden, norms with a factor of 1 + w, heads of 256 features.

use lockstep_topology::InputError;

use super::Keys;
use super::rotary::{self, Turned};
use super::shared_keys::{activation, alike, window};
use crate::decoder::{Activation, Decoder, EmbeddingFactor, Norm, Norms, QueryNorm, Windowed};

/// The first: its files say `gelu` for what has been computed by the hyperbolic tangent since.
pub(super) fn gemma(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let read = |key: &str| match of.word(key)? {
        None => Ok(None),
        Some("gelu") => Ok(Some(Activation::Gelu)),
        Some(_) => activation(of, key, Activation::Gelu).map(Some),
    };
    let (older, newer) = (read("hidden_act")?, read("hidden_activation")?);
    if older.is_some() && newer.is_some() && older != newer {
        return Err(of.error("hidden_activation", "is another function than hidden_act: leave one out"));
    }
    let activation = newer.or(older).unwrap_or(Activation::Gelu);
    Ok(Decoder { activation, ..family(of, rotary::whole(of)?)? })
}

/// What all have in common.
fn family(of: &Keys<'_>, turned: Turned) -> Result<Decoder, InputError> {
    of.only("use_bidirectional_attention", false)?;
    let bias = of.flag("attention_bias")?.unwrap_or(false);
    let start = Decoder {
        norm: Norm::RmsUnitOffset,
        tied: true,
        head_width: Some(256),
        epsilon: 1e-6,
        embedding_factor: EmbeddingFactor::RootOfHidden,
        ..Decoder::llama()
    };
    Ok(Decoder { attention_bias: bias, output_bias: bias, ..alike(of, start, turned)? })
}

pub(super) fn gemma2(of: &Keys<'_>) -> Result<Decoder, InputError> {
    second(of, Windowed::AllBut(2), rotary::whole(of)?)
}

/// The second and the third, with layers `windowed` where the file lists none.
fn second(of: &Keys<'_>, windowed: Windowed, turned: Turned) -> Result<Decoder, InputError> {
    // `hidden_act` has no effect on these.
    of.ignore(&["hidden_act"]);
    let (window, windowed) = window(of, windowed)?;
    let windowed = if window.is_some() { windowed } else { Windowed::All };
    Ok(Decoder {
        norms: Norms::Both,
        activation: activation(of, "hidden_activation", Activation::Gelu)?,
        window,
        windowed,
        scale: Some(1.0 / of.need_number("query_pre_attn_scalar")?.sqrt()),
        soft_cap: of.number("attn_logit_softcapping")?,
        final_soft_cap: of.number("final_logit_softcapping")?,
        ..family(of, turned)?
    })
}

/// Each sixth layer has no window and another base of rotary positions, and queries and keys are normalised.
pub(super) fn gemma3(of: &Keys<'_>) -> Result<Decoder, InputError> {
    let (older, newer) = (of.size("sliding_window_pattern")?, of.size("_sliding_window_pattern")?);
    let every = older.or(newer).unwrap_or(6);
    let turned = rotary::by_kind(of)?;
    let (theta, local_theta) = (turned.theta.or(Some(1_000_000.0)), turned.local_theta.or(Some(10_000.0)));
    let turned = Turned { theta, local_theta, ..turned };
    if of.size("sliding_window")?.is_none() {
        let message = "must be a size: layers that are listed or counted as sliding_attention turn by another base";
        return Err(of.error("sliding_window", message));
    }
    Ok(Decoder { query_norm: QueryNorm::Heads, ..second(of, Windowed::AllBut(every), turned)? })
}
