//! The lock of a folder of checkpoints: one run writes there at a time, and who that is stands in the file.
//!
//! The system takes a lock back when its process ends, however it ends, so a dead run's lock is never in the way on its host.
//! On other hosts the system's locks may not be seen; there what stands in the file decides.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use lockstep_topology::InputError;
use serde::{Deserialize, Serialize};

use crate::host::Host;

/// Who writes; what stands in the file while a run does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    since: String,
}

/// The right to write into a folder, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of `folder`; the second value names a run that had it and ended without giving it back.
    ///
    /// # Errors
    /// A folder that cannot be written, or one that another run writes to.
    pub fn take(folder: &Path) -> Result<(Lock, Option<String>), InputError> {
        let path = folder.join("lock");
        let wrong = |message: String| InputError::flag("checkpoint", folder.display().to_string(), message);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(|error| wrong(format!("cannot be written: {error}; name another folder")))?;
        let mut text = String::new();
        // A text that cannot be read names nobody.
        let _ = file.read_to_string(&mut text);
        let holder: Option<Holder> = serde_json::from_str(&text).ok();
        let name = |holder: &Holder| format!("process {} on {} since {}", holder.pid, holder.host, holder.since);
        let shown = holder.as_ref().map_or_else(|| "another run".to_owned(), name);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(wrong(format!(
                    "{shown} writes its checkpoints there: name another folder, or end that run"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(wrong(format!("cannot be locked: {error}"))),
        }
        let own = Host::find();
        if holder.as_ref().is_some_and(|holder| holder.host != own.name) {
            let message = format!("{shown} may still write there: if that run is over, delete {}", path.display());
            return Err(wrong(message));
        }
        let holder = Holder { pid: std::process::id(), host: own.name, since: own.date };
        let mut lock = Lock { file };
        let written = serde_json::to_string(&holder).map_err(std::io::Error::from).and_then(|text| lock.write(&text));
        written.map_err(|error| wrong(format!("cannot be written: {error}; name another folder")))?;
        Ok((lock, (!text.is_empty()).then_some(shown)))
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file stays, empty: to delete it would let two others lock two files of one name.
        let _ = self.write("");
        // A process that is being started has the file open until it is another program: closing it would not be enough.
        let _ = self.file.unlock();
    }
}
