//! Bounds the error of products of rounded factors.

use lockstep_cuda::layers::TensorForm;
use lockstep_cuda::{Bf16, Scalar};
use lockstep_models::{Layer, Precision};

use super::case::Case;
use super::chains::Chain;
use crate::emulator::Emulator;
use crate::memory::Memory;
use crate::near_within;

/// Tests the layer alone, since a ReLU's or a maximum's choice is not continuous, with arbitrary numbers.
///
/// With the unit u = 2⁻⁸ of bf16 a factor is off by a relative u, so a product by 2u and little more, and cuDNN's
/// result is rounded again: a sum is off by at most 3u of its terms' magnitudes. TF32 has three bits more. The test
/// also requires that rounding shows.
pub(crate) fn is_bounded(emulator: &mut Emulator, memory: &mut Memory, chain: Chain, channels_last: bool) {
    let alone = |layer: &Layer| matches!(layer, Layer::Conv2d(_) | Layer::Dense(_));
    let layers = chain.layers.into_iter().filter(alone).collect();
    let chain = Chain { layers, ..chain };
    for (precision, unit) in [(Precision::Bf16, 1.0 / 256.0), (Precision::Tf32, 1.0 / 2048.0)] {
        let form = TensorForm { precision, channels_last };
        let case =
            Case { chain: chain.clone(), form, whole: false, spare: 0, place: None, batch: None, all_wanted: false };
        let all = match Scalar::of(precision) {
            Scalar::F32 => case.products::<f32>(emulator, memory),
            Scalar::Bf16 => case.products::<Bf16>(emulator, memory),
        };
        for (got, expected, terms) in &all {
            near_within(3.01 * unit, got, expected, terms, "rounded factors");
        }
        let far = |(got, expected, _): &(Vec<f32>, Vec<f32>, Vec<f32>)| got != expected;
        assert!(all.iter().any(far), "{precision:?} rounds nothing");
    }
}
