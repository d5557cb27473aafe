//! The optimizer's update, and the two loops over slices that collectives need.

use super::simd::wide;

/// Momentum SGD as Goyal et al. 2017, §3 Eq. 9 with weight decay in the gradient: the rate multiplies the whole velocity, so a
/// change of rate needs no correction of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// η: what the velocity is multiplied with before it is taken off the weights.
    pub rate: f32,
    /// m: the part of the velocity that is kept.
    pub momentum: f32,
    /// λ: the part of a weight that is added to its gradient.
    pub weight_decay: f32,
    /// Whether a step looks ahead along the velocity (Sutskever et al. 2013, §2, as PyTorch writes it).
    pub nesterov: bool,
}

impl Sgd {
    /// `v ← m·v + (g + λ·w)`, then `w ← w − η·v` (with `nesterov`: `w ← w − η·(g + λ·w + m·v)`). All slices have one length;
    /// ranges with different decay are separate calls.
    ///
    /// ```
    /// # use lockstep_exec::device::cpu::Sgd;
    /// let sgd = Sgd { rate: 0.5, momentum: 0.5, weight_decay: 0.25, nesterov: false };
    /// let (mut w, mut v) = ([4.0], [2.0]);
    /// sgd.update(&mut w, &mut v, &[1.0]);
    /// assert_eq!((v, w), ([3.0], [2.5])); // v = 0.5·2 + 1 + 0.25·4, w = 4 − 0.5·3
    /// ```
    pub fn update(&self, weights: &mut [f32], velocity: &mut [f32], gradient: &[f32]) {
        assert!(weights.len() == velocity.len() && weights.len() == gradient.len(), "three slices of one length");
        let Sgd { rate, momentum, weight_decay, nesterov } = *self;
        wide(
            #[inline(always)]
            || {
                for ((w, v), g) in weights.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
                    let slope = *g + weight_decay * *w;
                    *v = momentum * *v + slope;
                    let step = if nesterov { slope + momentum * *v } else { *v };
                    *w -= rate * step;
                }
            },
        );
    }
}

/// `destination += source`, element by element.
pub fn add_into(destination: &mut [f32], source: &[f32]) {
    assert_eq!(destination.len(), source.len(), "two slices of one length");
    wide(
        #[inline(always)]
        || destination.iter_mut().zip(source).for_each(|(d, s)| *d += *s),
    );
}

/// `destination = source`.
pub fn copy(destination: &mut [f32], source: &[f32]) {
    destination.copy_from_slice(source);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps by hand: λ = 0, m = 0.5, η = 1, g = 1: v = 1, 1.5; w = −1, −2.5; nesterov steps g + m·v = 1.5, 1.75.
    #[test]
    fn two_steps() {
        for (nesterov, expected) in [(false, -2.5), (true, -3.25)] {
            let sgd = Sgd { rate: 1.0, momentum: 0.5, weight_decay: 0.0, nesterov };
            let (mut w, mut v) = (vec![0.0; 37], vec![0.0; 37]);
            for _ in 0..2 {
                sgd.update(&mut w, &mut v, &[1.0; 37]);
            }
            assert_eq!((w, v), (vec![expected; 37], vec![1.5; 37]));
        }
    }

    #[test]
    fn sums_and_copies() {
        let source: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let mut destination = vec![1.0; 100];
        add_into(&mut destination, &source);
        assert!(destination.iter().zip(&source).all(|(d, s)| *d == 1.0 + *s));
        copy(&mut destination, &source);
        assert_eq!(destination, source);
    }
}
