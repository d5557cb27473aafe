//! `Destination`: what the path of an output leads to: a file, which is replaced whole and not reached through a link,
//! or a device, a pipe or an open descriptor, which is written into, also through links.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Links that are followed, as many as Linux follows.
const LINKS: u32 = 40;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 18;

/// Longest name, in bytes, that a draft repeats: file systems take 255.
const LONGEST: usize = 200;

/// Names that are tried for a draft.
const MOST_DRAFTS: u32 = 100;

/// The target of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A file, or the place of one that does not exist yet; its folder exists and is written without links.
    File(PathBuf),
    /// Something that is no file: a device, a pipe, a descriptor that this process was given.
    Stream(PathBuf),
    /// This process's own standard output.
    Stdout,
    /// This process's own standard error.
    Stderr,
}

impl Destination {
    /// What `path` leads to.
    ///
    /// # Errors
    /// Why it cannot be written: a folder, a folder that does not exist, a link to a file or to itself.
    pub fn find(path: &Path) -> Result<Destination, String> {
        let unreachable = |error: io::Error| format!("cannot be written: {error}; name a file that can be");
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err("is a folder: name a file in it".to_owned());
        }
        let mut place = path.to_owned();
        for _ in 0..LINKS {
            if let Some(number) = descriptor(&place) {
                let found = fs::metadata(&place).map_err(unreachable)?;
                return match number {
                    _ if found.is_dir() => Err("is a folder: name a file in it".to_owned()),
                    1 => Ok(Destination::Stdout),
                    2 => Ok(Destination::Stderr),
                    _ => Ok(Destination::Stream(place)),
                };
            }
            match fs::symlink_metadata(&place) {
                Ok(found) if found.is_symlink() => {
                    let target = fs::read_link(&place).map_err(unreachable)?;
                    place = folder_of(&place).join(target);
                }
                Ok(found) if found.is_dir() => return Err("is a folder: name a file in it".to_owned()),
                Ok(found) if !found.is_file() => return Ok(Destination::Stream(place)),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unreachable(error)),
                // The user that made the link, maybe another one, would choose what is overwritten.
                _ if place != path => {
                    let target = place.display();
                    return Err(format!("is a symbolic link to {target}: name another file, or remove the link"));
                }
                _ => {
                    let (folder, Some(name)) = (folder_of(&place), place.file_name()) else {
                        return Err("names no file".to_owned());
                    };
                    let folder = folder.canonicalize().ok().filter(|folder| folder.is_dir());
                    let folder = folder.ok_or("lies in a folder that does not exist: make it, or name another")?;
                    return Ok(Destination::File(folder.join(name)));
                }
            }
        }
        Err("is a link that leads back to itself: name a file".to_owned())
    }

    /// Tries whether it can be written, and changes nothing. A pipe is not opened: its reader may come later.
    ///
    /// # Errors
    /// A folder or a file that is write-protected.
    pub fn probe(&self) -> io::Result<()> {
        let Destination::File(path) = self else { return Ok(()) };
        if path.exists() {
            File::options().write(true).open(path)?;
        }
        let (_, made) = draft(path)?;
        fs::remove_file(made)
    }

    /// Writes the output of `fill`. A file is replaced in one step when it is complete, and keeps its permissions; on
    /// an error it is unchanged and nothing else is left. A stream whose reader has gone away is no error.
    ///
    /// # Errors
    /// A full disk, no permission, or whatever `fill` reports.
    pub fn write(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let Destination::File(path) = self else {
            return match filled(self.stream()?, fill).map(drop) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            };
        };
        replace(path, |file| filled(file, fill).map(drop))
    }

    /// Appends to the existing content.
    ///
    /// # Errors
    /// Errors on opening it.
    pub fn stream(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Destination::Stdout => Box::new(io::stdout()),
            Destination::Stderr => Box::new(io::stderr()),
            Destination::Stream(path) => Box::new(OpenOptions::new().append(true).open(path)?),
            Destination::File(path) => Box::new(OpenOptions::new().append(true).create(true).open(path)?),
        })
    }
}

/// Replaces the file at `path` in one step by what `fill` writes, once that is on the disk; the file keeps its
/// permissions.
///
/// # Errors
/// As [`Destination::write`].
pub(super) fn replace(path: &Path, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let (file, made) = draft(path)?;
    let kept = fs::metadata(path).map_or(Ok(()), |before| file.set_permissions(before.permissions()));
    let written = kept.and_then(|()| fill(&file)).and_then(|()| file.sync_all());
    // The first error is the one to report.
    written.and_then(|()| fs::rename(&made, path)).inspect_err(|_| drop(fs::remove_file(&made)))
}

/// The writer with the complete output of `fill`.
fn filled<W: Write>(writer: W, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<W> {
    let mut writer = BufWriter::with_capacity(BUFFER, writer);
    fill(&mut writer)?;
    let mut writer = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    writer.flush()?;
    Ok(writer)
}

/// The number of the descriptor of this process that `place` names, such as `/proc/self/fd/3`.
fn descriptor(place: &Path) -> Option<u32> {
    let number = place.file_name()?.to_str()?.parse().ok()?;
    let own = Path::new("/proc/self/fd").canonicalize().ok()?;
    (folder_of(place).canonicalize().ok()? == own).then_some(number)
}

/// The folder of a path, which may be the present one.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a draft of the file at `path` beside it, `trace.json.4711.tmp` for `trace.json`, and returns it with its path.
///
/// It is always a new file: what has that name already, also a link, stays as it is, and the draft gets another name.
///
/// # Errors
/// A folder that cannot be written.
pub fn draft(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().filter(|name| name.len() <= LONGEST);
    let name = name.map_or_else(|| OsString::from("draft"), OsString::from);
    let mut taken = 0;
    loop {
        let more = if taken == 0 { String::new() } else { format!(".{taken}") };
        let mut own = name.clone();
        own.push(format!(".{}{more}.tmp", std::process::id()));
        let own = path.with_file_name(own);
        match File::options().write(true).create_new(true).open(&own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < MOST_DRAFTS => taken += 1,
            made => return made.map(|file| (file, own)),
        }
    }
}
