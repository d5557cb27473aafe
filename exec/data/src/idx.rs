//! Reads and writes IDX files, plain or gzipped: the format of MNIST and Fashion-MNIST.
//!
//! A file is two zero bytes, a type (8: unsigned bytes), the number of dimensions, each dimension as a big-endian
//! `u32`, then the values, the last dimension fastest. Sizes in a header are not trusted: memory is allocated only for
//! what has been read.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lockstep_models::Shape;
use lockstep_topology::{InputError, Unreadable, open_file};

/// Type code of unsigned bytes, the only type of images and labels.
const UNSIGNED_BYTE: u8 = 8;

/// The most bytes of values in a file: what could not be held as `f32` is refused by its header.
const MAX_BYTES: u64 = 4 << 30;

/// Values of one file.
#[derive(Debug, PartialEq)]
pub struct Idx {
    /// Sizes of the dimensions, the slowest first.
    pub dims: Vec<u32>,
    /// The values, as many as the product of `dims`.
    pub bytes: Vec<u8>,
}

/// Images and labels of one part of a set.
#[derive(Debug)]
pub struct Images {
    /// The images' file.
    pub place: String,
    /// The labels' file.
    pub labels_place: String,
    /// Shape of an image.
    pub shape: Shape,
    /// `[samples, channels, height, width]`.
    pub images: Vec<u8>,
    /// One per image.
    pub labels: Vec<u32>,
}

/// The images and labels of a folder whose names start with `prefix` (`train`, `t10k`).
///
/// # Errors
/// Files that are missing, damaged, of other dimensions or of unequal numbers; each with place, value and cure.
pub fn part(folder: &Path, prefix: &str) -> Result<Images, InputError> {
    let (place, images) = read(folder, &format!("{prefix}-images"), &[3, 4])?;
    let (labels_place, labels) = read(folder, &format!("{prefix}-labels"), &[1])?;
    if images.dims[0] != labels.dims[0] {
        let message = format!("{place} has {} images: use both files from one set", images.dims[0]);
        return Err(InputError::new(labels_place, format!("{} labels", labels.dims[0]), message));
    }
    let size = &images.dims[1..];
    let (height, width) = (size[size.len() - 2], size[size.len() - 1]);
    let shape = Shape::of_image(if size.len() == 3 { size[0] } else { 1 }, height, width);
    let labels = labels.bytes.into_iter().map(u32::from).collect();
    Ok(Images { place, labels_place, shape, images: images.bytes, labels })
}

/// Finds and reads the file `name`-idxN-ubyte, N one of `dims`, with either usual separator, plain or `.gz`.
fn read(folder: &Path, name: &str, dims: &[u8]) -> Result<(String, Idx), InputError> {
    let names = dims.iter().flat_map(|n| ["-", "."].map(|dash| format!("{name}{dash}idx{n}-ubyte")));
    let candidates = names.flat_map(|name| [name.clone(), format!("{name}.gz")]);
    let found: Option<PathBuf> = candidates.map(|name| folder.join(name)).find(|path| path.exists());
    let Some(path) = found else {
        let message =
            format!("has no {name}-idx{}-ubyte or {name}-idx{}-ubyte.gz: give a folder of IDX files", dims[0], dims[0]);
        return Err(InputError::new(folder.display().to_string(), "", message));
    };
    let place = path.display().to_string();
    let file = open_file(&path).map_err(|error| InputError::new(&place, "", error.with_cure("")))?;
    let idx = decode_from(&place, BufReader::new(file), dims)?;
    Ok((place, idx))
}

/// Encodes an IDX file of unsigned bytes with these dimensions; `values` may be appended later.
pub fn encode(dims: &[u32], values: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, UNSIGNED_BYTE, dims.len() as u8];
    dims.iter().for_each(|dim| file.extend(dim.to_be_bytes()));
    file.extend(values);
    file
}

/// Gzips a file, as such sets are distributed.
///
/// # Errors
/// None for writes to memory.
pub fn compress(file: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(file)?;
    encoder.finish()
}

/// The content of an IDX file of unsigned bytes, plain or gzipped, whose number of dimensions must be in `allowed`;
/// errors name `place`.
///
/// # Errors
/// Another kind of file, or one that is truncated, too long or damaged.
pub fn decode(place: &str, file: &[u8], allowed: &[u8]) -> Result<Idx, InputError> {
    decode_from(place, file, allowed)
}

/// The same of a file that is read only as far as its header promises.
fn decode_from(place: &str, mut file: impl BufRead, allowed: &[u8]) -> Result<Idx, InputError> {
    let unreadable = |error| InputError::new(place, "", Unreadable::System(error).with_cure(""));
    // An IDX file starts with zeros, a gzip stream never does.
    if file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]) {
        decode_plain(place, MultiGzDecoder::new(file), allowed)
    } else {
        decode_plain(place, file, allowed)
    }
}

/// [`decode`] of the decompressed content.
fn decode_plain(place: &str, mut file: impl Read, allowed: &[u8]) -> Result<Idx, InputError> {
    let error = |value: String, message: String| InputError::new(place, value, message);
    let magic = take(place, &mut file, 4, "the magic number")?;
    let wanted = |n: &u8| format!("0x{:08x}", u32::from(UNSIGNED_BYTE) << 8 | u32::from(*n));
    if magic[..3] != [0, 0, UNSIGNED_BYTE] || !allowed.contains(&magic[3]) {
        let found = format!("magic number 0x{:02x}{:02x}{:02x}{:02x}", magic[0], magic[1], magic[2], magic[3]);
        let wanted: Vec<String> = allowed.iter().map(wanted).collect();
        let message = format!("must be {} (IDX, unsigned bytes): is this the right file?", wanted.join(" or "));
        return Err(error(found, message));
    }
    let header = take(place, &mut file, 4 * u64::from(magic[3]), "the dimensions")?;
    let dims: Vec<u32> = header.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
    let bytes = dims.iter().try_fold(1u64, |product, dim| product.checked_mul(u64::from(*dim)));
    let claim = dims.iter().map(u32::to_string).collect::<Vec<_>>().join("×");
    match bytes.filter(|bytes| *bytes <= MAX_BYTES) {
        None => Err(error(claim, format!("more than {MAX_BYTES} values are too many: the header is damaged"))),
        Some(0) => Err(error(claim, "is empty: give a file with samples".into())),
        Some(bytes) => {
            let values = take(place, &mut file, bytes, &format!("the {claim} values"))?;
            let mut rest = Vec::new();
            match file.take(1).read_to_end(&mut rest) {
                Ok(0) => Ok(Idx { dims, bytes: values }),
                Ok(_) => {
                    let message =
                        format!("the header promises {bytes} bytes, but more follow: the file is damaged, restore it");
                    Err(error(claim, message))
                }
                Err(failure) => Err(error(claim, format!("its end cannot be read ({failure}): restore the file"))),
            }
        }
    }
}

/// The next `count` bytes of `file`, or an error that says how many there were.
fn take(place: &str, file: &mut impl Read, count: u64, what: &str) -> Result<Vec<u8>, InputError> {
    let mut bytes = Vec::new();
    let result = file.take(count).read_to_end(&mut bytes);
    if bytes.len() as u64 == count {
        return Ok(bytes);
    }
    let cause = result.err().map_or(String::new(), |error| format!(" ({error})"));
    let message = format!("{count} expected for {what}: the file is truncated or damaged{cause}, restore it");
    Err(InputError::new(place, format!("{} bytes found", bytes.len()), message))
}

#[cfg(test)]
mod tests;
