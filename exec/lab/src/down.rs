//! Takes a lab down: ends its processes, then removes namespaces with all their interfaces, files and the record.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use lockstep_report::Failure;
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::LabStep;
use crate::name::LabName;
use crate::state::{LabParts, Lock, OWN_FILES, folder, known, survey};
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
    for namespace in &found.namespaces {
        end_processes(namespace)?;
    }
    for namespace in &found.namespaces {
        run(&ip(&["netns", "delete", namespace]))?;
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

/// Kills processes in the namespace until none is left: a killed one may have started another meanwhile.
fn end_processes(namespace: &str) -> Result<(), Failure> {
    for _ in 0..LOOKS {
        let listed = run(&ip(&["netns", "pids", namespace]))?;
        let pids: Vec<Pid> = listed.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect();
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
    Err(Failure::Run(format!("{namespace}: processes in it do not end; ip netns pids {namespace} lists them")))
}
