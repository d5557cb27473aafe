//! Encodes and decodes the packed file format: a header page, the samples one after the other, then an entry for each;
//! all numbers little-endian.

use lockstep_models::Shape;

use crate::normalisation::Normalisation;

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"lockpack";
/// Version of the format; a reader refuses others.
pub const VERSION: u32 = 1;
/// Bytes before the first sample: a page.
pub const BLOB: u64 = 4096;
/// Bytes of the header including its checksum; the channels' mean and deviation follow.
const HEADER: usize = 64;
/// The most channels whose mean and deviation fit into the header page.
const MOST_FIGURES: usize = (BLOB as usize - HEADER - 8) / 16;
/// Bytes of an entry.
pub const ENTRY: usize = 24;
/// Most bytes of a sample: 256 MiB.
pub const MOST_SAMPLE_BYTES: u64 = 256 << 20;

/// Most classes of a set: memory is taken for each.
pub const MOST_CLASSES: u32 = 1 << 20;

/// The storage format of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Unsigned bytes, `[channels, height, width]`, of one shape for all.
    Raw(Shape),
    /// JPEG files, each of its own size; with the short side and quality to which larger ones were resized.
    Jpeg {
        /// Pixels of the short side of resized samples; 0: all are as in the source.
        short_side: u32,
        /// JPEG quality (1 to 100) of resized samples; 0: none was resized.
        quality: u32,
    },
}

/// The header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The storage format of samples.
    pub encoding: Encoding,
    /// Number of samples.
    pub samples: u64,
    /// Number of classes; every label is below it.
    pub classes: u32,
    /// Offset of the entries in bytes; the samples end there.
    pub index: u64,
    /// CRC-32 of all entries.
    pub index_checksum: u32,
}

/// The location of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// First byte, from the file's beginning.
    pub offset: u64,
    /// Bytes, at least 1.
    pub length: u32,
    /// Class.
    pub label: u32,
    /// CRC-32 of the bytes.
    pub checksum: u32,
    /// Pixels in a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// CRC-32, as gzip and zlib compute it.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The number at `at`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl IndexEntry {
    /// Encodes the 24 bytes.
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.label.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.width.to_le_bytes());
        bytes[22..].copy_from_slice(&self.height.to_le_bytes());
        bytes
    }

    /// Decodes 24 bytes.
    ///
    /// # Panics
    /// For fewer bytes.
    pub fn decode(bytes: &[u8]) -> IndexEntry {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        IndexEntry {
            offset: u64_at(bytes, 0),
            length: u32_at(bytes, 8),
            label: u32_at(bytes, 12),
            checksum: u32_at(bytes, 16),
            width: half(20),
            height: half(22),
        }
    }
}

impl Header {
    /// Encodes the page before the samples, with the mean and deviation of arrays' channels if they fit.
    pub fn encode(&self, normalisation: Option<&Normalisation>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOB as usize);
        bytes.extend(MAGIC);
        let (kind, shape, short_side, quality) = match self.encoding {
            Encoding::Raw(shape) => (0, shape, 0, 0),
            Encoding::Jpeg { short_side, quality } => (1, Shape::of_image(0, 0, 0), short_side, quality),
        };
        bytes.extend([VERSION, kind].iter().flat_map(|n: &u32| n.to_le_bytes()));
        bytes.extend(self.samples.to_le_bytes());
        let [channels, height, width] = shape.image().sizes();
        let numbers = [self.classes, channels, height, width, short_side, quality];
        bytes.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        bytes.extend(self.index.to_le_bytes());
        bytes.extend(self.index_checksum.to_le_bytes());
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        if let Some(normalisation) = normalisation.filter(|normalisation| normalisation.mean.len() <= MOST_FIGURES) {
            let channels = normalisation.mean.iter().zip(&normalisation.deviation);
            let numbers = channels.flat_map(|(mean, deviation)| [mean, deviation]).flat_map(|n| n.to_le_bytes());
            let numbers: Vec<u8> = numbers.collect();
            bytes.extend((normalisation.mean.len() as u32).to_le_bytes());
            bytes.extend(checksum(&numbers).to_le_bytes());
            bytes.extend(numbers);
        }
        bytes.resize(BLOB as usize, 0);
        bytes
    }

    /// Mean and deviation of each channel in the header `page`, and the offset of their end; `None` if it has none.
    ///
    /// # Errors
    /// Damaged normalisation, or a number of channels other than the samples'.
    pub fn normalisation(&self, page: &[u8]) -> Result<(Option<Normalisation>, usize), String> {
        let damaged = || "the normalisation of the channels (from byte 64) are damaged: pack it again".to_owned();
        let page = page.get(..BLOB as usize).ok_or_else(damaged)?;
        let channels = match (u32_at(page, HEADER), self.encoding) {
            (0, _) => return Ok((None, HEADER)),
            (count, Encoding::Raw(shape)) if count == shape.features() && count as usize <= MOST_FIGURES => {
                count as usize
            }
            _ => return Err(damaged()),
        };
        let numbers = &page[HEADER + 8..HEADER + 8 + 16 * channels];
        if checksum(numbers) != u32_at(page, HEADER + 4) {
            return Err(damaged());
        }
        let number = |at: usize| f64::from_bits(u64_at(numbers, 8 * at));
        let normalisation = Normalisation {
            mean: (0..channels).map(|channel| number(2 * channel)).collect(),
            deviation: (0..channels).map(|channel| number(2 * channel + 1)).collect(),
        };
        let sound = |figure: &f64| figure.is_finite();
        if !normalisation.mean.iter().all(sound)
            || !normalisation.deviation.iter().all(|figure| sound(figure) && *figure > 0.0)
        {
            return Err(damaged());
        }
        Ok((Some(normalisation), HEADER + 8 + numbers.len()))
    }

    /// Decodes the beginning of a file of `length` bytes.
    ///
    /// # Errors
    /// Another kind of file, another version, a damaged header, or one that does not match the file's length.
    pub fn decode(bytes: &[u8], length: u64) -> Result<Header, String> {
        if bytes.len() < HEADER || bytes[..8] != MAGIC {
            return Err("is not a packed set: its first bytes must be `lockpack`".to_owned());
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(format!("version {version} of the form is unknown, this build reads {VERSION}: pack it again"));
        }
        if checksum(&bytes[..HEADER - 4]) != u32_at(bytes, HEADER - 4) {
            return Err("the header is damaged (bytes 0 to 63 do not have their checksum): pack it again".to_owned());
        }
        let at = |at| u32_at(bytes, at);
        let encoding = match at(12) {
            0 => Encoding::Raw(Shape::of_image(at(28), at(32), at(36))),
            1 => Encoding::Jpeg { short_side: at(40), quality: at(44) },
            kind => return Err(format!("encoding {kind} is unknown: pack it again")),
        };
        let (samples, classes, index) = (u64_at(bytes, 16), at(24), u64_at(bytes, 48));
        let header = Header { encoding, samples, classes, index, index_checksum: at(56) };
        let expected = samples.checked_mul(ENTRY as u64).and_then(|bytes| bytes.checked_add(index));
        if samples == 0 || samples > u64::from(u32::MAX) || index < BLOB || expected != Some(length) {
            return Err(format!(
                "{samples} samples with their index at byte {index} do not make a file of {length} bytes: it is truncated or damaged, pack it again"
            ));
        }
        if classes > MOST_CLASSES {
            return Err(format!("{classes} classes are more than {MOST_CLASSES}: fix the labels, and pack it again"));
        }
        if let Encoding::Raw(shape) = encoding
            && !(1..=MOST_SAMPLE_BYTES).contains(&shape.elements())
        {
            return Err(format!("samples of {shape} are empty or too large: the header is damaged, pack it again"));
        }
        Ok(header)
    }

    /// Decodes the entries of a file whose bytes from [`Header::index`] on are `bytes`.
    ///
    /// # Errors
    /// A damaged index, or the first entry outside the samples' range, without bytes, of a wrong size or with an
    /// invalid label.
    pub fn entries(&self, bytes: &[u8]) -> Result<Vec<IndexEntry>, String> {
        if bytes.len() as u64 != self.samples.saturating_mul(ENTRY as u64) {
            return Err("the index is truncated: pack it again".to_owned());
        }
        if checksum(bytes) != self.index_checksum {
            let (from, to) = (self.index, self.index + bytes.len() as u64 - 1);
            return Err(format!(
                "the index is damaged (bytes {from} to {to} do not have their checksum): pack it again"
            ));
        }
        let entry = |(number, bytes): (usize, &[u8])| {
            let entry = IndexEntry::decode(bytes);
            let end = entry.offset.checked_add(u64::from(entry.length));
            let inside = entry.offset >= BLOB && entry.length > 0 && end.is_some_and(|end| end <= self.index);
            let fits = match self.encoding {
                Encoding::Raw(shape) => u64::from(entry.length) == shape.elements(),
                Encoding::Jpeg { .. } => u64::from(entry.length) <= MOST_SAMPLE_BYTES,
            };
            if inside && fits && entry.label < self.classes {
                return Ok(entry);
            }
            Err(format!(
                "sample {number}: {} bytes at {} of class {} do not fit the header: pack it again",
                entry.length, entry.offset, entry.label
            ))
        };
        bytes.chunks_exact(ENTRY).enumerate().map(entry).collect()
    }
}
