//! Decays the learning rate over a run.

use std::fmt;
use std::str::FromStr;

use super::{RunLength, number};

/// The share of the rate that is left at a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Decay {
    /// All of it.
    #[default]
    Constant,
    /// Multiplied by `factor` at each of these epochs (÷10 at 30, 60, 80: Goyal et al. 2017, §5.1; ·250^(−1/3) at 25,
    /// 50 and 75 %: Krizhevsky 2014, §5).
    Steps {
        /// The factor.
        factor: f64,
        /// When, in epochs since the start, ascending.
        epochs: Vec<f64>,
    },
    /// Multiplied by `factor` after every `epochs` epochs (÷10 each 30: Kumar et al. 2018, §5; halved each 20:
    /// Koliousis et al. 2019, §5.1).
    Every {
        /// The factor.
        factor: f64,
        /// The number of epochs between two multiplications.
        epochs: f64,
    },
    /// `(1 − progress)^power`, every iteration (Iandola et al. 2016, §7.3, with power 0.5).
    Polynomial {
        /// The exponent.
        power: f64,
    },
    /// `(1 + cos(π·progress)) / 2` (Loshchilov and Hutter 2017, §3, without restarts).
    Cosine,
    /// Multiplied by `factor` at each of these steps: Caffe's `multistep`.
    AtSteps {
        /// The factor.
        factor: f64,
        /// When, in steps since the start, ascending.
        steps: Vec<u64>,
    },
    /// Multiplied by `factor` after every `steps` steps: Caffe's `step`.
    EverySteps {
        /// The factor.
        factor: f64,
        /// The number of steps between two multiplications.
        steps: u64,
    },
    /// `factor^step`: Caffe's `exp`.
    Exponential {
        /// The factor of every step.
        factor: f64,
    },
    /// `(1 + slope·step)^−power`: Caffe's `inv`.
    Inverse {
        /// How fast it falls.
        slope: f64,
        /// The exponent.
        power: f64,
    },
    /// `1 / (1 + e^(−slope·(step − middle)))`: Caffe's `sigmoid`.
    Sigmoid {
        /// How fast it rises, negative where it falls.
        slope: f64,
        /// The step at which half is left.
        middle: u64,
    },
}

impl Decay {
    /// The share left at `step`; progress runs from 0 at `first`, where the warm-up ends, to 1 at the run's end.
    /// Per-step decays count from `first` too.
    pub(super) fn share(&self, step: u64, first: u64, run_length: &RunLength) -> f64 {
        let epoch = step as f64 / run_length.steps_per_epoch as f64;
        let progress = (step - first) as f64 / run_length.steps.saturating_sub(first).max(1) as f64;
        match self {
            Decay::Constant => 1.0,
            Decay::Steps { factor, epochs } => {
                let passed = epochs.iter().filter(|at| epoch >= **at).count();
                libm::pow(*factor, passed as f64)
            }
            Decay::Every { factor, epochs } => libm::pow(*factor, (epoch / epochs).floor()),
            Decay::Polynomial { power } => libm::pow((1.0 - progress).max(0.0), *power),
            Decay::Cosine => (1.0 + libm::cos(std::f64::consts::PI * progress.min(1.0))) / 2.0,
            Decay::AtSteps { factor, steps } => {
                let passed = steps.iter().filter(|at| step >= **at).count();
                libm::pow(*factor, passed as f64)
            }
            Decay::EverySteps { factor, steps } => libm::pow(*factor, (step / steps) as f64),
            Decay::Exponential { factor } => libm::pow(*factor, (step - first) as f64),
            Decay::Inverse { slope, power } => libm::pow(1.0 + slope * (step - first) as f64, -power),
            Decay::Sigmoid { slope, middle } => 1.0 / (1.0 + libm::exp(-slope * (step as f64 - *middle as f64))),
        }
    }

    /// Whether it drops at some steps.
    pub(super) fn is_stepwise(&self) -> bool {
        use Decay::{AtSteps, Every, EverySteps, Steps};
        matches!(self, Steps { .. } | Every { .. } | AtSteps { .. } | EverySteps { .. })
    }

    /// Whether it depends on the number of steps of a run, or counts them, so that its meaning changes with the
    /// length of steps.
    pub fn counts_steps(&self) -> bool {
        !matches!(self, Decay::Constant | Decay::Steps { .. } | Decay::Every { .. })
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
            Decay::AtSteps { factor, steps } => {
                let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
                write!(f, "steps:{factor}@{}steps", steps.join(","))
            }
            Decay::EverySteps { factor, steps } => write!(f, "every:{factor}@{steps}steps"),
            Decay::Exponential { factor } => write!(f, "exponential:{factor}"),
            Decay::Inverse { slope, power } => write!(f, "inverse:{slope}@{power}"),
            Decay::Sigmoid { slope, middle } => write!(f, "sigmoid:{slope}@{middle}"),
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
                    "linear" => Some(Decay::Polynomial { power: 1.0 }),
                    _ => None,
                };
            };
            match kind {
                "polynomial" => return Some(Decay::Polynomial { power: number(rest)? }),
                "exponential" => return Some(Decay::Exponential { factor: number(rest)? }),
                _ => {}
            }
            let (factor, epochs) = rest.split_once('@')?;
            if kind == "sigmoid" {
                let slope = factor.trim().parse().ok().filter(|slope: &f64| slope.is_finite())?;
                return Some(Decay::Sigmoid { slope, middle: count(epochs)? });
            }
            let factor = number(factor)?;
            match (kind, epochs.strip_suffix("steps")) {
                ("steps", Some(steps)) => {
                    let steps = steps.split(',').map(count).collect::<Option<Vec<u64>>>()?;
                    return steps.is_sorted().then_some(Decay::AtSteps { factor, steps });
                }
                ("every", Some(steps)) => {
                    return Some(Decay::EverySteps { factor, steps: count(steps).filter(|steps| *steps > 0)? });
                }
                ("inverse", _) => return Some(Decay::Inverse { slope: factor, power: number(epochs)? }),
                _ => {}
            }
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
                "{text:?} is not a decay of the rate: write constant, steps:FACTOR@EPOCH,EPOCH,…, every:FACTOR@EPOCHS (both also \
                 with steps behind, as in every:0.1@5000steps), linear, polynomial:POWER, cosine, exponential:FACTOR, \
                 inverse:SLOPE@POWER or sigmoid:SLOPE@STEP, e.g. steps:0.1@30,60,80"
            )
        })
    }
}

/// A number of steps.
fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}
