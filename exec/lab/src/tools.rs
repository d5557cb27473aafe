//! Runs the system's programs, and reports a missing one with its package, or missing rights.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockstep_report::Failure;
use lockstep_topology::InputError;

use crate::commands::LabStep;

/// Programs with the Debian package that has each.
const PACKAGES: [(&str, &str); 4] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("mpirun", "openmpi-bin")];
/// Where programs for root are; the search path of other users may lack these.
const ROOTS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The programs of labs beside `mpirun`, each with its path and package.
pub fn tools() -> impl Iterator<Item = (&'static str, Option<PathBuf>, &'static str)> {
    PACKAGES
        .into_iter()
        .filter(|(program, _)| *program != "mpirun")
        .map(|(program, package)| (program, find(program), package))
}

/// Whether this user may make namespaces, and whether the programs are there.
///
/// # Errors
/// What is missing, with the cure.
pub(crate) fn check(programs: &[&str]) -> Result<(), InputError> {
    if !cfg!(target_os = "linux") {
        return Err(InputError::new("lab", std::env::consts::OS, "has no network namespaces: run labs on Linux"));
    }
    if !rustix::process::geteuid().is_root() {
        let user = format!("user {}", rustix::process::geteuid().as_raw());
        return Err(InputError::new(
            "lab",
            user,
            "may not make network namespaces: run it as root, as in sudo lockstep lab …",
        ));
    }
    match programs.iter().find(|program| find(program).is_none()) {
        None => Ok(()),
        Some(missing) => {
            let package =
                PACKAGES.iter().find(|(program, _)| program == missing).map_or(*missing, |(_, package)| package);
            let message = format!("is not installed: apt-get install {package}, or your system's package of it");
            Err(InputError::new("lab", *missing, message))
        }
    }
}

/// The program's path, from `PATH`. Entries relative to the present folder are passed over: what lies there may be
/// anybody's.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The same, also from the folders of root's programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    find_program(program).or_else(|| ROOTS.iter().map(|folder| Path::new(folder).join(program)).find(|p| p.is_file()))
}

/// A command of the program; one that is not installed fails to start, and is not looked for elsewhere.
pub(crate) fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| Path::new(ROOTS[0]).join(program)))
}

/// Runs a step and returns its output.
///
/// # Errors
/// The step with its standard error.
pub(crate) fn run(step: &LabStep) -> Result<String, Failure> {
    let failed = |why: &str| Failure::Run(format!("{step}: {why}"));
    let output = command(step.program).args(&step.arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.lines().next().unwrap_or("failed without a word")))
}
