//! Declares the kernel that makes samples from decoded pictures: `pictures.cu`.

use super::PICTURES;
use crate::kernel::{kernels, product};
use crate::{Geometry, View, ViewMut};

kernels! {
    /// Samples, `[samples, channels, height, width]`, from decoded pictures, as [`picture_words`](crate::picture_words) packs them.
    TransformPictures = PICTURES::transform_pictures on Geometry::threads(product([samples, height, width])); {
        words: View<u32>[2 * u64::from(channels)],
        images: ViewMut<f32>[product([samples, channels, height, width])],
        samples: u32,
        channels: u32,
        height: u32,
        width: u32,
    }
}
