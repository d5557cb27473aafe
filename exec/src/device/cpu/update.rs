//! The optimizer's update.

use lockstep_models::SgdStep;

use crate::simd::wide;

/// One step of momentum SGD: `v ← keep·v + (g + λ·w)`, then `w ← w − η·v` (Goyal et al. 2017, §3, Eq. 9), or, absorbed,
/// `v ← keep·v + η·(g + λ·w)`, then `w ← w − v` (Eq. 10). With `nesterov` the weights take `g + λ·w + m·v` in place of v.
///
/// All slices have one length; ranges with different decay are separate calls.
///
/// ```
/// # use lockstep_exec::device::cpu::sgd_step;
/// # use lockstep_models::SgdStep;
/// let step = SgdStep { weight_decay: 0.25, ..SgdStep::plain(0.5, 0.5) };
/// let (mut w, mut v) = ([4.0], [2.0]);
/// sgd_step(&step, &mut w, &mut v, &[1.0]);
/// assert_eq!((v, w), ([3.0], [2.5])); // v = 0.5·2 + 1 + 0.25·4, w = 4 − 0.5·3
/// ```
pub fn sgd_step(step: &SgdStep, weights: &mut [f32], velocity: &mut [f32], gradient: &[f32]) {
    assert!(weights.len() == velocity.len() && weights.len() == gradient.len(), "three slices of one length");
    let SgdStep { rate, gradient: part, keep, momentum, absorbed, nesterov, weight_decay, .. } = *step;
    wide!({
        let all = weights.iter_mut().zip(velocity.iter_mut()).zip(gradient);
        if absorbed {
            for ((w, v), g) in all {
                let slope = rate * (part * *g + weight_decay * *w);
                *v = keep * *v + slope;
                *w -= if nesterov { slope + momentum * *v } else { *v };
            }
        } else {
            for ((w, v), g) in all {
                let slope = part * *g + weight_decay * *w;
                *v = keep * *v + slope;
                *w -= rate * if nesterov { slope + momentum * *v } else { *v };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps by hand: λ = 0, m = 0.5, η = 1, g = 1: v = 1, 1.5; w = −1, −2.5; nesterov steps g + m·v = 1.5, 1.75.
    #[test]
    fn two_steps() {
        for (nesterov, expected) in [(false, -2.5), (true, -3.25)] {
            for absorbed in [false, true] {
                let step = SgdStep { nesterov, absorbed, ..SgdStep::plain(1.0, 0.5) };
                let (mut w, mut v) = (vec![0.0; 37], vec![0.0; 37]);
                for _ in 0..2 {
                    sgd_step(&step, &mut w, &mut v, &[1.0; 37]);
                }
                assert_eq!((w, v), (vec![expected; 37], vec![1.5; 37]));
            }
        }
    }

    /// At rates that are powers of two Eq. 10 with its correction gives the weights of Eq. 9 to the bit, whatever the rate
    /// does; v is then η·u.
    #[test]
    fn both_forms_are_one_method() {
        for nesterov in [false, true] {
            let gradient =
                |step: usize| -> Vec<f32> { (0..64).map(|i| ((i * 37 + step * 11) % 19) as f32 - 9.0).collect() };
            let (mut w, mut u) = (vec![0.75; 64], vec![0.0; 64]);
            let (mut x, mut v) = (w.clone(), u.clone());
            let mut before = None;
            for (at, rate) in [0.5f32, 0.5, 4.0, 4.0, 0.125, 2.0].into_iter().enumerate() {
                let step = SgdStep { nesterov, weight_decay: 0.125, ..SgdStep::plain(rate, 0.75) };
                sgd_step(&step, &mut w, &mut u, &gradient(at));
                let keep = 0.75 * before.map_or(1.0, |before| rate / before);
                sgd_step(&SgdStep { keep, absorbed: true, ..step }, &mut x, &mut v, &gradient(at));
                before = Some(rate);
                assert_eq!(w, x, "after step {at}");
                assert!(u.iter().zip(&v).all(|(u, v)| rate * u == *v));
            }
        }
    }
}
