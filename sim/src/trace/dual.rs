//! `Dual`: holds a number's derivatives by up to [`LANES`] parameters.

/// Parameters that one simulation differentiates by at most.
pub(crate) const LANES: usize = 16;

/// The change of a number per change of each parameter, relative to the parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dual(pub(crate) [f64; LANES]);

impl Dual {
    /// Of a constant.
    pub(crate) const ZERO: Dual = Dual([0.0; LANES]);

    /// Adds `factor` times another one.
    pub(crate) fn add(&mut self, factor: f64, other: &Dual) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own += factor * other;
        }
    }

    /// The same with `factor` times another one.
    pub(crate) fn plus(mut self, factor: f64, other: &Dual) -> Dual {
        self.add(factor, other);
        self
    }

    /// The product with a factor.
    pub(crate) fn times(mut self, factor: f64) -> Dual {
        self.0.iter_mut().for_each(|own| *own *= factor);
        self
    }

    /// The derivative by the parameter of this number.
    pub(crate) fn by(&self, parameter: usize) -> f64 {
        self.0[parameter]
    }
}

impl Default for Dual {
    fn default() -> Dual {
        Dual::ZERO
    }
}
