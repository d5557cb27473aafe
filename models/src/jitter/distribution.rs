//! `Distribution`: defines distributions of durations by mean and coefficient of variation, or by two quantiles.
//!
//! A draw is the quantile of one uniform number, so that equal numbers give ordered draws for every family.

use std::fmt;

use libm::{erfc, exp, expm1, lgamma, log, log1p};
use special::{Error as _, Gamma as _};

/// The shape of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Always the mean.
    Constant,
    /// Equally likely between two ends.
    Uniform,
    /// A normal distribution truncated at zero; mean and variation are those of the whole one.
    Normal,
    /// Its logarithm is normal.
    Lognormal,
    /// A least value and an exponential tail: the mean less the standard deviation, and the rest.
    Exponential,
    /// A gamma distribution.
    Gamma,
}

lockstep_topology::named!(Family, "family":
    Constant = "constant", Uniform = "uniform", Normal = "normal", Lognormal = "lognormal", Exponential = "exponential",
    Gamma = "gamma");

/// The largest coefficient of variation: beyond it nearly all draws are next to nothing, and the mean is determined by
/// draws that no simulation sees.
const MOST_VARIATION: f64 = 100.0;

/// Points of the integral of [`Distribution::expected_maximum`].
const POINTS: u32 = 20_000;

/// A distribution of factors or of seconds, none below zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    family: Family,
    /// Value; lower end; mean of the whole; mean of the logarithm; least value; shape.
    a: f64,
    /// Nothing; upper end; standard deviation; that of the logarithm; scale; scale.
    b: f64,
}

/// The standard normal's quantile and its inverse.
fn normal_quantile(p: f64) -> f64 {
    std::f64::consts::SQRT_2 * (2.0 * p - 1.0).inv_error()
}

fn normal_below(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}

fn normal_density(z: f64) -> f64 {
    exp(-0.5 * z * z) / std::f64::consts::TAU.sqrt()
}

/// The share of a gamma distribution of this shape and scale 1 that is below `x`: the regularised lower incomplete
/// gamma function.
fn gamma_below(shape: f64, x: f64) -> f64 {
    if x > 0.0 { x.inc_gamma(shape) } else { 0.0 }
}

/// Its inverse, by bisection until there is no number between the ends.
fn gamma_quantile(shape: f64, u: f64) -> f64 {
    let (mut low, mut high) = (0.0, shape.max(1.0));
    while gamma_below(shape, high) < u && high.is_finite() {
        (low, high) = (high, 2.0 * high);
    }
    loop {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return high;
        }
        if gamma_below(shape, middle) < u { low = middle } else { high = middle }
    }
}

/// Whether a coefficient of variation is valid.
fn spread(cv: f64) -> Result<(), String> {
    let few = cv <= MOST_VARIATION;
    few.then_some(()).ok_or_else(|| format!("the standard deviation must be at most {MOST_VARIATION} times the mean"))
}

impl Distribution {
    /// The member of `family` with this mean and this coefficient of variation (standard deviation over mean).
    ///
    /// # Errors
    /// A mean that is not positive and finite, or a variation that the family does not have.
    ///
    /// ```
    /// use lockstep_models::{Distribution, Family};
    /// let tail = Distribution::of_moments(Family::Exponential, 1.5, 1.0 / 3.0).unwrap(); // at least 1, then 0.5 more
    /// assert!((tail.quantile(1.0 - (-2.0f64).exp()) - 2.0).abs() < 1e-12);
    /// ```
    pub fn of_moments(family: Family, mean: f64, cv: f64) -> Result<Distribution, String> {
        if !(mean > 0.0 && mean.is_finite()) {
            return Err(format!("mean = {mean}: must be positive and finite"));
        }
        if !(cv >= 0.0 && cv.is_finite()) {
            return Err(format!("cv = {cv}: must be zero or positive, and finite"));
        }
        spread(cv).map_err(|wrong| format!("cv = {cv:?}: {wrong}"))?;
        let sd = mean * cv;
        let most = |most: f64, why: &str| match cv <= most {
            true => Ok(()),
            false => Err(format!("cv = {cv}: {why} would reach below zero; use at most {most:.3}, or another family")),
        };
        let (a, b) = match family {
            _ if cv == 0.0 => return Ok(Distribution { family: Family::Constant, a: mean, b: 0.0 }),
            Family::Constant => return Err(format!("cv = {cv}: a constant does not vary; leave cv out")),
            Family::Uniform => {
                most(1.0 / 3f64.sqrt(), "a uniform distribution")?;
                (mean - 3f64.sqrt() * sd, mean + 3f64.sqrt() * sd)
            }
            Family::Normal => {
                most(1.0, "most of what a normal distribution draws")?;
                (mean, sd)
            }
            Family::Lognormal => {
                let variance = log1p(cv * cv);
                (log(mean) - variance / 2.0, variance.sqrt())
            }
            Family::Exponential => {
                most(1.0, "the least value")?;
                (mean - sd, sd)
            }
            Family::Gamma => (1.0 / (cv * cv), mean * cv * cv),
        };
        Ok(Distribution { family, a, b })
    }

    /// The member of `family` with the share `p` below `x`, and the share `q` below `y`.
    ///
    /// # Errors
    /// Shares or values that do not ascend, or that no member of the family has.
    pub fn of_quantiles(family: Family, (p, x): (f64, f64), (q, y): (f64, f64)) -> Result<Distribution, String> {
        if !(p > 0.0 && p < q && q < 1.0) {
            return Err(format!("quantiles {p} and {q}: must ascend between 0 and 1"));
        }
        if !(x > 0.0 && x < y && y.is_finite()) {
            return Err(format!("{x} and {y}: the higher quantile must be the larger value, and both above 0"));
        }
        let line = |at_p: f64, at_q: f64, x: f64, y: f64| {
            let slope = (y - x) / (at_q - at_p);
            (x - slope * at_p, slope)
        };
        let low = |what: &str, value: f64| match value >= 0.0 {
            true => Ok(()),
            false => Err(format!("{x} and {y}: {what} would be {value:.4}, below zero; use another family")),
        };
        let (a, b) = match family {
            Family::Constant => return Err("a constant has no two quantiles: give its mean".into()),
            Family::Uniform => {
                let (start, width) = line(p, q, x, y);
                low("the lower end", start)?;
                (start, start + width)
            }
            Family::Normal => {
                let (mean, sd) = line(normal_quantile(p), normal_quantile(q), x, y);
                low("the mean", mean - sd)?;
                (mean, sd)
            }
            Family::Lognormal => {
                let (median, b) = line(normal_quantile(p), normal_quantile(q), log(x), log(y));
                spread(expm1(b * b).sqrt()).map_err(|wrong| format!("{x:?} and {y:?}: {wrong}"))?;
                (median, b)
            }
            Family::Exponential => {
                let (start, scale) = line(-log1p(-p), -log1p(-q), x, y);
                low("the least value", start)?;
                (start, scale)
            }
            Family::Gamma => {
                // The ratio of two quantiles falls as the shape grows.
                let ratio = |shape: f64| {
                    let unit = Distribution { family, a: shape, b: 1.0 };
                    unit.quantile(q) / unit.quantile(p)
                };
                let (mut few, mut many) = (0.05f64, 1e6f64);
                if !(ratio(few) > y / x && ratio(many) < y / x) {
                    return Err(format!("{x} and {y}: no gamma distribution has such quantiles; use another family"));
                }
                for _ in 0..100 {
                    let middle = (few * many).sqrt();
                    if ratio(middle) > y / x { few = middle } else { many = middle }
                }
                (few, x / Distribution { family, a: few, b: 1.0 }.quantile(p))
            }
        };
        Ok(Distribution { family, a, b })
    }

    /// The member with these parameters, as found by a fit.
    pub(super) fn of_parameters(family: Family, a: f64, b: f64) -> Distribution {
        Distribution { family, a, b }
    }

    /// Its two parameters, in the units of the varying quantity, as its family defines them; the second is 0 where
    /// there is only one.
    pub fn parameters(&self) -> [f64; 2] {
        [self.a, self.b]
    }

    /// Its family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Share of a normal that is below zero and truncated.
    fn cut_off(&self) -> f64 {
        normal_below(-self.a / self.b)
    }

    /// The value below which the share `u` is, for u above 0 and below 1.
    pub fn quantile(&self, u: f64) -> f64 {
        let Distribution { family, a, b } = *self;
        match family {
            Family::Constant => a,
            Family::Uniform => a + (b - a) * u,
            Family::Normal => {
                let cut = self.cut_off();
                (a + b * normal_quantile(cut + u * (1.0 - cut))).max(0.0)
            }
            Family::Lognormal => exp(a + b * normal_quantile(u)),
            Family::Exponential => a - b * log1p(-u),
            Family::Gamma => b * gamma_quantile(a, u),
        }
    }

    /// The share below `x`.
    pub fn below(&self, x: f64) -> f64 {
        let Distribution { family, a, b } = *self;
        match family {
            Family::Constant => f64::from(u8::from(x >= a)),
            Family::Uniform => ((x - a) / (b - a)).clamp(0.0, 1.0),
            Family::Normal if x <= 0.0 => 0.0,
            Family::Normal => (normal_below((x - a) / b) - self.cut_off()) / (1.0 - self.cut_off()),
            Family::Lognormal if x <= 0.0 => 0.0,
            Family::Lognormal => normal_below((log(x) - a) / b),
            Family::Exponential => -expm1(-((x - a) / b).max(0.0)),
            Family::Gamma => gamma_below(a, x / b),
        }
    }

    /// The logarithm of the density at `x`.
    pub(super) fn ln_density(&self, x: f64) -> f64 {
        let Distribution { family, a, b } = *self;
        let normal = |z: f64| -0.5 * (z * z + log(std::f64::consts::TAU));
        match family {
            Family::Constant => f64::NEG_INFINITY,
            Family::Uniform if (a..=b).contains(&x) => -log(b - a),
            Family::Exponential if x >= a => -(x - a) / b - log(b),
            Family::Uniform | Family::Exponential => f64::NEG_INFINITY,
            Family::Normal => normal((x - a) / b) - log(b) - log1p(-self.cut_off()),
            Family::Lognormal => normal((log(x) - a) / b) - log(b) - log(x),
            Family::Gamma => (a - 1.0) * log(x) - x / b - a * log(b) - lgamma(a),
        }
    }

    /// The mean of the draws.
    pub fn mean(&self) -> f64 {
        let Distribution { family, a, b } = *self;
        match family {
            Family::Constant => a,
            Family::Uniform => (a + b) / 2.0,
            Family::Normal => a + b * normal_density(a / b) / (1.0 - self.cut_off()),
            Family::Lognormal => exp(a + b * b / 2.0),
            Family::Exponential => a + b,
            Family::Gamma => a * b,
        }
    }

    /// The expected largest of `k` draws, k ≥ 1: the integral of the quantile of v^(1/k) over v from 0 to 1.
    ///
    /// Of exponentials it is the k-th harmonic number times their mean, of uniforms from 0 to 1 it is k/(k + 1).
    pub fn expected_maximum(&self, k: u32) -> f64 {
        let point =
            |i: u32| self.quantile(libm::pow((f64::from(i) + 0.5) / f64::from(POINTS), 1.0 / f64::from(k.max(1))));
        (0..POINTS).map(point).sum::<f64>() / f64::from(POINTS)
    }
}

impl fmt::Display for Distribution {
    /// `lognormal (median 1.000, 99 % below 1.262)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Family::Constant => write!(f, "constant {:.4}", self.a),
            family => write!(f, "{family} (median {:.4}, 99 % below {:.4})", self.quantile(0.5), self.quantile(0.99)),
        }
    }
}

#[cfg(test)]
mod tests;
