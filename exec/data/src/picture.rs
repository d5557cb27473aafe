//! Reads the sizes of JPEG and PNG files, decodes, resizes the short side keeping the aspect, and encodes.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use resize::{Pixel, Type};
use rgb::FromSlice;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::pixels::{MOST_PIXELS, Picture};
use crate::png_picture;

/// JPEG quality of re-encoded images.
pub const QUALITY: u8 = 90;

/// A library's message, in one line.
fn as_text(error: &dyn std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A decoder for `colour`, strict, so that a truncated file is an error and not a half-grey image.
fn decoder(jpeg: &[u8], colour: ColorSpace) -> JpegDecoder<ZCursor<&[u8]>> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(colour);
    JpegDecoder::new_with_options(ZCursor::new(jpeg), options)
}

/// The cure for images of other formats.
const CONVERT: &str = "convert such files to JPEG or PNG, e.g. magick mogrify -format png";

/// The format of images that are not read, by their first bytes.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    let has = |at: usize, of: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(of));
    match () {
        () if has(0, b"RIFF") && has(8, b"WEBP") => Some("WebP"),
        () if has(4, b"ftypavif") => Some("AVIF"),
        () if has(4, b"ftyphei") || has(4, b"ftypmif1") => Some("HEIF"),
        () if has(0, b"GIF8") => Some("GIF"),
        () if has(0, b"BM") && bytes.len() > 26 => Some("BMP"),
        () if has(0, b"II*\0") || has(0, b"MM\0*") => Some("TIFF"),
        () if has(0, b"\0\0\0\x0cjP") || has(0, b"\xff\x4f\xff\x51") => Some("JPEG 2000"),
        () if has(0, b"\xff\x0a") || has(0, b"\0\0\0\x0cJXL") => Some("JPEG XL"),
        () if has(0, b"P5") || has(0, b"P6") => Some("PNM"),
        () if has(0, b"\x93NUMPY") => Some("a NumPy array"),
        () => None,
    }
}

/// (width, height, channels) from the header of a JPEG or PNG file.
///
/// # Errors
/// Not a JPEG, a truncated header, or more than [`MOST_PIXELS`].
pub fn size(jpeg: &[u8]) -> Result<(u16, u16, u8), String> {
    if jpeg.starts_with(png_picture::MAGIC) {
        return png_picture::size(jpeg);
    }
    if !jpeg.starts_with(&[0xff, 0xd8]) {
        return Err(match other_format(jpeg) {
            Some(format) => format!("is {format}, which is not read: {CONVERT}"),
            None => "is not a JPEG file (its first bytes must be ff d8) and not a PNG file".to_owned(),
        });
    }
    let mut decoder = decoder(jpeg, ColorSpace::RGB);
    decoder.decode_headers().map_err(|error| format!("is not a JPEG file that can be read: {}", as_text(&error)))?;
    let Some(info) = decoder.info() else { return Err("is not a JPEG file that can be read: no header".to_owned()) };
    let pixels = u64::from(info.width) * u64::from(info.height);
    if pixels == 0 || pixels > MOST_PIXELS {
        let (width, height) = (info.width, info.height);
        return Err(format!("its header claims {width} x {height} pixels: 1 to {MOST_PIXELS} are allowed"));
    }
    Ok((info.width, info.height, if info.components == 1 { 1 } else { 3 }))
}

/// Decodes the pixels of a JPEG or PNG file.
///
/// # Errors
/// As [`size`], and truncated or broken data.
pub fn decode(jpeg: &[u8]) -> Result<Picture, String> {
    if jpeg.starts_with(png_picture::MAGIC) {
        return png_picture::decode(jpeg);
    }
    let (width, height, channels) = size(jpeg)?;
    let colour = if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    let broken = |error: &dyn std::fmt::Display| format!("is a broken JPEG file: {}", as_text(error));
    let pixels = decoder(jpeg, colour).decode().map_err(|error| broken(&error))?;
    if pixels.len() != usize::from(width) * usize::from(height) * usize::from(channels) {
        return Err(broken(&format!("{} values of {width} x {height} x {channels}", pixels.len())));
    }
    // A decoder may pad truncated data; a whole file ends with its marker.
    if !jpeg.windows(2).rev().any(|pair| pair == [0xff, 0xd9]) {
        return Err(broken(&"it has no end, so it is truncated"));
    }
    Ok(Picture { width, height, channels, pixels })
}

/// Encodes pixels as a baseline JPEG of `quality` (1 to 100), with chroma at half the resolution.
///
/// # Errors
/// Encoder errors.
pub(crate) fn encode(picture: &Picture, quality: u8) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let colour = if picture.channels == 1 { ColorType::Luma } else { ColorType::Rgb };
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    let encoded = encoder.encode(&picture.pixels, picture.width, picture.height, colour);
    encoded.map_err(|error| format!("cannot be encoded: {error}")).map(|()| bytes)
}

/// (width, height) with a short side of `short`, the aspect kept, rounded to the nearest pixel.
pub(crate) fn shortened((width, height): (u16, u16), short: u16) -> (u16, u16) {
    let (least, most) = (u32::from(width.min(height)), u32::from(width.max(height)));
    let long = ((2 * most * u32::from(short) + least) / (2 * least)).min(u32::from(u16::MAX)) as u16;
    if width <= height { (short, long) } else { (long, short) }
}

/// Resizes to a short side of `short`, averaging over each new pixel's area with linear weights, like PIL's `BILINEAR`.
fn resize(picture: &Picture, short: u16) -> Result<Picture, String> {
    let (width, height) = shortened((picture.width, picture.height), short);
    let wrong = |error: resize::Error| format!("cannot be resized to {width} x {height}: {error}");
    let [from_width, from_height, to_width, to_height] =
        [picture.width, picture.height, width, height].map(usize::from);
    let mut pixels = vec![0; to_width * to_height * usize::from(picture.channels)];
    if picture.channels == 1 {
        resize::new(from_width, from_height, to_width, to_height, Pixel::Gray8, Type::Triangle)
            .and_then(|mut resizer| resizer.resize(picture.pixels.as_gray(), pixels.as_gray_mut()))
            .map_err(wrong)?;
    } else {
        resize::new(from_width, from_height, to_width, to_height, Pixel::RGB8, Type::Triangle)
            .and_then(|mut resizer| resizer.resize(picture.pixels.as_rgb(), pixels.as_rgb_mut()))
            .map_err(wrong)?;
    }
    Ok(Picture { width, height, channels: picture.channels, pixels })
}

/// A JPEG or PNG file as stored, with width and height: resized if its short side is longer than `short` (0: never), else
/// unchanged (`None`). Resized ones are JPEG files. Every image is decoded, so that no broken file is stored.
///
/// # Errors
/// A broken file, or one with too many pixels.
pub fn keep(jpeg: &[u8], short: u16) -> Result<(Option<Vec<u8>>, u16, u16), String> {
    let picture = decode(jpeg)?;
    if short == 0 || picture.width.min(picture.height) <= short {
        return Ok((None, picture.width, picture.height));
    }
    let small = resize(&picture, short)?;
    Ok((Some(encode(&small, QUALITY)?), small.width, small.height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aspect_is_kept() {
        assert_eq!(shortened((500, 375), 256), (341, 256));
        assert_eq!(shortened((375, 500), 256), (256, 341));
        assert_eq!(shortened((256, 256), 256), (256, 256));
    }

    #[test]
    fn decompression_bombs_are_refused() {
        let picture = Picture { width: 8, height: 8, channels: 3, pixels: vec![100; 192] };
        let mut jpeg = encode(&picture, 90).unwrap();
        let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].fill(0xff);
        assert!(size(&jpeg).unwrap_err().contains("65535 x 65535"), "{:?}", size(&jpeg));
    }

    #[test]
    fn resizing_keeps_uniform_pictures_and_short_sides() {
        let picture = Picture { width: 40, height: 20, channels: 1, pixels: vec![77; 800] };
        let jpeg = encode(&picture, 100).unwrap();
        let (kept, width, height) = keep(&jpeg, 10).unwrap();
        let small = decode(&kept.unwrap()).unwrap();
        assert_eq!((small.width, small.height, small.channels, width, height), (20, 10, 1, 20, 10));
        assert!(small.pixels.iter().all(|value| value.abs_diff(77) <= 1));
        assert_eq!(keep(&jpeg, 20).unwrap(), (None, 40, 20));
        assert!((2..jpeg.len() - 1).all(|end| decode(&jpeg[..end]).is_err()), "every cut is found");
    }
}
