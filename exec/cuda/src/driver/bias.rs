//! Adds biases with the project's own kernel where cuDNN or cuBLASLt does not: in place, with a ReLU or without.

use crate::argument::{Activation, Bf16, Scalar, View, ViewMut};
use crate::command::{Convolve, Multiply};
use crate::kernel::{KernelCall, KernelLaunch};
use crate::table::ChannelAffine;

/// Samples, channels, and contiguous places of a channel.
type Sizes = (u32, u32, u32);

/// The launch for a convolution's output, if it has a bias.
pub(super) fn of_channels(of: &Convolve) -> Option<KernelCall> {
    let (samples, shape) = (of.of.samples, of.of.output);
    let plane = shape.pixels() as u32;
    // With channels last, each pixel is a sample of one place.
    let (samples, plane) = if of.of.channels_last { (samples * plane, 1) } else { (samples, plane) };
    Some(affine(Scalar::of(of.of.precision), of.result, of.bias?, (samples, shape.channels, plane), of.rectified))
}

/// The launch for a product's columns, if it has a bias.
pub(super) fn of_columns(of: &Multiply) -> Option<KernelCall> {
    Some(affine(of.result, of.c, of.bias?, (of.rows, of.columns, 1), of.rectified))
}

fn affine(scalar: Scalar, tensor: u64, bias: u64, sizes: Sizes, rectified: bool) -> KernelCall {
    match scalar {
        Scalar::F32 => affine_of::<f32>(tensor, bias, sizes, rectified),
        Scalar::Bf16 => affine_of::<Bf16>(tensor, bias, sizes, rectified),
    }
}

fn affine_of<A: Activation>(tensor: u64, bias: u64, (samples, channels, plane): Sizes, rectified: bool) -> KernelCall {
    let elements = u64::from(samples) * u64::from(channels) * u64::from(plane);
    let y = ViewMut::<A>::new(tensor, elements);
    let biases = Some(View::new(bias, channels.into()));
    ChannelAffine { x: y.view(), factors: None, biases, y, samples, channels, plane, rectified, accumulate: false }
        .call()
}
