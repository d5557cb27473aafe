//! Biases by the project's own kernel, where cuDNN or cuBLASLt does not add them: in place, with a ReLU or without.

use crate::device::cuda::argument::{View, ViewMut};
use crate::device::cuda::command::{Convolve, Multiply};
use crate::device::cuda::table::{Call, ChannelAffine, Launch};

/// That of a convolution's output, if it has one.
pub(super) fn of_channels(of: &Convolve) -> Option<Call> {
    let (samples, shape) = (of.of.samples, of.of.output);
    let plane = shape.height * shape.width;
    let (samples, plane) = if of.of.channels_last { (samples * plane, 1) } else { (samples, plane) };
    Some(affine(of.result, of.bias?, samples, shape.channels, plane, of.rectified))
}

/// That of a product's columns, if it has one.
pub(super) fn of_columns(of: &Multiply) -> Option<Call> {
    Some(affine(of.c, of.bias?, of.rows, of.columns, 1, of.rectified))
}

fn affine(tensor: u64, bias: u64, samples: u32, channels: u32, plane: u32, rectified: bool) -> Call {
    let elements = u64::from(samples) * u64::from(channels) * u64::from(plane);
    let y = ViewMut::<f32>::new(tensor, elements);
    let summands = Some(View::new(bias, channels.into()));
    ChannelAffine { x: y.view(), factors: None, summands, y, samples, channels, plane, rectified, accumulate: false }
        .call()
}
