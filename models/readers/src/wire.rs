//! Parses the wire format of Protocol Buffers: fields with their numbers and the bytes where they begin.
//!
//! Written by hand, since ONNX and Caffe need four wire types and a mistake must be reported at its byte; a library
//! would add a dependency and lose the position.

/// A mistake in the bytes and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) offset: usize,
    pub(super) message: String,
}

/// A piece of the file and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) offset: usize,
}

/// The content of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// Text, raw bytes, packed numbers or a message.
    Bytes(Piece<'a>),
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) number: u64,
    pub(super) value: Value<'a>,
    offset: usize,
}

impl<'a> Piece<'a> {
    /// All fields of the message in these bytes.
    pub(super) fn fields(self) -> Result<Vec<Field<'a>>, Malformed> {
        let mut reader = Reader { piece: self, at: 0 };
        let mut fields = Vec::new();
        while reader.at < self.bytes.len() {
            fields.push(reader.field()?);
        }
        Ok(fields)
    }

    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, Malformed> {
        Err(Malformed { offset: self.offset + at, message: message.into() })
    }
}

impl<'a> Field<'a> {
    /// A message, or the bytes of something else.
    pub(super) fn piece(&self) -> Result<Piece<'a>, Malformed> {
        match self.value {
            Value::Bytes(piece) => Ok(piece),
            _ => self.wrong("bytes"),
        }
    }

    /// A text.
    pub(super) fn text(&self) -> Result<&'a str, Malformed> {
        let piece = self.piece()?;
        std::str::from_utf8(piece.bytes).or_else(|_| piece.error(0, "a name that is not UTF-8"))
    }

    /// A whole number.
    pub(super) fn integer(&self) -> Result<i64, Malformed> {
        match self.value {
            Value::Varint(number) => Ok(number as i64),
            _ => self.wrong("a whole number"),
        }
    }

    /// A number in single precision.
    pub(super) fn float(&self) -> Result<f32, Malformed> {
        match self.value {
            Value::Fixed32(bits) => Ok(f32::from_bits(bits)),
            _ => self.wrong("a float"),
        }
    }

    /// Whole numbers, packed or single.
    pub(super) fn integers(&self, into: &mut Vec<i64>) -> Result<(), Malformed> {
        let Value::Bytes(piece) = self.value else { return self.integer().map(|number| into.push(number)) };
        let mut reader = Reader { piece, at: 0 };
        while reader.at < piece.bytes.len() {
            into.push(reader.varint()? as i64);
        }
        Ok(())
    }

    /// Numbers in single precision, packed or single.
    pub(super) fn floats(&self, into: &mut Vec<f32>) -> Result<(), Malformed> {
        let Value::Bytes(piece) = self.value else { return self.float().map(|number| into.push(number)) };
        let (numbers, rest) = piece.bytes.as_chunks();
        into.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        if rest.is_empty() { Ok(()) } else { piece.error(0, "floats that are cut") }
    }

    /// Numbers in double precision, packed or single, rounded.
    pub(super) fn doubles(&self, into: &mut Vec<f32>) -> Result<(), Malformed> {
        let piece = match self.value {
            Value::Bytes(piece) => piece,
            Value::Fixed64(bits) => {
                into.push(f64::from_bits(bits) as f32);
                return Ok(());
            }
            _ => return self.wrong("a double"),
        };
        let (numbers, rest) = piece.bytes.as_chunks();
        into.extend(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32));
        if rest.is_empty() { Ok(()) } else { piece.error(0, "doubles that are cut") }
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T, Malformed> {
        Err(Malformed { offset: self.offset, message: format!("field {} is not {wanted}", self.number) })
    }
}

struct Reader<'a> {
    piece: Piece<'a>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let start = self.at;
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Value::Fixed64(u64::from_le_bytes(std::array::from_fn(|at| bytes[at])))
            }
            2 => {
                let length = self.varint()?;
                let offset = self.piece.offset + self.at;
                let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
                Value::Bytes(Piece { bytes, offset })
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
            kind => return self.piece.error(start, format!("a field of the unknown wire type {kind}")),
        };
        match tag >> 3 {
            0 => self.piece.error(start, "a field with the number 0"),
            number => Ok(Field { number, value, offset: self.piece.offset + start }),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let rest = &self.piece.bytes[self.at..];
        let Some(bytes) = rest.get(..length) else {
            return self.piece.error(self.at, format!("{length} bytes should follow, but {} do", rest.len()));
        };
        self.at += length;
        Ok(bytes)
    }

    /// Seven bits per byte, the lowest first; the last byte has no high bit.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        self.piece.error(start, "a number of more than 64 bits")
    }
}
