//! How the learning rate falls over a run.

use std::fmt;
use std::str::FromStr;

use super::{Course, number};

/// The share of the rate that is left at a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Decay {
    /// All of it.
    #[default]
    Constant,
    /// Multiplied by `factor` at each of these epochs (÷10 at 30, 60, 80: Goyal et al. 2017, §5.1; ·250^(−1/3) at 25, 50 and
    /// 75 %: Krizhevsky 2014, §5).
    Steps {
        /// What it is multiplied with.
        factor: f64,
        /// When, in epochs since the start, ascending.
        epochs: Vec<f64>,
    },
    /// Multiplied by `factor` each time so many epochs are over (÷10 each 30: Kumar et al. 2018, §5; halved each 20:
    /// Koliousis et al. 2019, §5.1).
    Every {
        /// What it is multiplied with.
        factor: f64,
        /// How long it stays.
        epochs: f64,
    },
    /// `(1 − progress)^power`, every iteration (Iandola et al. 2016, §7.3, with power 0.5).
    Polynomial {
        /// The exponent.
        power: f64,
    },
    /// `(1 + cos(π·progress)) / 2` (Loshchilov and Hutter 2017, §3, without restarts).
    Cosine,
}

impl Decay {
    /// The share left at `step`; progress runs from 0 at `first`, where the warm-up ends, to 1 at the run's end.
    pub(super) fn share(&self, step: u64, first: u64, course: &Course) -> f64 {
        let epoch = step as f64 / course.steps_per_epoch as f64;
        let progress = (step - first) as f64 / course.steps.saturating_sub(first).max(1) as f64;
        match self {
            Decay::Constant => 1.0,
            Decay::Steps { factor, epochs } => {
                let passed = epochs.iter().filter(|at| epoch >= **at).count();
                libm::pow(*factor, passed as f64)
            }
            Decay::Every { factor, epochs } => libm::pow(*factor, (epoch / epochs).floor()),
            Decay::Polynomial { power } => libm::pow((1.0 - progress).max(0.0), *power),
            Decay::Cosine => (1.0 + libm::cos(std::f64::consts::PI * progress.min(1.0))) / 2.0,
        }
    }
}

impl fmt::Display for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decay::Constant => f.write_str("constant"),
            Decay::Steps { factor, epochs } => {
                let epochs: Vec<String> = epochs.iter().map(f64::to_string).collect();
                write!(f, "steps:{factor}@{}", epochs.join(","))
            }
            Decay::Every { factor, epochs } => write!(f, "every:{factor}@{epochs}"),
            Decay::Polynomial { power } => write!(f, "polynomial:{power}"),
            Decay::Cosine => f.write_str("cosine"),
        }
    }
}

impl FromStr for Decay {
    type Err = String;

    fn from_str(text: &str) -> Result<Decay, String> {
        let read = || {
            let Some((kind, rest)) = text.split_once(':') else {
                return match text {
                    "constant" => Some(Decay::Constant),
                    "cosine" => Some(Decay::Cosine),
                    _ => None,
                };
            };
            if kind == "polynomial" {
                return Some(Decay::Polynomial { power: number(rest)? });
            }
            let (factor, epochs) = rest.split_once('@')?;
            let factor = number(factor)?;
            match kind {
                "steps" => {
                    let epochs = epochs.split(',').map(number).collect::<Option<Vec<f64>>>()?;
                    epochs.is_sorted().then_some(Decay::Steps { factor, epochs })
                }
                "every" => Some(Decay::Every { factor, epochs: number(epochs).filter(|epochs| *epochs > 0.0)? }),
                _ => None,
            }
        };
        read().ok_or_else(|| {
            format!(
                "{text:?} is no decay of the rate: write constant, steps:FACTOR@EPOCH,EPOCH,…, every:FACTOR@EPOCHS, \
                 polynomial:POWER or cosine, e.g. steps:0.1@30,60,80"
            )
        })
    }
}
