//! Describes how parameters start: initial values, those of a layer's parameters, and rules of a recipe that
//! replace them.

use std::fmt;
use std::str::FromStr;

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// Normal with variance 2 / fan-in (He et al. 2015, §2.2).
    He,
    /// Uniform in ±√(6 / (fan-in + fan-out)) (Glorot and Bengio 2010, eq. 16).
    Xavier,
    /// Normal with mean 0 and this standard deviation.
    Gaussian(f32),
    /// This value everywhere.
    Constant(f32),
}

/// How the parameters of a layer start.
#[derive(Debug, Clone, Copy)]
pub struct Inits {
    /// Of a weight.
    pub weight: Init,
    /// Of a bias.
    pub bias: f32,
    /// Of γ, and of a scale's factor.
    pub gamma: f32,
}

impl Default for Inits {
    fn default() -> Inits {
        Inits { weight: Init::He, bias: 0.0, gamma: 1.0 }
    }
}

/// How parameters start, by their place in the model; `None` keeps the rule of the model's file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct InitRules {
    /// Weights of convolutions.
    pub convolution: Option<Init>,
    /// Those of 1×1 convolutions, where they differ (Iandola et al. 2016, §7.1).
    pub convolution_1x1: Option<Init>,
    /// Weights of dense layers.
    pub dense: Option<Init>,
    /// Those of the dense layer nearest to the loss, where they differ (Goyal et al. 2017, §5.1).
    pub last_dense: Option<Init>,
    /// Biases of convolutions and dense layers.
    pub bias: Option<f32>,
    /// γ of each residual block's last batch norm: with 0 every block starts as its shortcut (Goyal et al. 2017, §5.1).
    pub residual_gamma: Option<f32>,
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Init::He => f.write_str("he"),
            Init::Xavier => f.write_str("xavier"),
            Init::Gaussian(deviation) => write!(f, "gaussian:{deviation}"),
            Init::Constant(value) => write!(f, "constant:{value}"),
        }
    }
}

impl FromStr for Init {
    type Err = String;

    fn from_str(text: &str) -> Result<Init, String> {
        let number = |text: &str| text.trim().parse().ok().filter(|number: &f32| number.is_finite());
        let read = match text.split_once(':') {
            None if text == "he" => Some(Init::He),
            None if text == "xavier" => Some(Init::Xavier),
            Some(("gaussian", deviation)) => {
                number(deviation).filter(|deviation| *deviation >= 0.0).map(Init::Gaussian)
            }
            Some(("constant", value)) => number(value).map(Init::Constant),
            _ => None,
        };
        read.ok_or_else(|| {
            format!("{text:?} is not an initial value: write he, xavier, gaussian:DEVIATION or constant:VALUE")
        })
    }
}
