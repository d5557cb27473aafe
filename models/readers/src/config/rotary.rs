//! Rotary positions of a `config.json`: `rope_theta` with `rope_scaling`, or all in `rope_parameters`.

use lockstep_models::RotaryScaling;
use lockstep_topology::InputError;

use super::Keys;

/// How queries and keys are turned; what is `None` is not stated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Turned {
    /// Base of the frequencies.
    pub(super) theta: Option<f32>,
    /// The same of layers with a window.
    pub(super) local_theta: Option<f32>,
    /// Fraction of a head's features that are turned.
    pub(super) fraction: Option<f32>,
    /// How the frequencies are scaled, but not those of layers with a window.
    pub(super) scaling: RotaryScaling,
}

const NOT_STATED: Turned = Turned { theta: None, local_theta: None, fraction: None, scaling: RotaryScaling::None };

/// Of an architecture that turns all features of a head.
pub(super) fn whole(of: &Keys<'_>) -> Result<Turned, InputError> {
    let turned = flat(of)?;
    match turned.fraction {
        Some(fraction) if fraction != 1.0 => {
            let message = "has a partial_rotary_factor, and this architecture turns whole heads: leave that out";
            Err(of.error(stated(of), message))
        }
        _ => Ok(turned),
    }
}

/// Of one that turns a part of each head, at the top level under `key`.
pub(super) fn partial(of: &Keys<'_>, key: &str) -> Result<Turned, InputError> {
    let (turned, fraction) = (flat(of)?, of.number(key)?);
    Ok(Turned { fraction: turned.fraction.or(fraction), ..turned })
}

/// Of one whose layers with a window are turned by another base.
pub(super) fn by_kind(of: &Keys<'_>) -> Result<Turned, InputError> {
    let local_theta = of.number("rope_local_base_freq")?;
    let Some(nested) = of.inner("rope_parameters")? else { return Ok(Turned { local_theta, ..whole(of)? }) };
    one_of_both(of)?;
    let part = |key: &str| nested.inner(key)?.map_or(Ok(NOT_STATED), |inner| parameters(&inner));
    let (full, sliding) = (part("full_attention")?, part("sliding_attention")?);
    nested.all_read("rope_parameters of full_attention and sliding_attention")?;
    let parts = [full, sliding].iter().any(|turned| turned.fraction.is_some_and(|fraction| fraction != 1.0));
    if parts || sliding.scaling != RotaryScaling::None {
        let message = "has a partial_rotary_factor or scaled frequencies of sliding_attention, which are not known";
        return Err(of.error("rope_parameters", format!("{message}: leave them out")));
    }
    let theta = full.theta.or(of.number("rope_theta")?);
    Ok(Turned { theta, local_theta: sliding.theta.or(local_theta), ..full })
}

/// Of all layers alike.
fn flat(of: &Keys<'_>) -> Result<Turned, InputError> {
    one_of_both(of)?;
    let theta = of.number("rope_theta")?;
    let (scaling, newer) = (of.inner("rope_scaling")?, of.inner("rope_parameters")?);
    let turned = newer.or(scaling).map_or(Ok(NOT_STATED), |inner| parameters(&inner))?;
    Ok(Turned { theta: turned.theta.or(theta), ..turned })
}

/// The key that the file has of the two with an object.
fn stated(of: &Keys<'_>) -> &'static str {
    if of.get("rope_parameters").is_some() { "rope_parameters" } else { "rope_scaling" }
}

fn one_of_both(of: &Keys<'_>) -> Result<(), InputError> {
    match of.get("rope_scaling").is_some() && of.get("rope_parameters").is_some() {
        true => Err(of.error("rope_scaling", "is stated beside rope_parameters, which replaces it: leave one out")),
        false => Ok(()),
    }
}

/// The object with a kind of scaling and its numbers.
fn parameters(inner: &Keys<'_>) -> Result<Turned, InputError> {
    let (theta, fraction) = (inner.number("rope_theta")?, inner.number("partial_rotary_factor")?);
    // Newer files say `rope_type`, older ones `type`, some both.
    let (newer, older) = (inner.word("rope_type")?, inner.word("type")?);
    let kind = newer.or(older).unwrap_or("default");
    // Absent numbers of YaRN have the paper's values, those of Llama 3 none.
    let number = |key: &'static str, otherwise: Option<f32>| {
        let otherwise = otherwise.filter(|_| kind == "yarn");
        inner.number(key)?.or(otherwise).ok_or_else(|| inner.missing(key))
    };
    let scaling = match kind {
        "default" => Some(RotaryScaling::None),
        "none" => None,
        _ => RotaryScaling::read(kind, number, |key| inner.need(key))?,
    };
    let Some(scaling) = scaling else {
        let key = if newer.is_some() { "rope_type" } else { "type" };
        let message =
            format!("\"{kind}\" is no scaling of rotary positions that is known: default, linear, llama3 or yarn");
        return Err(inner.error(key, message));
    };
    inner.all_read("a scaling of rotary positions")?;
    Ok(Turned { theta, local_theta: None, fraction, scaling })
}
