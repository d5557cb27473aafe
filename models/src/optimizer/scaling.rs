//! Scales the learning rate with the size of the global batch.

use std::fmt;
use std::str::FromStr;

/// A rule for the rate at a global batch of kn samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scaling {
    /// The rate as it is given.
    #[default]
    None,
    /// `η·kn/batch`: the linear scaling rule (Goyal et al. 2017, §2.1; the reference rate of §5.1 is 0.1·kn/256).
    Linear {
        /// The batch at which the rate is η.
        batch: u32,
    },
    /// `η·√(kn/batch)`, which keeps the variance of a step (Krizhevsky 2014, §5; Goyal et al. 2017, §5.3,
    /// compare with it).
    SquareRoot {
        /// The batch at which the rate is η.
        batch: u32,
    },
}

impl Scaling {
    /// The rate at a global batch.
    ///
    /// ```
    /// # use lockstep_models::Scaling;
    /// assert_eq!(Scaling::Linear { batch: 256 }.rate(0.1, 8192), 3.2);
    /// assert_eq!(Scaling::SquareRoot { batch: 256 }.rate(0.1, 1024), 0.2);
    /// ```
    pub fn rate(self, rate: f64, global_batch: u64) -> f64 {
        let times = |batch: u32| global_batch as f64 / f64::from(batch);
        match self {
            Scaling::None => rate,
            Scaling::Linear { batch } => rate * times(batch),
            Scaling::SquareRoot { batch } => rate * times(batch).sqrt(),
        }
    }
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scaling::None => f.write_str("none"),
            Scaling::Linear { batch } => write!(f, "linear:{batch}"),
            Scaling::SquareRoot { batch } => write!(f, "square-root:{batch}"),
        }
    }
}

impl FromStr for Scaling {
    type Err = String;

    fn from_str(text: &str) -> Result<Scaling, String> {
        let batch = |batch: &str| batch.parse().ok().filter(|batch: &u32| *batch > 0);
        let read = match text.split_once(':') {
            None if text == "none" => Some(Scaling::None),
            Some(("linear", size)) => batch(size).map(|batch| Scaling::Linear { batch }),
            Some(("square-root", size)) => batch(size).map(|batch| Scaling::SquareRoot { batch }),
            _ => None,
        };
        read.ok_or_else(|| {
            format!(
                "{text:?} is not a scaling of the rate: write none, linear:BATCH or square-root:BATCH, e.g. linear:256"
            )
        })
    }
}
