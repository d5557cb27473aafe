//! Computes the number of positions of a window that moves over an image, and refuses bad sizes.

use super::{ImageShape, Shape};

/// Largest kernel, stride, padding or dilation: small enough that no sum of their products leaves `u64`.
pub(super) const MAX_WINDOW: u32 = 1 << 16;

/// Sizes of a window must be 1 to [`MAX_WINDOW`] (padding may be zero).
pub(super) fn check_window(name: &str, pair: (u32, u32), least: u32) -> Result<(), String> {
    for size in [pair.0, pair.1] {
        if !(least..=MAX_WINDOW).contains(&size) {
            return Err(format!("{name} is {size}: it must be between {least} and {MAX_WINDOW}"));
        }
    }
    Ok(())
}

/// The image that a layer on images takes.
pub(super) fn image_of(input: Shape) -> Result<ImageShape, String> {
    input
        .as_image()
        .ok_or_else(|| format!("takes images, but its input is {input}: put a layer before it that makes one"))
}

/// Places of a window of `extent` that moves by `stride` over `size` places with `padding` on each side; the error is
/// the padded size.
pub(super) fn places(size: u32, extent: u64, stride: u32, padding: u32, ceil: bool) -> Result<u32, u64> {
    let padded = u64::from(size) + 2 * u64::from(padding);
    let stride = u64::from(stride);
    let room = padded.checked_sub(extent).ok_or(padded)?;
    let mut count = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
    // Caffe's rule: a partial window must still start before the image's end.
    if ceil && (count - 1) * stride >= u64::from(size) + u64::from(padding) {
        count -= 1;
    }
    u32::try_from(count).map_err(|_| padded)
}

/// The message for a window that does not fit its input.
pub(super) fn too_large(name: &str, kernel: u32, extent: u64, padded: u64, input: Shape) -> String {
    let spread = if extent == u64::from(kernel) { String::new() } else { format!(" (dilated to {extent})") };
    format!(
        "a kernel of {kernel}{spread} does not fit the {name} of its input {input} ({padded} with padding): use a \
         smaller kernel or more padding"
    )
}
