//! Defines rotary positions (Su et al. 2021): pairs of features of each head are turned by angles that grow with the position.

use std::cell::RefCell;
use std::f64::consts::PI;

use lockstep_topology::InputError;

use super::*;

/// Turns the first features of each head, pair by pair: pair `j` of position `p` by the angle `p · f(j)`, with the frequencies
/// `f(j) = theta^(−2j/d)` of the `d` features that are turned, scaled for longer sequences than those of the training.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Heads, one after the other among the features.
    pub heads: u32,
    /// Base of the frequencies.
    pub theta: f32,
    /// Fraction of a head's features that are turned; the others stay.
    pub fraction: f32,
    /// Which features are a pair.
    pub pairing: RotaryPairing,
    /// How the frequencies are scaled.
    pub scaling: RotaryScaling,
}

/// Which two of the features that are turned are a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryPairing {
    /// One of the first half and that of the second half (GPT-NeoX, Llama as Hugging Face has it).
    Halves,
    /// Two neighbours (GPT-J, GLM).
    Neighbours,
}

/// How frequencies are scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RotaryScaling {
    /// Not at all.
    None,
    /// All are divided by the factor (Chen et al. 2023).
    Linear {
        /// How much longer sequences are than those of the training.
        factor: f32,
    },
    /// Those of long waves are divided by the factor, those of short waves stay, the others lie between (Llama 3.1).
    Llama3 {
        /// Divides frequencies of long waves.
        factor: f32,
        /// Waves of which fewer fit into the original positions are long.
        low_freq_factor: f32,
        /// Waves of which more fit into the original positions are short.
        high_freq_factor: f32,
        /// Positions of the training.
        original_max_position_embeddings: u32,
    },
    /// The same by a ramp over the pairs, and values grow with the logarithm of the factor (Peng et al. 2023).
    Yarn {
        /// Divides frequencies of long waves.
        factor: f32,
        /// Pairs that turn more often over the original positions stay.
        beta_fast: f32,
        /// Pairs that turn less often over the original positions are divided.
        beta_slow: f32,
        /// Positions of the training.
        original_max_position_embeddings: u32,
    },
}

pub(super) const KIND: LayerKind = LayerKind {
    counts_places: true,
    keys: &[
        "heads",
        "theta",
        "fraction",
        "pairing",
        "scaling",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "original_max_position_embeddings",
    ],
    overwrites: 1,
    flops: [3.0, 3.0, 0.0],
    ..LayerKind::new("rotary", |of| {
        Ok(Layer::Rotary(Rotary {
            heads: of.size("heads")?.ok_or_else(|| of.missing("heads", "the heads of its input, e.g. heads = 12"))?,
            theta: of.number("theta")?.unwrap_or(10_000.0),
            fraction: of.number("fraction")?.unwrap_or(1.0),
            pairing: match of.word("pairing")? {
                None | Some("halves") => RotaryPairing::Halves,
                Some("neighbours") => RotaryPairing::Neighbours,
                Some(_) => return Err(of.refuse("pairing", "is none of halves, neighbours")),
            },
            scaling: scaling(of)?,
        }))
    })
};

/// Keys of scalings with numbers, and that with positions of the training.
const NUMBERS: [&str; 5] = ["factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"];
const ORIGINAL: &str = "original_max_position_embeddings";

/// The scaling of a file; a key that the scaling does not have is refused.
fn scaling(of: &dyn Attributes) -> Result<RotaryScaling, InputError> {
    let (name, read) = (of.word("scaling")?.unwrap_or("none"), RefCell::new(Vec::new()));
    let number = |key: &'static str, otherwise: Option<f32>| {
        read.borrow_mut().push(key);
        let missing = || of.missing(key, "how much longer sequences become, e.g. factor = 8.0");
        of.number(key)?.or(otherwise).ok_or_else(missing)
    };
    let positions = |key: &'static str| {
        read.borrow_mut().push(key);
        of.size(key)?.ok_or_else(|| of.missing(key, "positions of the training, e.g. 8192"))
    };
    let Some(scaling) = RotaryScaling::read(name, number, positions)? else {
        return Err(of.refuse("scaling", &format!("is none of {}", RotaryScaling::NAMES.join(", "))));
    };
    for key in NUMBERS.iter().chain([&ORIGINAL]).filter(|key| !read.borrow().contains(key)) {
        let stated = if *key == ORIGINAL { of.size(key)?.is_some() } else { of.number(key)?.is_some() };
        if stated {
            return Err(of.refuse(key, &format!("is no key of scaling = \"{name}\": leave it out")));
        }
    }
    Ok(scaling)
}

impl Rotary {
    /// Features of a head of `width` that are turned: an even number.
    pub fn turned(&self, width: u32) -> u32 {
        (f64::from(width) * f64::from(self.fraction)) as u32
    }

    /// The angle by which each pair turns from a position to the next, in radians, for heads of `width` features.
    ///
    /// ```
    /// # use lockstep_models::layer::{Rotary, RotaryPairing, RotaryScaling};
    /// let (pairing, scaling) = (RotaryPairing::Halves, RotaryScaling::Linear { factor: 2.0 });
    /// let rotary = Rotary { heads: 1, theta: 10_000.0, fraction: 1.0, pairing, scaling };
    /// assert_eq!(rotary.frequencies(4), [0.5, 0.005]); // 10000^(0/4) / 2, 10000^(−2/4) / 2
    /// ```
    pub fn frequencies(&self, width: u32) -> Vec<f64> {
        let (turned, theta) = (f64::from(self.turned(width)), f64::from(self.theta));
        (0..self.turned(width) / 2)
            .map(|pair| {
                let plain = libm::pow(theta, -2.0 * f64::from(pair) / turned);
                self.scaling.scaled(plain, f64::from(pair), turned, theta)
            })
            .collect()
    }

    /// What sines and cosines are multiplied by.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RotaryScaling::Yarn { factor, .. } if factor > 1.0 => 0.1 * libm::log(f64::from(factor)) + 1.0,
            _ => 1.0,
        }
    }
}

impl RotaryScaling {
    /// Names of all scalings.
    pub const NAMES: [&str; 4] = ["none", "linear", "llama3", "yarn"];

    /// The scaling of that name, or `None` if there is none of that name. Files and texts give its numbers by `number`, called with
    /// the key of each and what an absent one is, and by `positions` those of the training, each in the order of a text's parts.
    ///
    /// # Errors
    /// Whatever these return.
    ///
    /// ```
    /// # use lockstep_models::RotaryScaling;
    /// let read = RotaryScaling::read("linear", |key, _| if key == "factor" { Ok(8.0) } else { Err(key) }, Err);
    /// assert_eq!(read, Ok(Some(RotaryScaling::Linear { factor: 8.0 })));
    /// ```
    pub fn read<E>(
        name: &str,
        mut number: impl FnMut(&'static str, Option<f32>) -> Result<f32, E>,
        mut positions: impl FnMut(&'static str) -> Result<u32, E>,
    ) -> Result<Option<RotaryScaling>, E> {
        Ok(Some(match name {
            "none" => RotaryScaling::None,
            "linear" => RotaryScaling::Linear { factor: number("factor", None)? },
            "llama3" => RotaryScaling::Llama3 {
                factor: number("factor", None)?,
                low_freq_factor: number("low_freq_factor", Some(1.0))?,
                high_freq_factor: number("high_freq_factor", Some(4.0))?,
                original_max_position_embeddings: positions(ORIGINAL)?,
            },
            "yarn" => RotaryScaling::Yarn {
                factor: number("factor", None)?,
                beta_fast: number("beta_fast", Some(32.0))?,
                beta_slow: number("beta_slow", Some(1.0))?,
                original_max_position_embeddings: positions(ORIGINAL)?,
            },
            _ => return Ok(None),
        }))
    }

    /// The frequency of a pair, whose unscaled one is `plain`.
    fn scaled(self, plain: f64, pair: f64, turned: f64, theta: f64) -> f64 {
        match self {
            RotaryScaling::None => plain,
            RotaryScaling::Linear { factor } => plain / f64::from(factor),
            RotaryScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let [factor, low, high] = [factor, low_freq_factor, high_freq_factor].map(f64::from);
                let waves = f64::from(original_max_position_embeddings) * plain / (2.0 * PI);
                let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                kept * plain + (1.0 - kept) * plain / factor
            }
            RotaryScaling::Yarn { factor, beta_fast, beta_slow, original_max_position_embeddings } => {
                // The pair, fractional, that turns so often over the original positions.
                let pair_of = |turns: f32| {
                    let wave = f64::from(original_max_position_embeddings) / (f64::from(turns) * 2.0 * PI);
                    turned * libm::log(wave) / (2.0 * libm::log(theta))
                };
                let low = libm::floor(pair_of(beta_fast)).max(0.0);
                let high = libm::ceil(pair_of(beta_slow)).min(turned - 1.0);
                // Equal ends would divide by zero.
                let high = if high == low { high + 0.001 } else { high };
                let divided = ((pair - low) / (high - low)).clamp(0.0, 1.0);
                divided * plain / f64::from(factor) + (1.0 - divided) * plain
            }
        }
    }

    /// The keys of files that state it.
    fn keys(self) -> String {
        match self {
            RotaryScaling::None => ", scaling = \"none\"".to_owned(),
            RotaryScaling::Linear { factor } => format!(", scaling = \"linear\", factor = {factor}"),
            RotaryScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                format!(
                    ", scaling = \"llama3\", factor = {factor}, low_freq_factor = {low_freq_factor}, high_freq_factor = \
                 {high_freq_factor}, original_max_position_embeddings = {original_max_position_embeddings}"
                )
            }
            RotaryScaling::Yarn { factor, beta_fast, beta_slow, original_max_position_embeddings } => format!(
                ", scaling = \"yarn\", factor = {factor}, beta_fast = {beta_fast}, beta_slow = {beta_slow}, \
                 original_max_position_embeddings = {original_max_position_embeddings}"
            ),
        }
    }

    /// Refuses what gives no frequencies.
    fn check(self) -> Result<(), String> {
        let positive = |name: &str, value: f32| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(format!("{name} is {value}: it must be positive")),
        };
        let ordered = |low: (&str, f32), high: (&str, f32)| {
            positive(low.0, low.1)?;
            positive(high.0, high.1)?;
            match low.1 < high.1 {
                true => Ok(()),
                false => Err(format!("{} is {} and {} {}: the first must be less", low.0, low.1, high.0, high.1)),
            }
        };
        match self {
            RotaryScaling::None => Ok(()),
            RotaryScaling::Linear { factor } => positive("factor", factor),
            RotaryScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, .. } => {
                positive("factor", factor)?;
                ordered(("low_freq_factor", low), ("high_freq_factor", high))
            }
            RotaryScaling::Yarn { factor, beta_fast, beta_slow, .. } => {
                positive("factor", factor)?;
                ordered(("beta_slow", beta_slow), ("beta_fast", beta_fast))
            }
        }
    }
}

impl LayerRule for Rotary {
    /// A pair needs its two features and the number of its position, so both are whole; heads are free.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if !(self.theta > 1.0 && self.theta.is_finite()) {
            return Err(format!("theta is {}: it must be above 1, e.g. 10000.0", self.theta));
        }
        self.scaling.check()?;
        let (of, width) = Signature::of_heads(inputs[0], self.heads)?;
        let width = of.indices[width].size as u32;
        let turned = self.turned(width);
        if !(0.0..=1.0).contains(&self.fraction) || turned == 0 || !turned.is_multiple_of(2) {
            return Err(format!(
                "fraction is {}: it turns {turned} of the {width} features of a head, and must turn an even number of them",
                self.fraction
            ));
        }
        Ok(of.with_whole(&[Dimension::Position]))
    }

    fn settings(&self) -> String {
        let pairing = match self.pairing {
            RotaryPairing::Halves => "halves",
            RotaryPairing::Neighbours => "neighbours",
        };
        let Rotary { heads, theta, fraction, .. } = self;
        let scaling = self.scaling.keys();
        format!(", heads = {heads}, theta = {theta:?}, fraction = {fraction:?}, pairing = \"{pairing}\"{scaling}")
    }

    fn cost_settings(&self) -> String {
        format!(" heads{}", self.heads)
    }

    fn share(&self, _: Dimension, ranks: u32) -> Option<Layer> {
        Some(Layer::Rotary(Rotary { heads: self.heads / ranks, ..*self }))
    }
}
