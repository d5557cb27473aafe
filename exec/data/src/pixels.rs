//! Defines decoded images.

/// The most pixels of an image, 2^26: larger ones are refused by their header, before decoding.
pub const MOST_PIXELS: u64 = 1 << 26;

/// Decoded pixels, `[height, width, channels]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// 1 (grey) or 3 (RGB).
    pub channels: u8,
    /// `height` · `width` · `channels` values.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Rows and columns.
    pub fn size(&self) -> (usize, usize) {
        (self.height.into(), self.width.into())
    }
}
