//! Reads whole input files: UTF-8 text of limited length, or the bytes of regular files, with errors in plain words.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::Bytes;

/// The longest description of a model, a cluster or an experiment, which people write: longer ones take
/// seconds to parse.
pub const DESCRIPTION: Bytes = Bytes(4 << 20);

/// The longest record that a program has written: a profile, a log, a report.
pub const RECORD: Bytes = Bytes(1 << 30);

/// Why a file's text cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// The system's error.
    System(io::Error),
    /// The first line, from 1, that is not UTF-8.
    NoText(usize),
    /// More bytes than these.
    TooLong(Bytes),
    /// A device or a pipe, which may never end.
    NoFile,
}

impl Unreadable {
    /// The error with its cure; `cure` is that of a file which cannot be read at all.
    pub fn with_cure(&self, cure: &str) -> String {
        match self {
            Unreadable::System(error) if cure.is_empty() => format!("cannot be read: {error}"),
            Unreadable::System(error) => format!("cannot be read: {error}; {cure}"),
            Unreadable::NoFile => "is not a regular file: name one".to_owned(),
            Unreadable::NoText(line) => format!("is not UTF-8 text from line {line} on: save it as UTF-8"),
            Unreadable::TooLong(most) => {
                format!("is longer than the {most} that are read of such a file: shorten it, or name another")
            }
        }
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Unreadable::System(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The text in the file at `path`, of at most `most` bytes; no more are read, whatever the file.
///
/// # Errors
/// A file that cannot be read, is longer, or is not UTF-8.
///
/// ```
/// use lockstep_topology::{DESCRIPTION, read_text};
/// let missing = read_text("absent.toml".as_ref(), DESCRIPTION).unwrap_err();
/// assert!(missing.is_missing() && missing.with_cure("name a file").ends_with("; name a file"));
/// ```
pub fn read_text(path: &Path, most: Bytes) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most.0 + 1).read_to_end(&mut bytes));
    read.map_err(Unreadable::System)?;
    if bytes.len() as u64 > most.0 {
        return Err(Unreadable::TooLong(most));
    }
    String::from_utf8(bytes).map_err(|error| {
        let whole = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        Unreadable::NoText(whole.iter().filter(|byte| **byte == b'\n').count() + 1)
    })
}

/// The bytes of the file at `path`, of any number.
///
/// # Errors
/// A file that cannot be read, or is a device or a pipe.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let found = std::fs::metadata(path).map_err(Unreadable::System)?;
    if !found.is_file() && !found.is_dir() {
        return Err(Unreadable::NoFile);
    }
    std::fs::read(path).map_err(Unreadable::System)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_reported_with_their_line() {
        let path = std::env::temp_dir().join(format!("lockstep-text-{}", std::process::id()));
        let of = |bytes: &[u8], most| {
            std::fs::write(&path, bytes).unwrap();
            read_text(&path, Bytes(most)).map_err(|error| error.with_cure("name another"))
        };
        assert_eq!(of("größe\n".as_bytes(), 8), Ok("größe\n".to_owned()));
        assert!(of("größe\n".as_bytes(), 7).unwrap_err().contains("longer than the 7B"));
        assert!(of(b"name\nmodel = \"\xff\"\n", 100).unwrap_err().contains("from line 2 on: save it as UTF-8"));
        assert_eq!(of(b"", 0), Ok(String::new()));
        assert_eq!(read_bytes(&path).unwrap(), []);
        std::fs::remove_file(&path).unwrap();
        assert!(of_folder().contains("cannot be read") && of_folder().ends_with("; name another"));
    }

    fn of_folder() -> String {
        read_text(&std::env::temp_dir(), DESCRIPTION).unwrap_err().with_cure("name another")
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn endless_files_are_read_up_to_the_limit() {
        assert!(matches!(read_text("/dev/zero".as_ref(), Bytes(1000)), Err(Unreadable::TooLong(Bytes(1000)))));
        assert!(matches!(read_bytes("/dev/zero".as_ref()), Err(Unreadable::NoFile)));
    }
}
