//! Writes outputs that flags name: files, replaced atomically, and streams, which are written into; checked before the
//! work.

mod destination;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockstep_topology::{ErrorPlace, InputError};

use crate::log::print_detail;

use destination::replace;
pub use destination::{Destination, draft};

/// What tells two files apart whatever their names: the device and the number on it.
pub fn file_identity(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Writes the output of `fill` to `path`; errors name `place`, the flag.
///
/// A file is replaced in one step, also through a link, which stays; on an error it is unchanged and nothing else is
/// left. Devices and pipes are written into.
///
/// # Errors
/// A folder that does not exist, no permission, a full disk, or whatever `fill` reports.
pub fn write_atomically(
    place: impl Into<ErrorPlace>,
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), InputError> {
    let place = place.into();
    let destination = Destination::find(path).map_err(|message| wrong(&place, path, message))?;
    destination.write(fill).map_err(|error| unwritable(&place, path, &error))?;
    print_detail(|| format!("{} written", path.display()));
    Ok(())
}

/// As [`write_atomically`] for a file that `fill` writes at places of its choice, without a buffer; a device or a pipe
/// at `path` is refused.
///
/// # Errors
/// As there.
pub fn replace_atomically(
    place: impl Into<ErrorPlace>,
    path: &Path,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), InputError> {
    let place = place.into();
    let Destination::File(file) = Destination::find(path).map_err(|message| wrong(&place, path, message))? else {
        return Err(wrong(&place, path, "is no file: name another, or remove it".to_owned()));
    };
    replace(&file, fill).map_err(|error| unwritable(&place, path, &error))?;
    print_detail(|| format!("{} written", path.display()));
    Ok(())
}

/// Checks beforehand that `path` can be written, instead of after hours of work, and returns what it leads to.
///
/// # Errors
/// As [`write_atomically`].
pub fn check_writable(place: impl Into<ErrorPlace>, path: &Path) -> Result<Destination, InputError> {
    let place = place.into();
    let destination = Destination::find(path).map_err(|message| wrong(&place, path, message))?;
    destination.probe().map_err(|error| unwritable(&place, path, &error))?;
    Ok(destination)
}

/// Flags whose files are of one format, and how these files' names end.
const ENDINGS: [(&str, &str); 3] = [("plot", "svg"), ("html", "html"), ("save-weights", "safetensors")];

/// As [`check_writable`] for all outputs of a command, no two of which may be one file.
///
/// # Errors
/// The first that cannot be written, that another replaces, or whose name does not end as its format's do.
pub fn check_outputs(outputs: &[(&str, Option<&Path>)]) -> Result<(), InputError> {
    let mut files: Vec<(&str, PathBuf)> = Vec::new();
    let same = |one: &Path, other: &Path| {
        let identity = |path: &Path| fs::metadata(path).ok().map(|found| file_identity(&found));
        one == other || identity(one).is_some_and(|own| identity(other) == Some(own))
    };
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        // Devices, pipes and descriptors have no ending.
        let Destination::File(file) = check_writable(flag, path)? else { continue };
        if let Some((_, end)) = ENDINGS.iter().find(|(of, _)| *of == flag.trim_start_matches('-'))
            && path.extension().is_none_or(|own| own != *end)
        {
            return Err(wrong(flag, path, format!("must end in .{end}")));
        }
        if let Some((other, _)) = files.iter().find(|(_, known)| same(known, &file)) {
            return Err(wrong(flag, path, format!("is also the file of {other}: name another")));
        }
        files.push((flag, file));
    }
    Ok(())
}

/// As [`check_writable`], and creates the folder if it is missing.
///
/// # Errors
/// As there.
pub fn make_place(place: impl Into<ErrorPlace>, path: &Path) -> Result<(), InputError> {
    let place = place.into();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let unmade =
            |error| format!("cannot be created: {error}; name a folder that can be, or run where you may write");
        fs::create_dir_all(folder).map_err(|error| wrong(&place, folder, unmade(error)))?;
    }
    check_writable(place, path).map(drop)
}

/// An error about the output at `path`.
fn wrong(place: impl Into<ErrorPlace>, path: &Path, message: String) -> InputError {
    InputError::new(place, path.display().to_string(), message)
}

/// The same for an error of the system.
pub fn unwritable(place: impl Into<ErrorPlace>, path: &Path, error: &io::Error) -> InputError {
    let message = format!("cannot be written: {error}; name a file in a folder that exists and is writable");
    wrong(place, path, message)
}
