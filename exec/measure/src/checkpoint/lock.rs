//! Locks a folder of checkpoints, so that one run writes there at a time; the file names the holder.
//!
//! The system releases a lock when its process ends, however it ends, so a dead run's lock never blocks on its own
//! host. Other hosts may not see the system's locks; there the file's content decides. A restarted Slurm job takes over
//! what its earlier start held on a lost host: Slurm restarts a job only after it has given up the previous start.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lockstep_topology::InputError;
use serde::{Deserialize, Serialize};

use crate::host::HostInfo;

/// The run that writes, as recorded in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    since: String,
    /// Absent in older files.
    #[serde(default)]
    slurm: Option<Start>,
}

/// A start of a Slurm job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    cluster: String,
    job: String,
    /// Number of earlier starts.
    restarts: u32,
}

impl Start {
    /// The start that this process belongs to, from Slurm's environment variables.
    fn find() -> Option<Start> {
        let of = |name: &str| std::env::var(name).ok();
        let restarts = of("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some(Start { cluster: of("SLURM_CLUSTER_NAME").unwrap_or_default(), job: of("SLURM_JOB_ID")?, restarts })
    }

    fn follows(&self, other: &Start) -> bool {
        (&self.cluster, &self.job) == (&other.cluster, &other.job) && self.restarts > other.restarts
    }
}

impl Holder {
    /// This process.
    fn find() -> Holder {
        let own = HostInfo::find();
        Holder { pid: std::process::id(), host: own.name, since: own.date, slurm: Start::find() }
    }

    /// Whether `earlier` has certainly ended if no process holds its lock.
    fn outlives(&self, earlier: &Holder) -> bool {
        let started_again = self.slurm.as_ref().zip(earlier.slurm.as_ref());
        self.host == earlier.host || started_again.is_some_and(|(own, earlier)| own.follows(earlier))
    }
}

/// Most bytes of a holder's text.
const MOST: u64 = 1 << 16;

/// The right to write into a folder; released on drop.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of `folder`; the second value names a run that held it and ended without releasing it.
    ///
    /// # Errors
    /// A folder that cannot be written, or one that another run writes to.
    pub fn take(folder: &Path) -> Result<(Lock, Option<String>), InputError> {
        Lock::take_as(folder, &Holder::find())
    }

    fn take_as(folder: &Path, own: &Holder) -> Result<(Lock, Option<String>), InputError> {
        let path = folder.join("lock");
        let wrong = |message: String| InputError::flag("checkpoint", folder.display().to_string(), message);
        let foreign = || {
            wrong(format!(
                "its {} is not the lock of a run, and would be overwritten: name another folder",
                path.display()
            ))
        };
        if path.symlink_metadata().is_ok_and(|found| !found.is_file() || found.nlink() > 1) {
            return Err(foreign());
        }
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| wrong(format!("cannot be written: {error}; name another folder")))?;
        let mut bytes = Vec::new();
        let read = (&file).take(MOST + 1).read_to_end(&mut bytes);
        read.map_err(|error| wrong(format!("cannot be read: {error}; name another folder")))?;
        let text = String::from_utf8_lossy(&bytes);
        // A run that was killed while it wrote leaves the beginning of its text.
        if !text.is_empty() && (bytes.len() as u64 > MOST || !text.starts_with('{')) {
            return Err(foreign());
        }
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
        if holder.as_ref().is_some_and(|holder| !own.outlives(holder)) {
            let message = format!("{shown} may still write there: if that run is over, delete {}", path.display());
            return Err(wrong(message));
        }
        let mut lock = Lock { file };
        let written = serde_json::to_string(own).map_err(std::io::Error::from).and_then(|own| lock.write(&own));
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
        // The file is kept, empty: deleting it would let two runs lock two files of the same name.
        let _ = self.write("");
        // A child process being spawned shares the open file until it execs, so closing it would not release the lock.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(host: &str, slurm: Option<(&str, u32)>) -> Holder {
        let start = |(job, restarts): (&str, u32)| Start { cluster: "c".to_owned(), job: job.to_owned(), restarts };
        Holder { pid: 7, host: host.to_owned(), since: "then".to_owned(), slurm: slurm.map(start) }
    }

    /// The dead run's host, Slurm job and start, and whether the new run takes its lock over.
    #[test]
    fn a_dead_run_blocks_other_hosts_unless_its_job_was_restarted() {
        for (dead, own, takes) in [
            (holder("a", None), holder("a", None), true),
            (holder("a", None), holder("b", None), false),
            (holder("a", Some(("1", 0))), holder("b", Some(("1", 1))), true),
            (holder("a", Some(("1", 0))), holder("b", Some(("1", 0))), false),
            (holder("a", Some(("1", 1))), holder("b", Some(("1", 0))), false),
            (holder("a", Some(("1", 0))), holder("b", Some(("2", 1))), false),
            (holder("a", Some(("1", 0))), holder("b", None), false),
            (holder("a", None), holder("b", Some(("1", 1))), false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("lock"), serde_json::to_string(&dead).unwrap()).unwrap();
            match Lock::take_as(folder.path(), &own) {
                Ok((_, named)) => assert!(takes && named.unwrap().contains("process 7 on a since then"), "{own:?}"),
                Err(error) => assert!(!takes && error.to_string().contains("if that run is over, delete"), "{error}"),
            }
        }
        let folder = tempfile::tempdir().unwrap();
        // As written by earlier builds.
        std::fs::write(folder.path().join("lock"), r#"{"pid":7,"host":"a","since":"then"}"#).unwrap();
        assert!(Lock::take_as(folder.path(), &holder("a", None)).is_ok());
    }

    /// A file of this name that no run has written, or that is another file too, stays as it is.
    #[test]
    fn foreign_files_are_no_locks() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("lock"), folder.path().join("precious"));
        std::fs::write(&precious, "precious").unwrap();
        let made: [&dyn Fn(); 3] = [
            &|| std::fs::write(&path, "precious").unwrap(),
            &|| std::os::unix::fs::symlink(&precious, &path).unwrap(),
            &|| std::fs::hard_link(&precious, &path).unwrap(),
        ];
        for make in made {
            make();
            let error = Lock::take_as(folder.path(), &holder("a", None)).unwrap_err().to_string();
            assert!(error.contains("is not the lock of a run"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    }
}
