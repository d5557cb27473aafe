//! Runs a command on the hosts of a lab: as one job of Open MPI, or once on each.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use lockstep_report::Failure;
use lockstep_topology::InputError;

use crate::job::Job;
use crate::name::LabName;
use crate::plan::{LabHost, LabPlan};
use crate::state::{Lab, folder};
use crate::tools::{check, command};

/// Sets the host's name, which each process has in a UTS namespace of its own, and execs the command.
const ENTER: &str = r#"echo "$0" >/proc/sys/kernel/hostname && exec "$@""#;

/// Arguments of `mpirun` besides hosts, agent and folder: TCP alone, over the lab's one interface; ranks share cores.
const OPEN_MPI: [&str; 24] = [
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
    "--map-by",
    "ppr:1:node",
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "tcp,self",
    "--mca",
    "btl_tcp_if_include",
    "e0",
    "--mca",
    "oob_tcp_if_include",
    "e0",
    "--mca",
    "plm_rsh_no_tree_spawn",
    "1",
    // Without it small messages take milliseconds where ranks share a core.
    "--mca",
    "mpi_yield_when_idle",
    "1",
];

/// The script by which `mpirun` starts its daemon on a host: AGENT HOST COMMAND.
pub(crate) fn agent(lab: &LabName) -> String {
    let namespace = lab.host("$host");
    let enter = r#"echo "$0" >/proc/sys/kernel/hostname && exec sh -c "$*""#;
    format!("host=$1\nshift\nexec ip netns exec \"{namespace}\" unshare -u sh -c '{enter}' \"$host\" \"$@\"\n")
}

/// The command as one MPI job on the first `hosts` hosts, a rank on each.
///
/// # Errors
/// No root, no Open MPI; more hosts than there are; [`Failure::Ended`] with the job's exit code.
pub fn run_mpi(lab: &Lab, hosts: Option<usize>, words: &[OsString]) -> Result<(), Failure> {
    check(&["ip", "unshare", "mpirun"])?;
    let hosts = first(&lab.plan, hosts)?;
    let folder = folder(&lab.plan.lab);
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let mut arguments: Vec<OsString> = vec!["mpirun".into()];
    arguments.extend(OPEN_MPI.map(OsString::from));
    // Not by its path alone: the folder may be mounted without execution.
    arguments.extend(["--mca".into(), "plm_rsh_agent".into(), format!("sh {}/agent", folder.display()).into()]);
    // Job sockets and files are removed with the lab.
    arguments.extend(["--mca".into(), "orte_tmpdir_base".into(), folder.join("tmp").into()]);
    arguments.extend(["--host".into(), names.join(",").into(), "-np".into(), hosts.len().to_string().into()]);
    arguments.extend(words.iter().cloned());
    let job = Job::new()?;
    let status = job.run(|| job.mark(&mut enter(&hosts[0], &arguments)).status().map_err(not_started))?;
    passed_on(&lab.plan.lab, status)
}

/// The command on each of the first `hosts` hosts at once; output lines begin with the host's name.
///
/// # Errors
/// No root; more hosts than there are; [`Failure::Ended`] with the exit code of the first host where it is not 0.
pub fn run_each(lab: &Lab, hosts: Option<usize>, words: &[OsString]) -> Result<(), Failure> {
    check(&["ip", "unshare"])?;
    let hosts = first(&lab.plan, hosts)?;
    let job = Job::new()?;
    let one = |host: &LabHost| {
        let mut command = enter(host, words);
        job.mark(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            if let Some(err) = err {
                scope.spawn(|| copy(&host.name, err, || io::stderr().lock()));
            }
            if let Some(out) = out {
                copy(&host.name, out, || io::stdout().lock());
            }
        });
        child.wait()
    };
    let one = &one;
    let all = || -> Vec<io::Result<ExitStatus>> {
        std::thread::scope(|scope| {
            let all: Vec<_> = hosts.iter().map(|host| scope.spawn(move || one(host))).collect();
            let panicked = || Err(io::Error::other("its thread has panicked"));
            all.into_iter().map(|one| one.join().unwrap_or_else(|_| panicked())).collect()
        })
    };
    let ended = job.run(|| all().into_iter().collect::<io::Result<Vec<ExitStatus>>>().map_err(not_started))?;
    match hosts.iter().zip(ended).find(|(_, status)| !status.success()) {
        Some((host, status)) => passed_on(&host.name, status),
        None => Ok(()),
    }
}

/// The first hosts of the lab, all without a number.
fn first(plan: &LabPlan, count: Option<usize>) -> Result<&[LabHost], InputError> {
    let all = plan.hosts.len();
    let few = plan.hosts.get(..count.unwrap_or(all)).filter(|hosts| !hosts.is_empty());
    let message = || format!("the lab has {all} hosts: use 1 to {all}");
    few.ok_or_else(|| InputError::flag("hosts", count.unwrap_or(all).to_string(), message()))
}

/// A command inside a host.
fn enter(host: &LabHost, words: &[OsString]) -> Command {
    let mut ip = command("ip");
    ip.args(["netns", "exec", &host.namespace, "unshare", "-u", "sh", "-c", ENTER, &host.name]).args(words);
    ip
}

/// Copies line by line, so that those of several hosts do not mix.
fn copy<W: Write>(host: &str, from: impl Read, to: impl Fn() -> W) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        line.pop_if(|byte| *byte == b'\n');
        // The command continues after its reader has ended.
        let _ = to().write_all(&[host.as_bytes(), b": ", &line, b"\n"].concat());
        line.clear();
    }
}

fn not_started(error: io::Error) -> Failure {
    Failure::Run(format!("ip netns exec: {error}"))
}

/// Passes on the command's exit code: 128 + the number of a signal that ended it.
fn passed_on(who: impl std::fmt::Display, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Err(Failure::Ended {
        code: u8::try_from(code).unwrap_or(1),
        message: format!("{who}: the command ended with {status}"),
    })
}
