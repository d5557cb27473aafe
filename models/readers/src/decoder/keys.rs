//! Reads the keys of a decoder: those of a table in a model file, and those behind a model's name.

use std::cell::RefCell;
use std::collections::BTreeMap;

use lockstep_models::{RotaryPairing, RotaryScaling};
use lockstep_topology::document::{Entry, Table, suggestion};
use lockstep_topology::{ErrorPlace, InputError};

use super::{Activation, Decoder, EmbeddingFactor, Norm, Norms, QueryNorm, Windowed};

/// Sets a key of a decoder to a value as text; the error says what it must be.
type Set = fn(&mut Decoder, &str) -> Result<(), String>;

/// The keys, in the order in which they take effect.
const KEYS: &[(&str, Set)] = &[
    ("vocabulary", |of, text| size(&mut of.vocabulary, text)),
    ("positions", |of, text| size(&mut of.positions, text)),
    ("hidden", |of, text| size(&mut of.hidden, text)),
    ("layers", |of, text| size(&mut of.layers, text)),
    ("heads", |of, text| size(&mut of.heads, text)),
    ("key_heads", |of, text| optional(&mut of.key_heads, text)),
    ("head_width", |of, text| optional(&mut of.head_width, text)),
    ("feed_forward", |of, text| optional(&mut of.feed_forward, text)),
    ("norm", |of, text| {
        word(
            &mut of.norm,
            text,
            &[("layer", Norm::Layer), ("rms", Norm::Rms), ("rms-unit-offset", Norm::RmsUnitOffset)],
        )
    }),
    ("epsilon", |of, text| number(&mut of.epsilon, text)),
    ("norms", |of, text| {
        word(&mut of.norms, text, &[("before", Norms::Before), ("after", Norms::After), ("both", Norms::Both)])
    }),
    ("parallel", |of, text| flag(&mut of.parallel, text)),
    ("activation", |of, text| {
        let all = [
            ("gelu", Activation::Gelu),
            ("exact_gelu", Activation::ExactGelu),
            ("silu", Activation::Silu),
            ("relu", Activation::Relu),
        ];
        word(&mut of.activation, text, &all)
    }),
    ("gated", |of, text| flag(&mut of.gated, text)),
    ("learned_positions", |of, text| flag(&mut of.learned_positions, text)),
    ("theta", |of, text| optional(&mut of.theta, text)),
    ("local_theta", |of, text| optional(&mut of.local_theta, text)),
    ("rotary_fraction", |of, text| number(&mut of.rotary_fraction, text)),
    ("pairing", |of, text| {
        let all = [("halves", RotaryPairing::Halves), ("neighbours", RotaryPairing::Neighbours)];
        word(&mut of.pairing, text, &all)
    }),
    ("scaling", |of, text| scaling(&mut of.scaling, text)),
    ("attention_bias", |of, text| flag(&mut of.attention_bias, text)),
    ("output_bias", |of, text| flag(&mut of.output_bias, text)),
    ("feed_forward_bias", |of, text| flag(&mut of.feed_forward_bias, text)),
    ("head_bias", |of, text| flag(&mut of.head_bias, text)),
    ("query_norm", |of, text| {
        let all = [("none", QueryNorm::None), ("heads", QueryNorm::Heads), ("whole", QueryNorm::Whole)];
        word(&mut of.query_norm, text, &all)
    }),
    ("tied", |of, text| flag(&mut of.tied, text)),
    ("window", |of, text| optional(&mut of.window, text)),
    ("windowed", |of, text| windowed(&mut of.windowed, text)),
    ("scale", |of, text| optional(&mut of.scale, text)),
    ("soft_cap", |of, text| optional(&mut of.soft_cap, text)),
    ("final_soft_cap", |of, text| optional(&mut of.final_soft_cap, text)),
    ("embedding_factor", |of, text| embedding_factor(&mut of.embedding_factor, text)),
    ("deviation", |of, text| number(&mut of.deviation, text)),
    ("scaled_residuals", |of, text| flag(&mut of.scaled_residuals, text)),
    ("fused_loss", |of, text| flag(&mut of.fused_loss, text)),
];

fn size(of: &mut u32, text: &str) -> Result<(), String> {
    let read = text.parse().ok().filter(|size| *size > 0);
    *of = read.ok_or_else(|| format!("must be a whole number from 1 to {}", u32::MAX))?;
    Ok(())
}

fn number(of: &mut f32, text: &str) -> Result<(), String> {
    let read = text.parse().ok().filter(|number: &f32| number.is_finite() && *number > 0.0);
    *of = read.ok_or("must be a number above 0")?;
    Ok(())
}

/// A number, or `none`.
fn optional<T: std::str::FromStr + PartialOrd + Default>(of: &mut Option<T>, text: &str) -> Result<(), String> {
    *of = match text {
        "none" => None,
        _ => {
            let read = text.parse().ok().filter(|number: &T| *number > T::default());
            Some(read.ok_or("must be a number above 0, a whole one where it is a size, or none")?)
        }
    };
    Ok(())
}

fn flag(of: &mut bool, text: &str) -> Result<(), String> {
    *of = text.parse().map_err(|_| "must be true or false".to_owned())?;
    Ok(())
}

fn word<T: Copy>(of: &mut T, text: &str, all: &[(&str, T)]) -> Result<(), String> {
    let found = all.iter().find(|(name, _)| *name == text);
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    *of = found.ok_or_else(|| format!("must be one of {}", names()))?.1;
    Ok(())
}

/// `none`, `sqrt-hidden` or a number.
fn embedding_factor(of: &mut EmbeddingFactor, text: &str) -> Result<(), String> {
    *of = match text {
        "none" => EmbeddingFactor::None,
        "sqrt-hidden" => EmbeddingFactor::RootOfHidden,
        _ => {
            let read = text.parse().ok().filter(|factor: &f32| factor.is_finite() && *factor > 0.0);
            EmbeddingFactor::Number(read.ok_or("must be a number above 0, sqrt-hidden or none")?)
        }
    };
    Ok(())
}

/// `all`, `from:8` (from layer 8 on, counted from 0) or `all-but:6` (each sixth has none).
fn windowed(of: &mut Windowed, text: &str) -> Result<(), String> {
    let wrong = "must be all, from:LAYER (counted from 0) or all-but:EVERY";
    *of = match text.split_once(':') {
        None if text == "all" => Windowed::All,
        Some(("from", first)) => Windowed::From(first.parse().map_err(|_| wrong)?),
        Some(("all-but", every)) => Windowed::AllBut(every.parse().ok().filter(|every| *every > 0).ok_or(wrong)?),
        _ => return Err(wrong.to_owned()),
    };
    Ok(())
}

/// `none`, `linear:8`, `llama3:8:1:4:8192` or `yarn:4:32:1:32768`: the factor, two limits, positions of the training.
fn scaling(of: &mut RotaryScaling, text: &str) -> Result<(), String> {
    let wrong = || {
        "must be none, linear:FACTOR, llama3:FACTOR:LOW:HIGH:POSITIONS or yarn:FACTOR:FAST:SLOW:POSITIONS".to_owned()
    };
    let parts = RefCell::new(text.split(':'));
    let next = || parts.borrow_mut().next().ok_or_else(wrong);
    let number = |_: &'static str, _: Option<f32>| {
        let read = next()?.parse().ok().filter(|number: &f32| number.is_finite() && *number > 0.0);
        read.ok_or_else(wrong)
    };
    let positions = |_: &'static str| next()?.parse().ok().filter(|positions| *positions > 0).ok_or_else(wrong);
    let read = RotaryScaling::read(next()?, number, positions)?.ok_or_else(wrong)?;
    match parts.borrow_mut().next() {
        None => *of = read,
        Some(_) => return Err(wrong()),
    }
    Ok(())
}

/// Sets the keys of a decoder that follow the name of a model, `layers=4,heads=8`. Notes say if it has more positions then than
/// its `own`, those that the model's file states.
///
/// # Errors
/// A key that it does not have or that is given two values, or a value that it cannot have.
pub(in super::super) fn override_with(
    of: &mut Decoder,
    settings: &str,
    named: &str,
    own: Option<u32>,
) -> Result<Vec<String>, InputError> {
    let refuse = |message: String| InputError::new("", format!("model \"{named}:{settings}\""), message);
    let mut given = BTreeMap::new();
    for setting in settings.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
        let Some((key, text)) = setting.split_once('=') else {
            return Err(refuse(format!("{setting} has no value: write key=value, e.g. layers=4")));
        };
        let (key, text) = (key.trim(), text.trim());
        let Some((_, set)) = KEYS.iter().find(|(name, _)| *name == key) else {
            let cure = suggestion(key, KEYS.iter().map(|(name, _)| *name));
            return Err(refuse(format!("a decoder has no key \"{key}\": {cure}")));
        };
        if let Some(other) = given.insert(key, text).filter(|other| *other != text) {
            let too = match key {
                "positions" => format!(" ({} states them too)", ErrorPlace::Flag("seq_length")),
                _ => String::new(),
            };
            return Err(refuse(format!("{key} is given two values, {other} and {text}{too}: leave one out")));
        }
        set(of, text).map_err(|wrong| refuse(format!("{key} = {text}: {wrong}")))?;
    }
    let note = |own: u32| format!("{} positions, and {named} states {own}", of.positions);
    Ok(own.filter(|own| of.positions > *own).map(note).into_iter().collect())
}

/// The decoder in a table of a model file.
///
/// # Errors
/// An unknown key, or a value that it cannot have, at its line.
pub(in super::super) fn parse(table: &Table<'_>) -> Result<Decoder, InputError> {
    let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
    table.allow("decoder", &[&names[..], &["like"]].concat())?;
    let like = table.optional("like", Entry::text)?.unwrap_or("gpt");
    let mut decoder = match like {
        "gpt" => Decoder::default(),
        "llama" => Decoder::llama(),
        _ => return Err(table.error_at("like", "must be gpt or llama, which says what is not stated")),
    };
    for (key, set) in KEYS {
        if let Some(entry) = table.get(key) {
            set(&mut decoder, &text_of(&entry)?).map_err(|wrong| entry.error(format!("{key} {wrong}")))?;
        }
    }
    Ok(decoder)
}

/// A value as text: a word, true, false, or a number.
fn text_of(entry: &Entry<'_>) -> Result<String, InputError> {
    match (entry.plain_text(), entry.boolean()) {
        (Some(text), _) => Ok(text.to_owned()),
        (_, Ok(flag)) => Ok(flag.to_string()),
        _ => entry.checked(|number| Ok(number.to_string())),
    }
}
