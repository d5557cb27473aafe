//! Runs `lockstep exec sweep`: trains the arms of an experiment.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use lockstep_measure::host::now_text;
use lockstep_measure::launch::Launch;
use lockstep_measure::trained::{Data, RunsFile, answer, merge, plan, share, train};
use lockstep_report::failure::Failure;
use lockstep_report::log::{print_information, stamp_with};
use lockstep_report::output::check_writable;
use lockstep_report::progress::duration;
use lockstep_report::{Format, Report};

use super::flags::{SettingFlags, positive};
use super::shard_flags::{ShardFlags, part_note};
use lockstep_experiment::setting::TRAIN;

/// Flags of `exec sweep`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep exec sweep experiments/claims/warm-up.toml --out experiments/claims/results/warm-up.csv
  lockstep exec sweep experiments/claims/learners.toml --data mnist:256+100 --seeds 2 --out small.csv
      rerunning either resumes it; docs/sweeps.md describes the file
  lockstep exec sweep experiments/claims/learners.toml --data mnist:256+100 --seeds 2 --out small.csv --shard 2/4
  lockstep exec sweep experiments/claims/learners.toml --data mnist:256+100 --seeds 2 --out small.csv --merge 4
      one of four jobs, each with a file of its own, and what makes one of the four; docs/cluster.md submits them to Slurm")]
pub(super) struct ExecSweep {
    /// Experiment file (TOML) with its arms
    experiment: PathBuf,
    /// Add the rows of each run when it is done to a .csv file; rerunning the command resumes from it
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    shards: ShardFlags,
    #[command(flatten)]
    settings: SettingFlags<TRAIN>,
    /// Run at most N runs, and leave the others to the next command
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    most: Option<u32>,
    /// How to print the arms
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl ExecSweep {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut experiment = self.settings.resolve(Some(&self.experiment))?;
        // As in `exec run` and `compare`: the library between the GPUs, where no algorithm is named.
        let arms = experiment.arms.iter_mut().map(|arm| &mut arm.experiment);
        arms.filter(|arm| arm.device.is_gpu()).for_each(lockstep_experiment::Experiment::find_library);
        if experiment.device.is_gpu() {
            experiment.find_library();
        }
        let names = experiment.account_of_names();
        let whole = plan(&experiment)?;
        if let Some(shards) = self.shards.merge {
            let rows = merge(&self.out, &whole, shards)?;
            let note = format!("all {} runs of {shards} shards are in {}", whole.len(), self.out.display());
            return Report::new(answer(&rows), noted(note, names)).print(self.format);
        }
        let (shard, path) = (self.shards.shard, self.shards.file(&self.out));
        let plan = share(&whole, shard);
        for planned in plan.iter().filter(|planned| planned.seed == experiment.seed) {
            Launch::Threads.check(&planned.experiment, std::slice::from_ref(&planned.configuration))?;
        }
        check_writable("--out", &path)?;
        let mut file = RunsFile::open(&path, &whole, shard)?;
        let left: Vec<_> = plan.iter().filter(|planned| !file.has(planned)).collect();
        print_information(&format!(
            "{} runs, of which {} are in {}",
            plan.len(),
            plan.len() - left.len(),
            path.display()
        ));
        stamp_with(now_text);
        let (begun, mut data, command) = (Instant::now(), Data::default(), self.command());
        let now = left.len().min(self.most.map_or(usize::MAX, |most| most as usize));
        for (done, planned) in (1..).zip(&left[..now]) {
            let rows = train(planned, &mut data, &command)?;
            let summary = match rows.last() {
                Some(row) if row.diverged_step.is_some() => "diverged".to_owned(),
                row => row
                    .and_then(|row| row.test_error_pct)
                    .map_or_else(String::new, |error| format!("test error {error:.2} %")),
            };
            file.add(rows)?;
            let rest = begun.elapsed().as_secs_f64() / f64::from(done) * (now - done as usize) as f64;
            let label = planned.configuration.label();
            print_information(&format!(
                "{}, {label}, seed {}: {summary}; {} left",
                planned.arm,
                planned.seed,
                duration(rest)
            ));
        }
        let rows = file.rows();
        let done = plan.iter().filter(|planned| file.has(planned)).count();
        let note = match shard {
            Some(shard) => part_note(shard, done as u64, plan.len(), &path, "runs"),
            None => format!("{done} of {} runs are in {}", plan.len(), path.display()),
        };
        Report::new(answer(rows), noted(note, names)).print(self.format)
    }

    /// The command recorded in each row.
    fn command(&self) -> String {
        let shard = self.shards.shard.map_or_else(String::new, |shard| format!(" --shard {shard}"));
        let (file, out) = (self.experiment.display(), self.out.display());
        format!("lockstep exec sweep {file}{} --out {out}{shard}", self.settings)
    }
}

/// A note, and how the names of other programs differ from what they are taken for.
fn noted(note: String, names: Vec<String>) -> Vec<String> {
    std::iter::once(note).chain(names).collect()
}
