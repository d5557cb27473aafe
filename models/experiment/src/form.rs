//! `Form`: how a value is written, as the text of a flag and as a value of TOML.

use std::str::FromStr;

use lockstep_topology::{Algorithm, Bytes, InputError};

use super::setting::Style;
use lockstep_topology::document::Entry;

/// How a value is written.
pub struct Form<T> {
    /// From a flag's text.
    pub text: fn(&str) -> Result<T, String>,
    /// From a file.
    pub entry: fn(&Entry<'_>) -> Result<T, InputError>,
    /// How the flag is written.
    pub style: Style,
    /// Whether values may begin with a hyphen, so that an error can say what is wrong with them.
    pub is_number: bool,
}

const fn number<T>(text: fn(&str) -> Result<T, String>, entry: fn(&Entry<'_>) -> Result<T, InputError>) -> Form<T> {
    Form { text, entry, style: Style::One, is_number: true }
}

/// Any text.
pub(super) const TEXT: Form<String> = Form {
    text: |text| Ok(text.to_owned()),
    entry: |entry| entry.text().map(str::to_owned),
    style: Style::One,
    is_number: false,
};
/// From 1 to 2³² − 1.
pub(super) const COUNT: Form<u32> = number(positive, |entry| entry.count());
/// At least 1.
pub(super) const LONG: Form<u64> = number(positive_long, |entry| entry.whole(1..=(1 << 48) - 1));
/// A seed.
pub(super) const SEED: Form<u64> = number(
    |text| text.trim().parse().map_err(|_| "must be a whole number from 0 to 2^64 - 1".to_owned()),
    |entry| entry.whole(0..=(1 << 63) - 1),
);
/// A finite number of at least 0.
pub(super) const NOT_NEGATIVE: Form<f64> = number(not_negative, |entry| entry.number(0.0));
/// A share of samples that a run is to get right.
pub(super) const ACCURACY: Form<f64> = number(|text| accuracy(float(text)), |entry| entry.checked(accuracy));
/// The share of the last step that the next one keeps.
pub(super) const MOMENTUM: Form<f64> = number(|text| momentum(float(text)), |entry| entry.checked(momentum));
/// A share by which throughput is to grow.
pub(super) const THRESHOLD: Form<f64> = number(|text| threshold(float(text)), |entry| entry.checked(threshold));
/// A size of at least one fp32 element.
pub(super) const CHUNK: Form<Bytes> = word_by(parse_chunk, |entry| entry.read(parse_chunk));
/// A chunk, or `auto`.
pub(super) const CHUNK_OR_AUTO: Form<Option<Bytes>> = word_by(chunk_or_auto, |entry| entry.read(chunk_or_auto));
/// An algorithm of a collective.
pub(super) const ALGORITHM: Form<Algorithm> = word_by(algorithm, |entry| entry.read(str::parse));
/// true or false.
pub(super) const CHOICE: Form<bool> = Form {
    text: |text| text.parse().map_err(|_| "must be true or false".to_owned()),
    entry: |entry| entry.boolean(),
    style: Style::Choice,
    is_number: false,
};
/// The same, of which a flag can only say yes.
pub(super) const SWITCH: Form<bool> = Form { style: Style::Switch, ..CHOICE };

const fn word_by<T>(text: fn(&str) -> Result<T, String>, entry: fn(&Entry<'_>) -> Result<T, InputError>) -> Form<T> {
    Form { text, entry, style: Style::One, is_number: false }
}

/// Whatever reads itself from a text.
pub(super) const fn word<T: FromStr<Err = String>>() -> Form<T> {
    word_by(parsed::<T>, |entry| entry.read(str::parse))
}

/// What reads itself from a text, in the form that clap takes.
pub fn parsed<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse()
}

/// A count of at least one.
pub fn positive(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("must be a whole number from 1 to {}", u32::MAX)),
    }
}

fn positive_long(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("must be a whole number of at least 1".to_owned()),
    }
}

/// An algorithm by its name.
pub fn algorithm(text: &str) -> Result<Algorithm, String> {
    text.parse().map_err(|error: InputError| error.message)
}

fn float(text: &str) -> f64 {
    text.trim().parse().unwrap_or(f64::NAN)
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = float(text);
    let right = number >= 0.0 && number.is_finite();
    right.then_some(number).ok_or_else(|| "must be a number of at least 0".to_owned())
}

fn accuracy(share: f64) -> Result<f64, String> {
    let right = share > 0.0 && share <= 1.0;
    right.then_some(share).ok_or_else(|| "must be a number above 0 and at most 1".to_owned())
}

fn momentum(share: f64) -> Result<f64, String> {
    (0.0..1.0).contains(&share).then_some(share).ok_or_else(|| "must be a number from 0 to below 1".to_owned())
}

fn threshold(share: f64) -> Result<f64, String> {
    (0.0..10.0).contains(&share).then_some(share).ok_or_else(|| "must be a number from 0 to below 10".to_owned())
}

/// A size of at least one fp32 element.
///
/// # Errors
/// What is wrong with it.
pub fn parse_chunk(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse()?;
    if bytes.0 < 4 {
        return Err(format!("{text:?}: a chunk has at least one element: 4B or more"));
    }
    Ok(bytes)
}

fn chunk_or_auto(text: &str) -> Result<Option<Bytes>, String> {
    if text == "auto" { Ok(None) } else { parse_chunk(text).map(Some) }
}
