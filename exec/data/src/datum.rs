//! Reads Caffe's `Datum`, the message in which its LMDB sets store a sample (`caffe.proto`).

use lockstep_models::{ImageShape, Shape};
use prost::Message;

/// A sample: a raw array of bytes, or an encoded image.
#[derive(Clone, PartialEq, Message)]
pub struct Datum {
    /// Channels of a raw array.
    #[prost(int32, optional, tag = "1")]
    pub channels: Option<i32>,
    /// Rows.
    #[prost(int32, optional, tag = "2")]
    pub height: Option<i32>,
    /// Columns.
    #[prost(int32, optional, tag = "3")]
    pub width: Option<i32>,
    /// Values of `[channels, height, width]`, or the encoded image.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub data: Option<Vec<u8>>,
    /// Class.
    #[prost(int32, optional, tag = "5")]
    pub label: Option<i32>,
    /// Values instead of bytes, which image sets do not use.
    #[prost(float, repeated, tag = "6")]
    pub float_data: Vec<f32>,
    /// Whether `data` is an encoded image.
    #[prost(bool, optional, tag = "7")]
    pub encoded: Option<bool>,
}

/// The cure where a value is no sample.
const WRITE: &str = "write Caffe's Datum (caffe.proto), or pack a folder of class folders";

/// A checked sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatumSample {
    /// Shape of a raw array; `None` for an encoded image.
    pub shape: Option<Shape>,
    /// Class.
    pub label: u32,
    /// The array or the encoded image.
    pub data: Vec<u8>,
}

/// Reads the sample in a `Datum`'s bytes.
///
/// # Errors
/// Not a `Datum`, floats instead of bytes, a negative label, or a shape that does not match the data.
pub fn read(bytes: &[u8]) -> Result<DatumSample, String> {
    if bytes.starts_with(&[0x80]) && bytes.ends_with(b".") {
        return Err(format!("is a pickled Python object, not a Datum: {WRITE}"));
    }
    let datum = Datum::decode(bytes).map_err(|error| format!("is not a Datum: {error}: {WRITE}"))?;
    if !datum.float_data.is_empty() {
        return Err(format!("keeps floats; images are kept as bytes from 0 to 255: {WRITE}"));
    }
    let label = datum.label.unwrap_or(0);
    let Ok(label) = u32::try_from(label) else { return Err(format!("its label {label} must be 0 or more")) };
    let data = datum.data.unwrap_or_default();
    if data.is_empty() {
        return Err("has no data".to_owned());
    }
    if datum.encoded.unwrap_or(false) {
        return Ok(DatumSample { shape: None, label, data });
    }
    let size = |value: Option<i32>| value.and_then(|value| u16::try_from(value).ok()).map_or(0, u32::from);
    let size = ImageShape { channels: size(datum.channels), height: size(datum.height), width: size(datum.width) };
    // Rows and columns before channels: images have at most four channels.
    if size.channels > 4 && size.height > 4 && matches!(size.width, 1 | 3 | 4) {
        return Err(format!(
            "its {} channels, {} rows and {} columns are in the order height, width, channels, as NumPy has them: write \
             it with image.transpose(2, 0, 1)",
            size.channels, size.height, size.width
        ));
    }
    let shape = size.shape();
    if shape.elements() != data.len() as u64 {
        return Err(format!("its {} bytes are no array of {shape}", data.len()));
    }
    Ok(DatumSample { shape: Some(shape), label, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_sample_is_refused_with_a_cure() {
        let datum = |channels, height, width| Datum {
            channels: Some(channels),
            height: Some(height),
            width: Some(width),
            data: Some(vec![0; (channels * height * width) as usize]),
            label: Some(1),
            float_data: Vec::new(),
            encoded: None,
        };
        assert!(read(&datum(3, 24, 32).encode_to_vec()).is_ok());
        assert!(read(&datum(512, 1, 1).encode_to_vec()).is_ok(), "features");
        let swapped = read(&datum(24, 32, 3).encode_to_vec()).unwrap_err();
        assert!(swapped.contains("height, width, channels") && swapped.contains("transpose(2, 0, 1)"), "{swapped}");
        let floats = Datum { float_data: vec![0.5], ..datum(1, 1, 1) };
        assert!(read(&floats.encode_to_vec()).unwrap_err().contains("write Caffe's Datum"));
        assert!(read(b"\x80\x04K\x01.").unwrap_err().contains("pickled"));
    }
}
