//! Takes a lab down: ends its processes, then removes namespaces with all their interfaces, files and the record.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use lockstep_report::Failure;
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::LabStep;
use crate::name::LabName;
use crate::state::{LabParts, Lock, NAMESPACES, OWN_FILES, folder, known, survey};
use crate::tools::{check, run};

/// Interval of checks for ended processes, and their number.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: u32 = 250;

/// Takes the lab down, or all labs, even incomplete ones; returns their names.
///
/// # Errors
/// A lab that does not exist, processes that do not end, parts that cannot be removed.
pub fn down(name: Option<&LabName>) -> Result<Vec<LabName>, Failure> {
    check(&["ip"])?;
    let _lock = Lock::take()?;
    let all = survey()?;
    if let Some(name) = name.filter(|name| !all.iter().any(|found| found.name == **name)) {
        known(name)?;
    }
    let chosen = all.into_iter().filter(|found| name.is_none_or(|name| found.name == *name));
    chosen.map(|found| remove(&found).map(|()| found.name)).collect()
}

/// Removes all parts of the lab of this name; the caller holds the lock.
///
/// # Errors
/// As [`down`].
pub(crate) fn take_back(name: &LabName) -> Result<(), Failure> {
    survey()?.iter().filter(|found| found.name == *name).try_for_each(remove)
}

fn remove(found: &LabParts) -> Result<(), Failure> {
    let number = |namespace| number_of(&Path::new(NAMESPACES).join(namespace));
    let numbers = found.namespaces.iter().map(number).collect::<Result<Vec<u64>, Failure>>()?;
    end_processes(&found.name, &numbers)?;
    for namespace in &found.namespaces {
        run(&ip(&["netns", "delete", namespace]))?;
    }
    if !numbers.is_empty() {
        // A command that `lab run` was just starting may have entered before its namespace was deleted.
        std::thread::sleep(PAUSE);
        end_processes(&found.name, &numbers)?;
    }
    found.own_files.iter().try_for_each(|own| delete(own))?;
    // If it is empty, it was made for the labs.
    let _ = fs::remove_dir(OWN_FILES);
    delete(&folder(&found.name))
}

fn ip(arguments: &[&str]) -> LabStep {
    LabStep { program: "ip", arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() }
}

/// Removes a folder, if it is there.
fn delete(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::Run(format!("{}: {error}", folder.display())))
        }
        _ => Ok(()),
    }
}

/// The number of the namespace that a file represents.
fn number_of(file: &Path) -> Result<u64, Failure> {
    fs::metadata(file).map(|of| of.ino()).map_err(|error| Failure::Run(format!("{}: {error}", file.display())))
}

/// The processes in the network namespaces of these numbers, which may be deleted already.
fn processes_in(numbers: &[u64]) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let inside =
        entries.filter(|entry| number_of(&entry.path().join("ns/net")).is_ok_and(|own| numbers.contains(&own)));
    inside.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Kills processes in the namespaces until none is left: a killed one may have started another meanwhile.
fn end_processes(lab: &LabName, numbers: &[u64]) -> Result<(), Failure> {
    for _ in 0..LOOKS {
        let pids = processes_in(numbers);
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
    let pids: Vec<String> = processes_in(numbers).iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
    Err(Failure::Run(format!("{lab}: processes in it do not end: {}", pids.join(", "))))
}
