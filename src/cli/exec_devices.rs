//! Runs `lockstep exec devices`: lists what runs can compute on, and why something else cannot be used.

use clap::Args;
use lockstep_cuda::{Gpu, LibraryFolders, LoadedLibrary, Missing, probe};
use lockstep_measure::host::HostInfo;
use lockstep_report::failure::Failure;
use lockstep_report::{CheckRow, Format, Report};
use lockstep_topology::Bytes;

/// Flags of `exec devices`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep exec devices --format json
      which of NVIDIA's libraries and GPUs are there, and where the missing ones were looked for")]
pub(super) struct Devices {
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Devices {
    pub(super) fn run(self) -> Result<(), Failure> {
        let host = HostInfo::find();
        let mut rows = vec![CheckRow::ok("cpu", format!("{}, {} cores for this process", host.cpu, host.cores))];
        let (found, missing, gpus, devices) = match probe(&LibraryFolders::usual()) {
            Ok(machine) => (machine.found, machine.missing, machine.gpus, None),
            Err(unavailable) => (unavailable.found, unavailable.missing, Vec::new(), unavailable.devices),
        };
        rows.extend(found.iter().map(there));
        rows.extend(missing.iter().map(not_there));
        rows.extend(gpus.iter().enumerate().map(gpu));
        rows.extend(devices.map(|reason| CheckRow::missing("cuda gpu", reason, "see what the driver says of it")));
        rows.push(if gpus.is_empty() {
            let cure = "see above; train with --device cpu; predictions need no GPU";
            CheckRow::missing("--device cuda", "not on this machine", cure)
        } else {
            let ranks = format!("{} for ranks in turn; cuda, cuda:tf32 and cuda:bf16", gpus.len());
            CheckRow::ok("--device cuda", ranks)
        });
        Report::new(rows, Vec::new()).print(self.format)
    }
}

fn there(found: &LoadedLibrary) -> CheckRow {
    CheckRow::ok(format!("cuda {}", found.library.name()), found.path.display().to_string())
}

fn not_there(missing: &Missing) -> CheckRow {
    let (library, tried) = (missing.library, missing.tried.join(", "));
    CheckRow::missing(format!("cuda {}", library.name()), format!("no {} in: {tried}", library.file()), library.cure())
}

fn gpu((index, gpu): (usize, &Gpu)) -> CheckRow {
    let Gpu { name, capability: (major, minor), memory, multiprocessors } = gpu;
    let found = format!("{name}, sm_{major}{minor}, {}, {multiprocessors} multiprocessors", Bytes(*memory));
    CheckRow::ok(format!("cuda gpu {index}"), found)
}
