//! Runs `lockstep doctor`: checks this machine, or the hosts of a job, and says what to do where something is missing.
//!
//! Each check covers one thing and never fails: what is missing is a row with its cure.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use lockstep_cuda::{LibraryFolders, probe};
use lockstep_exec::Instructions;
use lockstep_lab::{find_program, tools};
use lockstep_measure::job_hosts::job_hosts;
use lockstep_measure::launch::HAS_MPI;
use lockstep_models::profile::Profile;
use lockstep_predict::PROFILE_PATH;
use lockstep_report::failure::Failure;
use lockstep_report::{CheckRow, Format, Report};
use lockstep_topology::Bytes;

/// Where Debian's package of Fashion-MNIST installs its files.
const FASHION_MNIST: &str = "/usr/share/datasets/fashion-mnist";
/// Flags of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep doctor --format json
  mpirun --hostfile hosts lockstep doctor --mpi
  srun -N 2 --ntasks-per-node=2 lockstep doctor --mpi
      with a lockstep that was built with --features mpi: each host beside the first one, and every two processes")]
pub(super) struct Doctor {
    /// Under mpirun or srun: look at each host of the job, and whether all processes reach each other
    #[arg(long)]
    mpi: bool,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Doctor {
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.mpi {
            let rows = job_hosts()?;
            return rows.map_or(Ok(()), |rows| Report::new(rows, Vec::new()).print(self.format));
        }
        let mut rows = vec![version(), cores(), simd(), memory(), profile(), mpi()];
        rows.extend(["srun", "sbatch"].map(slurm));
        rows.extend(tools().map(lab));
        rows.extend([cuda(), digits(), fashion()]);
        Report::new(rows, Vec::new()).print(self.format)
    }
}

fn ok(check: &str, found: impl Into<String>) -> CheckRow {
    CheckRow { check: check.to_owned(), status: "ok".to_owned(), found: found.into(), cure: String::new() }
}

fn missing(check: &str, found: impl Into<String>, cure: impl Into<String>) -> CheckRow {
    CheckRow { check: check.to_owned(), status: "missing".to_owned(), found: found.into(), cure: cure.into() }
}

fn version() -> CheckRow {
    let build = if cfg!(debug_assertions) { "without optimization" } else { "optimized" };
    let found = format!("lockstep {}, built {build}, for {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    if cfg!(debug_assertions) {
        missing("version", found, "measure with cargo run --release: kernels are many times slower otherwise")
    } else {
        ok("version", found)
    }
}

fn cores() -> CheckRow {
    match std::thread::available_parallelism() {
        Ok(cores) => ok("cores", format!("{cores} for this process")),
        Err(error) => missing("cores", format!("cannot be counted: {error}"), "one is assumed"),
    }
}

fn simd() -> CheckRow {
    let cure = "kernels use narrower instructions and are slower; predictions stay right once calibrated";
    let current = Instructions::current();
    let name = match current {
        Instructions::Avx512 => "AVX-512",
        Instructions::Avx2 => "AVX2 with FMA",
        Instructions::Portable => "vectors of four elements",
    };
    if current < Instructions::widest() {
        ok("simd", format!("{name}, which LOCKSTEP_INSTRUCTIONS names"))
    } else if current == Instructions::Portable && cfg!(target_arch = "x86_64") {
        missing("simd", "no AVX2", cure)
    } else {
        ok("simd", name)
    }
}

fn memory() -> CheckRow {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let figure = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| Bytes(kib << 10))
    };
    match (figure("MemTotal:"), figure("MemAvailable:")) {
        (Some(total), Some(available)) => ok("memory", format!("{available} of {total} available")),
        _ => missing("memory", "cannot be read (/proc/meminfo)", "models that do not fit end the process"),
    }
}

fn profile() -> CheckRow {
    let cure = "lockstep calibrate writes it; lockstep compare does so by itself";
    match Profile::load(Path::new(PROFILE_PATH)) {
        Ok(profile) => ok("profile", format!("{PROFILE_PATH}: {} ({}), {}", profile.host, profile.cpu, profile.date)),
        Err(_) if !Path::new(PROFILE_PATH).exists() => missing("profile", format!("no {PROFILE_PATH}"), cure),
        Err(error) => missing("profile", error.to_string(), cure),
    }
}

fn mpi() -> CheckRow {
    let install = "apt-get install --no-install-recommends libopenmpi-dev openmpi-bin libclang-dev";
    let build = "cargo build --release --features mpi";
    let Some(mpirun) = find_program("mpirun") else {
        return missing("mpi", "no mpirun in PATH", format!("only for --transport mpi: {install}, then {build}"));
    };
    let output = Command::new(&mpirun).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let found = text.lines().next().unwrap_or("of unknown version").to_owned();
    let found = format!("{found}, {}", direct_messages(&mpirun));
    if HAS_MPI { ok("mpi", found) } else { missing("mpi", format!("{found}, but not in this binary"), build) }
}

fn slurm(program: &str) -> CheckRow {
    let cure = "only where Slurm schedules jobs: ask your site, or apt-get install slurm-client";
    match find_program(program) {
        Some(path) => ok(program, path.display().to_string()),
        None => missing(program, format!("no {program} in PATH"), cure),
    }
}

fn lab((program, path, package): (&str, Option<PathBuf>, &str)) -> CheckRow {
    match path {
        Some(path) => ok(program, path.display().to_string()),
        None => missing(
            program,
            format!("no {program} in PATH"),
            format!("only for lockstep lab: apt-get install {package}"),
        ),
    }
}

/// Whether the MPI library accepts GPU addresses, as far as the tool beside `mpirun` reports it: Open MPI's does.
fn direct_messages(mpirun: &Path) -> &'static str {
    let output = Command::new(mpirun.with_file_name("ompi_info")).args(["--parsable", "--all"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut said = text.lines().filter_map(|line| line.split_once("built_with_cuda_support:value:"));
    match said.next() {
        Some((_, "true")) => "CUDA-aware",
        Some(_) => "not CUDA-aware",
        None => "asked when it runs whether it is CUDA-aware",
    }
}

fn cuda() -> CheckRow {
    match probe(&LibraryFolders::usual()) {
        Ok(machine) => {
            let gpus: Vec<&str> = machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
            ok("cuda", gpus.join(", "))
        }
        Err(unavailable) => {
            let lacks: Vec<&str> = unavailable.missing.iter().map(|not| not.library.file()).collect();
            let found = unavailable.devices.unwrap_or_else(|| format!("no {}", lacks.join(", ")));
            missing("cuda", found, "only for --device cuda (lockstep exec devices says more); predictions need none")
        }
    }
}

fn digits() -> CheckRow {
    ok("data mnist", "5,000 digits in the binary")
}

fn fashion() -> CheckRow {
    let folder = Path::new(FASHION_MNIST);
    if folder.is_dir() {
        ok("data fashion-mnist", format!("--data {FASHION_MNIST}"))
    } else {
        let cure = "optional: apt-get install dataset-fashion-mnist, then --data with the folder that dpkg -L names";
        missing("data fashion-mnist", format!("no {FASHION_MNIST}"), cure)
    }
}
