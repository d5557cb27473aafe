//! Reads a safetensors file: eight bytes with the length of its header, the header in JSON, and the bytes of its tensors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lockstep_topology::{InputError, open_file};
use serde_json::{Map, Value};

/// The longest header that the library of this format reads.
const LONGEST: u64 = 100_000_000;

/// Formats of numbers, and the bytes of each.
const FORMATS: [(&str, u64); 15] = [
    ("BOOL", 1),
    ("U8", 1),
    ("I8", 1),
    ("F8_E4M3", 1),
    ("F8_E5M2", 1),
    ("U16", 2),
    ("I16", 2),
    ("F16", 2),
    ("BF16", 2),
    ("U32", 4),
    ("I32", 4),
    ("F32", 4),
    ("U64", 8),
    ("I64", 8),
    ("F64", 8),
];

/// A format that weights are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `F32`.
    F32,
    /// `BF16`: the upper half of an fp32 number.
    Bf16,
    /// `F16`, of IEEE 754.
    F16,
}

impl Format {
    /// The format of that name.
    pub(super) fn of(name: &str) -> Option<Format> {
        match name {
            "F32" => Some(Format::F32),
            "BF16" => Some(Format::Bf16),
            "F16" => Some(Format::F16),
            _ => None,
        }
    }

    /// Bytes of a number.
    pub(super) fn bytes(self) -> u64 {
        if self == Format::F32 { 4 } else { 2 }
    }
}

/// The number in these bits of `BF16`.
pub(super) fn bf16(bits: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16)
}

/// The number in these bits of `F16`: a sign, 5 bits of an exponent, 10 of a fraction.
pub(super) fn f16(bits: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bits));
    let (sign, exponent, fraction) = (bits >> 15 << 31, bits >> 10 & 0x1f, bits & 0x3ff);
    let magnitude = match exponent {
        // Times 2⁻²⁴, which is exact.
        0 => (fraction as f32 * f32::from_bits(103 << 23)).to_bits(),
        0x1f => 0xff << 23 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// Where bytes are read from.
#[derive(Debug)]
pub(super) enum Content {
    /// A file, a piece at a time.
    File(File),
    /// Memory.
    Bytes(Vec<u8>),
}

impl Content {
    fn length(&self) -> io::Result<u64> {
        match self {
            Content::File(file) => Ok(file.metadata()?.len()),
            Content::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn read(&self, from: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Content::File(file) => file.read_exact_at(into, from),
            Content::Bytes(bytes) => {
                let rest = usize::try_from(from).ok().and_then(|from| bytes.get(from..)?.get(..into.len()));
                into.copy_from_slice(rest.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// The name of its format.
    pub(super) format: String,
    pub(super) shape: Vec<u64>,
    /// Its first byte.
    pub(super) start: u64,
    /// The byte behind it.
    end: u64,
}

/// A file and its tensors.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) file: String,
    content: Content,
    pub(super) tensors: BTreeMap<String, Stored>,
}

impl Shard {
    /// The file at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, is cut, or is none of safetensors.
    pub(super) fn open(path: &Path) -> Result<Shard, InputError> {
        let shown = path.display().to_string();
        let unreadable = |message: String| InputError::new(&*shown, "", message);
        let file = open_file(path).map_err(|error| unreadable(error.with_cure("name a file of weights")))?;
        Shard::of(&shown, Content::File(file))
    }

    /// The content of `file`.
    ///
    /// # Errors
    /// As [`Shard::open`].
    pub(super) fn of(file: &str, content: Content) -> Result<Shard, InputError> {
        let wrong = |message: String| InputError::new(file, "", message);
        let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}; name a file of weights"));
        let length = content.length().map_err(unreadable)?;
        let mut number = [0; 8];
        if length < 8 {
            return Err(wrong(format!(
                "has {length} bytes, and a file of safetensors begins with eight: copy it again"
            )));
        }
        content.read(0, &mut number).map_err(unreadable)?;
        let header = u64::from_le_bytes(number);
        if header > LONGEST {
            let message = format!("is no file of safetensors: its header would have {header} bytes; name one");
            return Err(wrong(message));
        }
        if header > length - 8 {
            let message =
                format!("is cut: its header has {header} bytes, and {} follow its length; copy it again", length - 8);
            return Err(wrong(message));
        }
        let mut text = vec![0; header as usize];
        content.read(8, &mut text).map_err(unreadable)?;
        let tensors = tensors(&text, length - 8 - header).map_err(|(name, message)| match name {
            Some(name) => InputError::new(file, format!("tensor \"{name}\""), message),
            None => wrong(message),
        })?;
        let moved = tensors.into_iter().map(|(name, of)| {
            let (start, end) = (of.start + 8 + header, of.end + 8 + header);
            (name, Stored { start, end, ..of })
        });
        Ok(Shard { file: file.to_owned(), content, tensors: moved.collect() })
    }

    /// Reads bytes from a tensor's first on.
    ///
    /// # Errors
    /// A file that has changed, or an error of the system.
    pub(super) fn read(&self, of: &Stored, from: u64, into: &mut [u8]) -> Result<(), InputError> {
        let message = |error: io::Error| format!("cannot be read: {error}; do not change it meanwhile");
        self.content.read(of.start + from, into).map_err(|error| InputError::new(&*self.file, "", message(error)))
    }
}

/// What is wrong, with the tensor that it is about.
type Wrong = (Option<String>, String);

/// The tensors in a header, before `length` bytes that belong to them, without gaps; they begin where those do.
fn tensors(header: &[u8], length: u64) -> Result<BTreeMap<String, Stored>, Wrong> {
    let whole = |message: String| (None, message);
    let value: Value = serde_json::from_slice(header).map_err(|error| {
        whole(format!("its header is no JSON ({error}): copy it again, or name a file of safetensors"))
    })?;
    let Value::Object(map) = value else {
        return Err(whole("its header is no object: name a file of safetensors".to_owned()));
    };
    let mut tensors = BTreeMap::new();
    for (name, value) in map.into_iter().filter(|(name, _)| name != "__metadata__") {
        let of = value.as_object().and_then(stored);
        let Some(of) = of else {
            let message =
                "needs dtype, shape and data_offsets, a text, whole numbers, and two of them: write the file again";
            return Err((Some(name), message.to_owned()));
        };
        let size = FORMATS.iter().find(|(format, _)| *format == of.format).map(|(_, bytes)| *bytes);
        let elements = of.shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        let bytes = elements.and_then(|elements| elements.checked_mul(size.unwrap_or(1)));
        let own = of.end.checked_sub(of.start);
        if own.is_none() || (size.is_some() && own != bytes) {
            let (format, shape) = (&of.format, shown(&of.shape));
            let message =
                format!("is from byte {} to {}, which is not {shape} of {format}: copy it again", of.start, of.end);
            return Err((Some(name), message));
        }
        tensors.insert(name, of);
    }
    let mut in_order: Vec<(&String, &Stored)> = tensors.iter().collect();
    in_order.sort_by_key(|(_, of)| (of.start, of.end));
    let mut end = 0;
    for (name, of) in in_order {
        if of.start != end {
            let message = format!(
                "begins at byte {} of the tensors, and the one before ends at {end}: write the file again",
                of.start
            );
            return Err((Some(name.clone()), message));
        }
        end = of.end;
    }
    if end > length {
        return Err(whole(format!("is cut: its tensors have {end} bytes, and {length} are there; copy it again")));
    }
    if end < length {
        return Err(whole(format!("its tensors have {end} bytes, and {length} are there: copy it again")));
    }
    Ok(tensors)
}

/// The tensor that an entry of a header describes.
fn stored(of: &Map<String, Value>) -> Option<Stored> {
    let numbers = |key: &str| of.get(key)?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    let format = of.get("dtype")?.as_str()?.to_owned();
    match numbers("data_offsets")?[..] {
        [start, end] => Some(Stored { format, shape: numbers("shape")?, start, end }),
        _ => None,
    }
}

/// A shape, for messages.
pub(super) fn shown(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    if sizes.is_empty() { "one number".to_owned() } else { sizes.join("×") }
}
