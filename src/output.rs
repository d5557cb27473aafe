//! Files that appear whole or not at all: written beside their place, flushed to the disk, then renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use lockstep_topology::InputError;

/// Writes the file at `path` with what `fill` gives; `flag` (such as `--trace`) is the place that errors name.
///
/// What stood there before is replaced in one step; on an error it stays and nothing else is left.
///
/// # Errors
/// A folder that does not exist, no permission, a full disk, or whatever `fill` reports.
pub fn write_atomically(
    flag: &str,
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), InputError> {
    let draft = draft_of(path);
    let written = File::create(&draft).and_then(|file| {
        let mut writer = BufWriter::with_capacity(1 << 18, file);
        fill(&mut writer)?;
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&draft, path)
    });
    written.map_err(|error| {
        // The draft may not exist; the first error is the one to tell.
        let _ = fs::remove_file(&draft);
        let message = format!("cannot be written: {error}; name a file in a folder that exists and is writable");
        InputError::new(flag, path.display().to_string(), message)
    })
}

/// `trace.json` → `trace.json.tmp`.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Refuses a path that cannot be written, before hours of work end there.
///
/// # Errors
/// As [`write_atomically`].
pub fn check_writable(flag: &str, path: &Path) -> Result<(), InputError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let message = if path.is_dir() {
        "is a folder: name a file in it"
    } else if !folder.is_dir() {
        "lies in a folder that does not exist: make it, or name another"
    } else {
        return Ok(());
    };
    Err(InputError::new(flag, path.display().to_string(), message))
}

/// A new empty folder of a test, whose name no other test takes.
#[cfg(test)]
pub(crate) fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("lockstep-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    match fs::create_dir_all(&folder) {
        Ok(()) => folder,
        Err(error) => panic!("{}: {error}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_the_old_file_and_no_draft() {
        let folder = new_folder("output-failure");
        let path = folder.join("a.json");
        write_atomically("--trace", &path, |file| file.write_all(b"old")).unwrap();
        let error = write_atomically("--trace", &path, |file| {
            file.write_all(b"new")?;
            Err(io::Error::other("disk full"))
        });
        assert!(error.unwrap_err().to_string().contains("disk full"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn places_that_cannot_be_written_are_refused_beforehand() {
        let folder = new_folder("output-beforehand");
        assert!(check_writable("--trace", &folder).unwrap_err().to_string().contains("is a folder"));
        assert!(
            check_writable("--trace", &folder.join("no/a.json")).unwrap_err().to_string().contains("does not exist")
        );
        assert_eq!(check_writable("--trace", &folder.join("a.json")), Ok(()));
        assert_eq!(check_writable("--trace", Path::new("a.json")), Ok(()));
        fs::remove_dir_all(folder).unwrap();
    }
}
