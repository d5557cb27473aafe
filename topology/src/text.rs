//! Reads whole input files: UTF-8 text of limited length, or the bytes of regular files, with errors in plain words.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

use crate::Bytes;

/// The longest description of a model, a cluster or an experiment, which people write: longer ones take
/// seconds to parse.
pub const DESCRIPTION: Bytes = Bytes(4 << 20);

/// The longest file of a model or of its weights in a format of another program: protocol buffers have at most 2 GiB.
pub const MODEL: Bytes = Bytes(2 << 30);

/// The longest line of a file of rows or metrics.
pub const LINE: Bytes = Bytes(1 << 20);

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
    /// A pipe with a name, which waits until some program writes to it.
    NamedPipe,
}

impl Unreadable {
    /// The error with its cure; `cure` is that of a file which cannot be read at all.
    pub fn with_cure(&self, cure: &str) -> String {
        match self {
            Unreadable::System(error) if cure.is_empty() => format!("cannot be read: {error}"),
            Unreadable::System(error) => format!("cannot be read: {error}; {cure}"),
            Unreadable::NoFile => "is not a regular file: name one".to_owned(),
            Unreadable::NamedPipe => {
                "is a named pipe, to which no program may ever write: name a regular file, <(COMMAND), or /dev/stdin"
                    .to_owned()
            }
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

/// The text in the file at `path`, of at most `most` bytes; no more are read, whatever the file. A pipe is read if this
/// process was started with it (`/dev/stdin`, a shell's `<(…)`), since only then it has a writer.
///
/// # Errors
/// A file that cannot be read, is longer, is not UTF-8, or is a pipe with a name.
///
/// ```
/// use lockstep_topology::{DESCRIPTION, read_text};
/// let missing = read_text("absent.toml".as_ref(), DESCRIPTION).unwrap_err();
/// assert!(missing.is_missing() && missing.with_cure("name a file").ends_with("; name a file"));
/// ```
pub fn read_text(path: &Path, most: Bytes) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    let read = match is_named_pipe(path) {
        true if STDIN.iter().any(|stdin| path == Path::new(stdin)) => {
            io::stdin().lock().take(most.0 + 1).read_to_end(&mut bytes)
        }
        true => return Err(Unreadable::NamedPipe),
        false => File::open(path).and_then(|file| file.take(most.0 + 1).read_to_end(&mut bytes)),
    };
    read.map_err(Unreadable::System)?;
    if bytes.len() as u64 > most.0 {
        return Err(Unreadable::TooLong(most));
    }
    String::from_utf8(bytes).map_err(|error| {
        let whole = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        Unreadable::NoText(whole.iter().filter(|byte| **byte == b'\n').count() + 1)
    })
}

/// Names of the standard input: opening them opens the file behind them again.
const STDIN: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// Whether opening `path` opens a pipe by its name in a folder. A pipe without one is found by its descriptor alone.
#[cfg(unix)]
fn is_named_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_pipe = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    is_pipe(path) && path.canonicalize().is_ok_and(|behind| is_pipe(&behind))
}

/// There are none in folders.
#[cfg(not(unix))]
fn is_named_pipe(_path: &Path) -> bool {
    false
}

/// The regular file at `path`, open for reading.
///
/// # Errors
/// A file that cannot be opened, or a device or a pipe.
pub fn open_file(path: &Path) -> Result<File, Unreadable> {
    let found = std::fs::metadata(path).map_err(Unreadable::System)?;
    // Opening a pipe would wait for its writer.
    if !found.is_file() && !found.is_dir() {
        return Err(Unreadable::NoFile);
    }
    File::open(path).map_err(Unreadable::System)
}

/// The bytes of the file at `path`, at most `most` of them; a longer file is refused before it is read.
///
/// # Errors
/// A file that cannot be read, is longer, or is a device or a pipe.
pub fn read_bytes(path: &Path, most: Bytes) -> Result<Vec<u8>, Unreadable> {
    let file = open_file(path)?;
    let found = file.metadata().map_err(Unreadable::System)?;
    if found.is_file() && found.len() > most.0 {
        return Err(Unreadable::TooLong(most));
    }
    let mut bytes = Vec::new();
    // A file may grow while it is read.
    file.take(most.0).read_to_end(&mut bytes).map_err(Unreadable::System)?;
    Ok(bytes)
}

/// Reads a line of at most `most` bytes, with its end, behind those that `line` has; returns how many were read.
///
/// # Errors
/// Errors of the reader, and a line that is longer.
pub fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>, most: Bytes) -> io::Result<usize> {
    let read = from.by_ref().take(most.0 + 1).read_until(b'\n', line)?;
    if read as u64 > most.0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line is longer than {most}")));
    }
    Ok(read)
}

/// Where the lines of a text end, found once.
///
/// ```
/// # use lockstep_topology::LineIndex;
/// let lines = LineIndex::of("first\nsecond\n");
/// assert_eq!([0, 5, 6, 13, 99].map(|offset| lines.line(offset)), [1, 1, 2, 3, 3]);
/// ```
#[derive(Debug, Clone)]
pub struct LineIndex {
    ends: Vec<usize>,
}

impl LineIndex {
    /// The lines of `text`.
    pub fn of(text: &str) -> LineIndex {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        LineIndex { ends: ends.collect() }
    }

    /// The line, from 1, of the byte at `offset`; of one behind the end, the last.
    pub fn line(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }
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
        assert_eq!(read_bytes(&path, Bytes(0)).unwrap(), []);
        std::fs::write(&path, b"abc").unwrap();
        assert_eq!(read_bytes(&path, Bytes(3)).unwrap(), b"abc");
        assert!(matches!(read_bytes(&path, Bytes(2)), Err(Unreadable::TooLong(Bytes(2)))));
        std::fs::remove_file(&path).unwrap();
        assert!(of_folder().contains("cannot be read") && of_folder().ends_with("; name another"));
    }

    fn of_folder() -> String {
        read_text(&std::env::temp_dir(), DESCRIPTION).unwrap_err().with_cure("name another")
    }

    #[test]
    fn lines_are_read_up_to_the_limit() {
        let (mut from, mut line) = (&b"ab\nabc\nabcd"[..], Vec::new());
        assert_eq!(read_line(&mut from, &mut line, Bytes(4)).unwrap(), 3);
        assert_eq!(read_line(&mut from, &mut line, Bytes(4)).unwrap(), 4);
        assert_eq!(line, b"ab\nabc\n");
        assert!(read_line(&mut from, &mut line, Bytes(3)).unwrap_err().to_string().contains("longer than 3B"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn endless_files_are_read_up_to_the_limit() {
        assert!(matches!(read_text("/dev/zero".as_ref(), Bytes(1000)), Err(Unreadable::TooLong(Bytes(1000)))));
        assert!(matches!(read_bytes("/dev/zero".as_ref(), Bytes(1000)), Err(Unreadable::NoFile)));
    }
}
