//! The rules of model averaging (Koliousis et al. 2019, Alg. 1), element by element and each in one order of rounding.

use super::Slope;
use crate::simd::wide;

/// `w ← w − γ·(g + λ·w)`; both slices have one length.
pub fn descend(slope: Slope, weights: &mut [f32], gradient: &[f32]) {
    assert_eq!(weights.len(), gradient.len(), "two slices of one length");
    wide(
        #[inline(always)]
        || weights.iter_mut().zip(gradient).for_each(|(w, g)| *w -= slope.at(*g, *w)),
    );
}

/// `c ← α·(w − z)`, `w ← (w − γ·(g + λ·w)) − c`, all from the old w; without a gradient `w ← w − c`. All slices have one
/// length.
///
/// ```
/// # use lockstep_exec::device::cpu::{Slope, correct};
/// let slope = Slope { rate: 0.5, weight_decay: 0.25 };
/// let (mut w, mut c) = ([4.0], [0.0]);
/// correct(slope, 0.5, &mut w, Some(&[1.0]), &[2.0], &mut c);
/// assert_eq!((c, w), ([1.0], [2.0])); // c = 0.5·(4 − 2), w = 4 − 0.5·(1 + 0.25·4) − 1
/// ```
pub fn correct(
    slope: Slope,
    alpha: f32,
    weights: &mut [f32],
    gradient: Option<&[f32]>,
    average: &[f32],
    difference: &mut [f32],
) {
    assert!(weights.len() == average.len() && weights.len() == difference.len(), "slices of one length");
    let all = weights.iter_mut().zip(average).zip(difference);
    match gradient {
        Some(gradient) => {
            assert_eq!(gradient.len(), average.len(), "slices of one length");
            wide(
                #[inline(always)]
                || {
                    for (((w, z), c), g) in all.zip(gradient) {
                        *c = alpha * (*w - *z);
                        *w = (*w - slope.at(*g, *w)) - *c;
                    }
                },
            );
        }
        None => wide(
            #[inline(always)]
            || {
                for ((w, z), c) in all {
                    *c = alpha * (*w - *z);
                    *w -= *c;
                }
            },
        ),
    }
}

/// `C ← α'·(r − z)`, `r ← (r + s) − C`, all from the old r; `difference` holds s before and C afterwards. All slices have one
/// length.
///
/// ```
/// # use lockstep_exec::device::cpu::move_reference;
/// let (mut r, mut difference) = ([4.0], [1.0]);
/// move_reference(0.5, &mut r, &[2.0], &mut difference);
/// assert_eq!((difference, r), ([1.0], [4.0])); // C = 0.5·(4 − 2), r = 4 + 1 − 1
/// ```
pub fn move_reference(alpha: f32, reference: &mut [f32], average: &[f32], difference: &mut [f32]) {
    assert!(reference.len() == average.len() && reference.len() == difference.len(), "slices of one length");
    let all = reference.iter_mut().zip(average).zip(difference);
    wide(
        #[inline(always)]
        || {
            for ((r, z), c) in all {
                let own = alpha * (*r - *z);
                *r = (*r + *c) - own;
                *c = own;
            }
        },
    );
}

/// `z ← (z + Σc) + μ·(z − z_prev)`, `z_prev ← z` as it was; without momentum `z ← z + Σc`. All slices have one length.
///
/// ```
/// # use lockstep_exec::device::cpu::average;
/// let (mut z, mut previous) = ([3.0], [0.0]);
/// average(None, &mut z, &[1.0], &mut previous);
/// assert_eq!((z, previous), ([4.0], [3.0]));
/// average(Some(0.5), &mut z, &[1.0], &mut previous);
/// assert_eq!((z, previous), ([5.5], [4.0])); // 4 + 1 + 0.5·(4 − 3)
/// ```
pub fn average(momentum: Option<f32>, average: &mut [f32], sum: &[f32], previous: &mut [f32]) {
    assert!(average.len() == sum.len() && average.len() == previous.len(), "slices of one length");
    let all = average.iter_mut().zip(sum).zip(previous);
    match momentum {
        Some(momentum) => wide(
            #[inline(always)]
            || {
                for ((z, c), before) in all {
                    let old = *z;
                    *z = (old + *c) + momentum * (old - *before);
                    *before = old;
                }
            },
        ),
        None => wide(
            #[inline(always)]
            || {
                for ((z, c), before) in all {
                    *before = *z;
                    *z += *c;
                }
            },
        ),
    }
}
