//! The images that a layer works on, and how they lie.

use lockstep_models::Shape;

/// Channels of planes, one behind the other or, channels last, side by side at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) channels: u32,
    /// Elements of a channel.
    pub(super) plane: u32,
    last: bool,
}

impl Image {
    pub(super) fn new(shape: Shape, channels_last: bool) -> Image {
        Image { channels: shape.channels, plane: shape.height * shape.width, last: channels_last }
    }

    /// A batch as kernels take it that know channels of planes: samples, channels, plane. With channels last each place is a
    /// sample of planes of one.
    pub(super) fn batch(self, samples: u32) -> (u32, u32, u32) {
        if self.last { (samples * self.plane, self.channels, 1) } else { (samples, self.channels, self.plane) }
    }

    /// Images of which kernels see planes of pixels, and the numbers side by side at each: all channels or one.
    pub(super) fn planes(self, samples: u32) -> (u32, u32) {
        if self.last { (samples, self.channels) } else { (samples * self.channels, 1) }
    }
}
