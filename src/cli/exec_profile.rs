//! Runs `lockstep exec profile`: measures this machine's GPU.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lockstep_measure::calibrate::{CalibrationRow, rows};
use lockstep_measure::host::Cores;
use lockstep_measure::profile::{Wanted, gpu_rows, profile};
use lockstep_measure::quiet::Quiet;
use lockstep_models::profile::GpuEntry;
use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_report::output::{check_writable, write_atomically};
use lockstep_report::{Format, Report};
use lockstep_topology::{Bytes, ErrorPlace, InputError};

use super::flags::{parsed, positive};
use super::operation_flags::PatienceFlag;
use super::unfold_flag::UnfoldFlag;
use lockstep_experiment::DeviceChoice;

/// Flags of `exec profile`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep exec profile --model resnet-50 --device cuda:bf16 --batch-per-rank 32,128,256 -o gpu.json
  lockstep sim predict --model resnet-50 --batch-per-rank 192 --profile gpu.json
      measures this machine's GPU, then predicts a batch between those that were measured")]
pub(super) struct Profile {
    /// Models whose layers are measured
    #[arg(long, value_delimiter = ',', value_name = "MODEL,…", default_value = "lenet")]
    model: Vec<String>,
    #[command(flatten)]
    unfold: UnfoldFlag,
    /// What is measured: cuda, cuda:tf32 or cuda:bf16
    #[arg(long, value_parser = parsed::<DeviceChoice>, default_value = "cuda")]
    device: DeviceChoice,
    /// Batches at which layers are measured
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "16,32,64", value_parser = positive)]
    #[arg(allow_hyphen_values = true)]
    batch_per_rank: Vec<u32>,
    /// How many learners share the GPU, to find what they cost each other
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "1,2,4", value_parser = positive)]
    #[arg(allow_hyphen_values = true)]
    learners: Vec<u32>,
    /// Steps of which each figure is the median
    #[arg(long, value_name = "N", default_value = "30", value_parser = positive, allow_hyphen_values = true)]
    steps: u32,
    /// Data: mnist, synthetic, synthetic:SAMPLES, or a folder of IDX files
    #[arg(long, default_value = "synthetic")]
    data: String,
    /// Where to write the profile
    #[arg(short, long, value_name = "FILE", default_value = "gpu.json")]
    output: PathBuf,
    #[command(flatten)]
    patience: PatienceFlag,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Profile {
    pub(super) fn run(self) -> Result<(), Failure> {
        let load = |name: &String| {
            // The error for an unknown name has no place of its own.
            self.unfold.load(name).map(Arc::new).map_err(|error| error.or_at(ErrorPlace::Flag("model")))
        };
        let models: Result<Vec<_>, InputError> = self.model.iter().map(load).collect();
        let models = models?;
        check_writable("--output", &self.output)?;
        let ascending = |mut all: Vec<u32>| {
            all.sort_unstable();
            all.dedup();
            all
        };
        let batches = ascending(self.batch_per_rank);
        // The others are compared with one learner alone.
        let learners = ascending([vec![1], self.learners].concat());
        let sizes: Vec<String> = batches.iter().map(u32::to_string).collect();
        let command = format!(
            "lockstep exec profile --model {} --device {} --batch-per-rank {}",
            self.model.join(","),
            self.device,
            sizes.join(",")
        );
        let wanted =
            Wanted { models, batches, learners, device: self.device, steps: self.steps, data: self.data, command };
        let mut quiet = Quiet::new(Cores::find(), self.patience.limit());
        let found = profile(&wanted, &mut quiet, |what| print_information(&format!("lockstep: measuring {what}")))?;
        write_atomically("--output", &self.output, |file| file.write_all(found.to_json().as_bytes()))?;
        let written = self.output.display();
        let mut notes = vec![
            format!("profile of {} written to {written}; predict with --profile {written}", found.host),
            "medians with 95 % confidence intervals; slowdown: how much longer for learners that share the GPU"
                .to_owned(),
        ];
        notes.extend(found.gpus.iter().flat_map(memory));
        let all: Vec<CalibrationRow> = found.gpus.iter().flat_map(gpu_rows).chain(rows(&found)).collect();
        Report::new(all, notes).print(self.format)
    }
}

/// The device memory that ranks took, beside their plan.
fn memory(gpu: &GpuEntry) -> Vec<String> {
    let note = |entry: &lockstep_models::profile::MemoryEntry| {
        let (planned, taken) = (Bytes(entry.planned_bytes), Bytes(entry.taken_bytes));
        format!("{} at a batch of {} took {taken} of {}, by the plan {planned}", entry.model, entry.samples, gpu.model)
    };
    gpu.memory.iter().map(note).collect()
}
