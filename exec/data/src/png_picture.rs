//! Decodes PNG files of every kind to 8 bits per channel, grey or RGB.

use std::io::Cursor;

use png::{ColorType, Decoder, Reader, Transformations};

use crate::pixels::{MOST_PIXELS, Picture};

/// The first bytes of every PNG file.
pub(crate) const MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A reader of a file in memory.
type FileReader<'a> = Reader<Cursor<&'a [u8]>>;

/// A reader after the header; palettes, small and large depths become 8 bits per channel.
fn reader(file: &[u8]) -> Result<(FileReader<'_>, Header), String> {
    let unread = |error: png::DecodingError| format!("is not a PNG file that can be read: {error}");
    let mut decoder = Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let info = decoder.read_header_info().map_err(unread)?;
    let (width, height) = (info.width, info.height);
    let pixels = u64::from(width) * u64::from(height);
    let sides = (u16::try_from(width), u16::try_from(height));
    let ((Ok(width), Ok(height)), 1..=MOST_PIXELS) = (sides, pixels) else {
        return Err(format!("its header claims {width} x {height} pixels: 1 to {MOST_PIXELS} are allowed"));
    };
    let grey = matches!(info.color_type, ColorType::Grayscale | ColorType::GrayscaleAlpha);
    let reader = decoder.read_info().map_err(unread)?;
    Ok((reader, Header { width, height, channels: if grey { 1 } else { 3 } }))
}

/// What a header says.
struct Header {
    width: u16,
    height: u16,
    /// Without alpha.
    channels: u8,
}

/// (width, height, channels) from the header.
///
/// # Errors
/// A broken header, or more than [`MOST_PIXELS`].
pub(crate) fn size(file: &[u8]) -> Result<(u16, u16, u8), String> {
    reader(file).map(|(_, header)| (header.width, header.height, header.channels))
}

/// Decodes the pixels; alpha is left out, as PIL's `convert("RGB")` does.
///
/// # Errors
/// As [`size`], and truncated or broken data.
pub(crate) fn decode(file: &[u8]) -> Result<Picture, String> {
    let (mut reader, Header { width, height, channels }) = reader(file)?;
    let broken = |error: &dyn std::fmt::Display| format!("is a broken PNG file: {error}");
    let Some(length) = reader.output_buffer_size() else { return Err(broken(&"it has too many pixels")) };
    let mut pixels = vec![0; length];
    let frame = reader.next_frame(&mut pixels).map_err(|error| broken(&error))?;
    reader.finish().map_err(|error| broken(&error))?;
    pixels.truncate(frame.buffer_size());
    let stored = frame.color_type.samples();
    let kept = usize::from(channels);
    if stored != kept {
        pixels = pixels.chunks_exact(stored).flat_map(|pixel| &pixel[..kept]).copied().collect();
    }
    if pixels.len() != usize::from(width) * usize::from(height) * kept {
        return Err(broken(&format!("{} values of {width} x {height} x {channels}", pixels.len())));
    }
    Ok(Picture { width, height, channels, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;
    use png::{BitDepth, Encoder};

    /// A file of one row of samples.
    fn file(width: u32, colour: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, width, 1);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == ColorType::Indexed {
            encoder.set_palette(vec![1, 2, 3, 40, 50, 60]);
            encoder.set_trns(vec![0, 255]);
        }
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(data).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn all_colours_and_depths_become_8_bits_without_alpha() {
        use BitDepth::{Eight, One, Sixteen};
        use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
        for (width, colour, depth, data, channels, expected) in [
            (2, Grayscale, Eight, &[7, 200][..], 1, &[7, 200][..]),
            (2, Grayscale, One, &[0b0100_0000], 1, &[0, 255]),
            (1, Grayscale, Sixteen, &[9, 99], 1, &[9]),
            (2, GrayscaleAlpha, Eight, &[7, 1, 8, 2], 1, &[7, 8]),
            (1, Rgb, Eight, &[1, 2, 3], 3, &[1, 2, 3]),
            (1, Rgb, Sixteen, &[1, 99, 2, 99, 3, 99], 3, &[1, 2, 3]),
            (2, Rgba, Eight, &[1, 2, 3, 0, 4, 5, 6, 9], 3, &[1, 2, 3, 4, 5, 6]),
            (2, Indexed, Eight, &[1, 0], 3, &[40, 50, 60, 1, 2, 3]),
        ] {
            let file = file(width, colour, depth, data);
            let picture = decode(&file).unwrap();
            assert_eq!((picture.channels, &picture.pixels[..]), (channels, expected), "{colour:?} {depth:?}");
            assert_eq!(size(&file).unwrap(), (width as u16, 1, channels));
            assert!((0..file.len()).all(|end| decode(&file[..end]).is_err()), "every cut is found: {colour:?}");
            for (at, bit) in (0..file.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                // Chunks have checksums; those of an ancillary chunk may be skipped.
                let unharmed = |of: &Picture| (of.width, of.height) == (picture.width, picture.height);
                assert!(decode(&changed).as_ref().map_or(true, unharmed), "{colour:?} {depth:?}: byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn claims_of_many_pixels_are_refused_before_decoding() {
        let mut large = Vec::new();
        let writer = Encoder::new(&mut large, 60_000, 60_000).write_header().unwrap();
        drop(writer);
        assert!(decode(&large).unwrap_err().contains("60000 x 60000"));
    }
}
