//! Where numbers of images lie on the device's side.

use lockstep_cuda::layers::Form;
use lockstep_models::Shape;

use crate::memory::Real;

/// `numbers` of samples of a shape, channels first, as the device's side has them.
pub(crate) fn lay<A: Real>(form: Form, numbers: &[f32], shape: Shape) -> Vec<A> {
    let mut laid = vec![A::nearest(0.0); numbers.len()];
    each_place(form, shape, numbers.len(), |plain, place| laid[place] = A::nearest(numbers[plain]));
    laid
}

/// What the device's side holds, channels first.
pub(crate) fn plain(form: Form, laid: &[f32], shape: Shape) -> Vec<f32> {
    let mut numbers = vec![f32::NAN; laid.len()];
    each_place(form, shape, laid.len(), |plain, place| numbers[plain] = laid[place]);
    numbers
}

/// Where each of `elements` numbers lies, channels first and as the device's side has them.
fn each_place(form: Form, shape: Shape, elements: usize, mut visit: impl FnMut(usize, usize)) {
    let (channels, plane) = (shape.channels as usize, (shape.height * shape.width) as usize);
    for at in 0..elements {
        let (sample, channel, place) = (at / (channels * plane), at / plane % channels, at % plane);
        let last = (sample * plane + place) * channels + channel;
        visit(at, if form.channels_last { last } else { at });
    }
}
