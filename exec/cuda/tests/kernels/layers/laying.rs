//! Converts images between channels first and the layout of the device's side.

use lockstep_cuda::layers::TensorForm;
use lockstep_models::Shape;

use crate::memory::Real;

/// `numbers` of samples of a shape, channels first, in the layout of the device's side.
pub(crate) fn lay<A: Real>(form: TensorForm, numbers: &[f32], shape: Shape) -> Vec<A> {
    let mut laid = vec![A::nearest(0.0); numbers.len()];
    each_place(form, shape, numbers.len(), |plain, place| laid[place] = A::nearest(numbers[plain]));
    laid
}

/// The content of the device's side, channels first.
pub(crate) fn plain(form: TensorForm, laid: &[f32], shape: Shape) -> Vec<f32> {
    let mut numbers = vec![f32::NAN; laid.len()];
    each_place(form, shape, laid.len(), |plain, place| numbers[plain] = laid[place]);
    numbers
}

/// The index of each of `elements` numbers, channels first and on the device's side.
fn each_place(form: TensorForm, shape: Shape, elements: usize, mut visit: impl FnMut(usize, usize)) {
    let (channels, plane) = (shape.features() as usize, shape.places() as usize);
    for at in 0..elements {
        let (sample, channel, place) = (at / (channels * plane), at / plane % channels, at % plane);
        let last = (sample * plane + place) * channels + channel;
        visit(at, if form.channels_last { last } else { at });
    }
}
