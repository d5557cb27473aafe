//! Warms up the learning rate of a large batch over the first epochs (Goyal et al. 2017, §2.2).

use std::fmt;
use std::str::FromStr;

use super::{RunLength, number};

/// The rate before it reaches its scaled value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum WarmUp {
    /// The scaled rate from the first step on.
    #[default]
    None,
    /// A low rate, then the target at once.
    Constant {
        /// How long it is low.
        epochs: f64,
        /// The low rate; `None`: the rate before scaling.
        rate: Option<f64>,
    },
    /// From a low rate to the target by a constant amount per iteration.
    Gradual {
        /// When the target is reached.
        epochs: f64,
        /// The rate of the first step; `None`: the rate before scaling.
        from: Option<f64>,
    },
}

impl WarmUp {
    /// The low rate, if it is stated.
    pub fn rate(self) -> Option<f64> {
        match self {
            WarmUp::None => None,
            WarmUp::Constant { rate, .. } => rate,
            WarmUp::Gradual { from, .. } => from,
        }
    }

    /// Steps before the target.
    pub(super) fn steps(self, run_length: &RunLength) -> u64 {
        match self {
            WarmUp::None => 0,
            WarmUp::Constant { epochs, .. } | WarmUp::Gradual { epochs, .. } => {
                (epochs * run_length.steps_per_epoch as f64).round() as u64
            }
        }
    }

    /// The rate of a step before the target.
    pub(super) fn at(self, step: u64, steps: u64, from: f64, target: f64) -> f64 {
        match self {
            WarmUp::None => target,
            WarmUp::Constant { .. } => from,
            WarmUp::Gradual { .. } => from + (target - from) * (step as f64 / steps as f64),
        }
    }
}

impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, epochs, rate) = match self {
            WarmUp::None => return f.write_str("none"),
            WarmUp::Constant { epochs, rate } => ("constant", epochs, rate),
            WarmUp::Gradual { epochs, from } => ("gradual", epochs, from),
        };
        write!(f, "{name}:{epochs}")?;
        rate.map_or(Ok(()), |rate| write!(f, "@{rate}"))
    }
}

impl FromStr for WarmUp {
    type Err = String;

    fn from_str(text: &str) -> Result<WarmUp, String> {
        let read = || {
            let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
            if kind == "none" && rest.is_empty() {
                return Some(WarmUp::None);
            }
            let (epochs, rate) = match rest.split_once('@') {
                Some((epochs, rate)) => (number(epochs)?, Some(number(rate)?)),
                None => (number(rest)?, None),
            };
            match kind {
                "constant" => Some(WarmUp::Constant { epochs, rate }),
                "gradual" => Some(WarmUp::Gradual { epochs, from: rate }),
                _ => None,
            }
        };
        read().ok_or_else(|| {
            format!(
                "{text:?} is not a warm-up: write none, constant:EPOCHS or gradual:EPOCHS, with @RATE behind it for a first \
                 rate, e.g. gradual:5@0.1"
            )
        })
    }
}
