//! `Form`: parses a value, or each item of a list, from the text of a flag and from a value of TOML.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;

use lockstep_topology::{Algorithm, Bytes, InputError};

use lockstep_topology::document::Entry;

/// How the values of a flag are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One value.
    One,
    /// Values with commas between them.
    List,
    /// The flag may be given several times.
    Repeated,
    /// No value: giving the flag means yes.
    Switch,
    /// `true` or `false` after an equals sign, or nothing, which means `true`.
    Choice,
}

/// How the items of a list are written; one item may expand to several values.
pub trait Items<T: PartialEq + Debug>: Sync {
    /// Whether items may begin with a hyphen, so that an error can say what is wrong with them.
    fn is_number(&self) -> bool;
    /// Reads one item of a flag.
    fn text(&self, text: &str) -> Result<Vec<T>, String>;
    /// Reads one item of a file's list.
    fn entry(&self, entry: &Entry<'_>) -> Result<Vec<T>, InputError>;
    /// Why `key` may not list a value twice.
    fn again(&self, _: &T, key: &str) -> String {
        format!("is given twice in {key}: leave one out")
    }

    /// The values of a flag, without repetitions.
    fn of_texts(&self, texts: &[String]) -> Result<Vec<T>, InputError> {
        let mut all = Distinct::default();
        for text in texts {
            let these = self.text(text).map_err(|wrong| InputError::new("", "", wrong))?;
            these.into_iter().for_each(|value| drop(all.add(value)));
        }
        Ok(all.values)
    }

    /// The values of a list in a file, or of a single value; none twice.
    fn of_entry(&self, entry: &Entry<'_>) -> Result<Vec<T>, InputError> {
        let mut all = Distinct::default();
        for item in entry.items()? {
            for value in self.entry(&item)? {
                if let Some(again) = all.add(value) {
                    return Err(item.error(self.again(&again, entry.key())));
                }
            }
        }
        Ok(all.values)
    }
}

/// Values of which no two are equal, in their order.
struct Distinct<T> {
    values: Vec<T>,
    /// Their positions by their text, which equal values share.
    by_text: BTreeMap<String, Vec<usize>>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Distinct<T> {
        Distinct { values: Vec::new(), by_text: BTreeMap::new() }
    }
}

impl<T: PartialEq + Debug> Distinct<T> {
    /// Adds a value, or returns it where it is there already.
    fn add(&mut self, value: T) -> Option<T> {
        let alike = self.by_text.entry(format!("{value:?}")).or_default();
        if alike.iter().any(|at| self.values[*at] == value) {
            return Some(value);
        }
        alike.push(self.values.len());
        self.values.push(value);
        None
    }
}

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

impl<T: PartialEq + Debug> Items<T> for Form<T> {
    fn is_number(&self) -> bool {
        self.is_number
    }

    fn text(&self, text: &str) -> Result<Vec<T>, String> {
        (self.text)(text).map(|value| vec![value])
    }

    fn entry(&self, entry: &Entry<'_>) -> Result<Vec<T>, InputError> {
        (self.entry)(entry).map(|value| vec![value])
    }
}

const fn number<T>(text: fn(&str) -> Result<T, String>, entry: fn(&Entry<'_>) -> Result<T, InputError>) -> Form<T> {
    Form { text, entry, style: Style::One, is_number: true }
}

/// Any text.
pub const TEXT: Form<String> = Form {
    text: |text| Ok(text.to_owned()),
    entry: |entry| entry.text().map(str::to_owned),
    style: Style::One,
    is_number: false,
};
/// From 1 to 2³² − 1.
pub const COUNT: Form<u32> = number(positive, |entry| entry.count());
/// At least 1.
pub const LONG: Form<u64> = number(positive_long, |entry| entry.whole(1..=(1 << 48) - 1));
/// A seed.
pub const SEED: Form<u64> = number(
    |text| text.trim().parse().map_err(|_| "must be a whole number from 0 to 2^64 - 1".to_owned()),
    |entry| entry.whole(0..=(1 << 63) - 1),
);
/// A finite number of at least 0.
pub const NOT_NEGATIVE: Form<f64> = number(not_negative, |entry| entry.number(0.0));
/// A finite number above 0.
pub(crate) const POSITIVE: Form<f64> = number(|text| above_zero(float(text)), |entry| entry.checked(above_zero));
/// A share of samples that a run is to classify correctly.
pub const ACCURACY: Form<f64> = number(|text| accuracy(float(text)), |entry| entry.checked(accuracy));
/// Prices, with commas between them, or a list in a file; equal ones count each.
pub(crate) const PRICES: Form<Vec<f64>> = Form { text: prices, entry: prices_of, style: Style::One, is_number: true };
/// The share of the last step that the next one keeps.
pub const MOMENTUM: Form<f64> = number(|text| momentum(float(text)), |entry| entry.checked(momentum));
/// A share by which throughput is to grow.
pub const THRESHOLD: Form<f64> = number(|text| threshold(float(text)), |entry| entry.checked(threshold));
/// A size of at least one fp32 element.
pub const CHUNK: Form<Bytes> = word_by(parse_chunk, |entry| entry.read(parse_chunk));
/// A chunk, or `auto`.
pub const CHUNK_OR_AUTO: Form<Option<Bytes>> = word_by(chunk_or_auto, |entry| entry.read(chunk_or_auto));
/// An algorithm of a collective.
pub const ALGORITHM: Form<Algorithm> = word_by(algorithm, |entry| entry.read(str::parse));
/// The same, or the default of learners.
pub const ALGORITHM_OR_DEFAULT: Form<Option<Algorithm>> =
    word_by(|text| algorithm(text).map(Some), |entry| entry.read(str::parse).map(Some));
/// true or false.
pub const CHOICE: Form<bool> = Form {
    text: |text| text.parse().map_err(|_| "must be true or false".to_owned()),
    entry: |entry| entry.boolean(),
    style: Style::Choice,
    is_number: false,
};
/// The same, but the flag can only set it to true.
pub const SWITCH: Form<bool> = Form { style: Style::Switch, ..CHOICE };

const fn word_by<T>(text: fn(&str) -> Result<T, String>, entry: fn(&Entry<'_>) -> Result<T, InputError>) -> Form<T> {
    Form { text, entry, style: Style::One, is_number: false }
}

/// Any type that parses a text.
pub const fn word<T: FromStr<Err = String>>() -> Form<T> {
    word_by(parsed::<T>, |entry| entry.read(str::parse))
}

/// A value that is parsed from a text, as a function that clap takes.
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

fn price(number: f64) -> Result<f64, String> {
    let right = number > 0.0 && number.is_finite();
    right.then_some(number).ok_or_else(|| "must be a number above 0, without a currency's sign, e.g. 2.50".to_owned())
}

fn prices(text: &str) -> Result<Vec<f64>, String> {
    text.split(',').map(|item| price(float(item))).collect()
}

fn prices_of(entry: &Entry<'_>) -> Result<Vec<f64>, InputError> {
    entry.items()?.iter().map(|item| item.checked(price)).collect()
}

fn momentum(share: f64) -> Result<f64, String> {
    (0.0..1.0).contains(&share).then_some(share).ok_or_else(|| "must be a number from 0 to below 1".to_owned())
}

fn above_zero(number: f64) -> Result<f64, String> {
    let fits = number > 0.0 && number.is_finite();
    fits.then_some(number).ok_or_else(|| "must be a number above 0".to_owned())
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

/// Most characters of an experiment's name.
const LONGEST_NAME: usize = 100;

/// The name of an experiment: files are named after it, so it must be one component of a path.
pub fn name(entry: &Entry<'_>) -> Result<String, InputError> {
    let Some(name) = entry.plain_text() else { return Err(entry.error("name must be a text in quotes")) };
    let length = name.chars().count();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let wrong = match name {
        "" => "is empty".to_owned(),
        "." | ".." => "is not a name that a file can have".to_owned(),
        _ if length > LONGEST_NAME => format!("has {length} characters"),
        _ => match name.chars().find(|c| !allowed(*c)) {
            None => return Ok(name.to_owned()),
            Some(other) => format!("has the character {other:?} in it"),
        },
    };
    Err(entry.error(format!(
        "{wrong}: files are named after it, so use 1 to {LONGEST_NAME} letters (a to z), digits, -, _ and ."
    )))
}
