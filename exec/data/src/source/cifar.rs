//! Lists CIFAR's binary files: records of a label (CIFAR-100: preceded by a coarse one) and 3 × 32 × 32 bytes. Source:
//! Krizhevsky, "Learning multiple layers of features from tiny images", 2009, and the data's page.

use lockstep_models::Shape;

use super::{SampleEntry, SetPart};

/// Shape of each image: red, green and blue planes, row by row.
pub const SHAPE: Shape = Shape::of_image(3, 32, 32);
const PIXELS: u64 = 3 * 32 * 32;

/// The set that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordForm {
    /// A label below 10.
    Ten,
    /// A coarse label, which is ignored, and a fine one below 100.
    Hundred,
}

impl RecordForm {
    /// Number of classes.
    pub fn classes(self) -> u32 {
        if self == RecordForm::Ten { 10 } else { 100 }
    }

    /// Bytes before the pixels; the last one is the label.
    fn labels(self) -> u64 {
        if self == RecordForm::Ten { 1 } else { 2 }
    }
}

/// The files of a part among the names of a folder: `data_batch_N.bin` and `test_batch.bin`, or `train.bin` and `test.bin`.
pub(super) fn files(names: &[String], part: SetPart) -> Vec<(&str, RecordForm)> {
    let form = |name: &str| match (name, part) {
        ("train.bin", SetPart::Train) | ("test.bin", SetPart::HeldOut) => Some(RecordForm::Hundred),
        ("test_batch.bin", SetPart::HeldOut) => Some(RecordForm::Ten),
        (name, SetPart::Train) if name.starts_with("data_batch_") && name.ends_with(".bin") => Some(RecordForm::Ten),
        _ => None,
    };
    names.iter().filter_map(|name| Some((name.as_str(), form(name)?))).collect()
}

/// The records of a file.
pub fn list(bytes: &[u8], form: RecordForm) -> Vec<SampleEntry> {
    let record = (form.labels() + PIXELS) as usize;
    let found = |(number, bytes): (usize, &[u8])| {
        let name = format!("record {number}");
        if bytes.len() < record {
            let left = bytes.len();
            return SampleEntry::bad(
                name,
                format!("has {left} bytes of {record}: the file is truncated or no CIFAR binary"),
            );
        }
        let label = u32::from(bytes[form.labels() as usize - 1]);
        if label >= form.classes() {
            return SampleEntry::bad(name, format!("its label {label} must be below {}", form.classes()));
        }
        SampleEntry { name, label, place: Ok(((number * record) as u64 + form.labels(), PIXELS)) }
    };
    bytes.chunks(record).enumerate().map(found).collect()
}
