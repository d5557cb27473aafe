//! Describes the images that a layer processes, and their memory layout.

use lockstep_models::Shape;

/// Channels of planes, one plane after the other or, with channels last, adjacent at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) channels: u32,
    /// Elements of a channel.
    pub(super) plane: u32,
    last: bool,
}

impl Image {
    pub(super) fn new(shape: Shape, channels_last: bool) -> Image {
        Image { channels: shape.features(), plane: shape.places() as u32, last: channels_last }
    }

    /// A batch in the terms of kernels for channels of planes: samples, channels, plane. With channels last each place
    /// is a sample with planes of one element.
    pub(super) fn batch(self, samples: u32) -> (u32, u32, u32) {
        if self.last { (samples * self.plane, self.channels, 1) } else { (samples, self.channels, self.plane) }
    }

    /// The images that kernels see as planes of pixels, and the adjacent numbers at each pixel: all channels or one.
    pub(super) fn planes(self, samples: u32) -> (u32, u32) {
        if self.last { (samples, self.channels) } else { (samples * self.channels, 1) }
    }
}
