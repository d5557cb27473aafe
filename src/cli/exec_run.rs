//! Runs `lockstep exec run`: trains an experiment.

use std::path::PathBuf;

use clap::Args;
use lockstep_data::Dataset;
use lockstep_measure::devices::devices;
use lockstep_measure::host::now_text;
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::Operation;
use lockstep_measure::rows::{lay_out, rows};
use lockstep_measure::started::take_started;
use lockstep_report::failure::Failure;
use lockstep_report::log::{print_information, stamp_with};
use lockstep_report::output::check_outputs;
use lockstep_report::trace::TraceFile;
use lockstep_report::{Format, Report};
use lockstep_topology::InputError;

use super::driver_flags::DriverFlags;
use super::flags::{SettingFlags, positive};
use super::generated::Written;
use super::operation_flags::OperationFlags;
use super::saved_weights::SavedWeights;
use lockstep_experiment::setting::RUN;
use lockstep_experiment::tuner_log::Logged;
use lockstep_experiment::{Configuration, Experiment};

/// More seeds than this are shown as a range.
const MOST_LISTED: u32 = 16;

/// Flags of `exec run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep exec run --model lenet --data mnist --ranks 2 --batch-per-rank 32 --epochs 10
  lockstep exec run --model resnet-32 --ranks 1,2 --batch-per-rank 32 --accumulate 8 --recipe goyal2017 --epochs 6 \\
      --seeds 5 --recompute-bn
  lockstep exec run --model lenet --data mnist --ranks 1 --learners 4 --strategy sma:first-come --batch-per-rank 16 \\
      --epochs 10 --target-accuracy 0.99 --driver-log claims.jsonl
  lockstep exec run --model lenet --data mnist --strategy sma --learners auto --batch-per-rank 16 --steps 300 \\
      --tuner-log tuned.json
  lockstep exec run --model lenet --data mnist --ranks 2 --epochs 20 --checkpoint kept --checkpoint-every 30s
  lockstep exec run --model lenet --data mnist --ranks 2 --epochs 20 --checkpoint kept --resume kept
  lockstep exec run --solver lenet_solver.prototxt --model lenet_train_test.prototxt:input=1x28x28 --data mnist --ranks 2
  lockstep exec run --model train_val.prototxt --weights net.caffemodel --data flowers.pack --steps 1000
  lockstep exec run --model gpt2/config.json --weights gpt2 --data tokens.pack --ranks 2 --strategy zero-3 --steps 1000 \\
      --save-weights tuned.safetensors
  lockstep exec run --model resnet-50 --data synthetic --device cuda:bf16 --batch-per-rank 256 --steps 100
  lockstep exec run --model gpt2-char --steps 500 --optimizer adamw --learning-rate 0.001 --generate 200 --prompt \"In the\"
  mpirun -n 4 lockstep exec run --model lenet --data mnist --transport mpi --steps 100
  srun -N 2 --ntasks-per-node=2 lockstep exec run --model lenet --data mnist --transport mpi --steps 100
      a rank for each process that was started; --ranks 8 would be two in each")]
pub(super) struct ExecRun {
    /// Experiment file (TOML); flags replace what it says
    experiment: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<RUN>,
    #[command(flatten)]
    driver: DriverFlags,
    #[command(flatten)]
    operation: OperationFlags,
    /// With --learners auto: write what the tuner observed
    #[arg(long, value_name = "FILE")]
    tuner_log: Option<PathBuf>,
    /// With --learners auto: repeat the decisions of a log of --tuner-log, which trains the same bits
    #[arg(long, value_name = "FILE")]
    replay_tuner: Option<PathBuf>,
    /// Of a decoder: write the trained weights in fp32, with the names and layouts of transformers
    #[arg(long, value_name = "FILE.safetensors")]
    save_weights: Option<PathBuf>,
    /// Write a Chrome/Perfetto trace of all configurations
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Let the trained model write this number of tokens after the prompt and print them; as text where tokens are bytes or the data have a tokenizer
    #[arg(long, value_name = "N", value_parser = positive, allow_hyphen_values = true)]
    generate: Option<u32>,
    /// With --generate: the text that is continued, where tokens are bytes or the data have a tokenizer [default: the start of a line]
    #[arg(long, value_name = "TEXT", requires = "generate")]
    prompt: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl ExecRun {
    /// Refuses logs of a tuner that does not run.
    fn check_tuner(&self, experiment: &Experiment) -> Result<(), InputError> {
        let asked = [("tuner_log", &self.tuner_log), ("replay_tuner", &self.replay_tuner)];
        match asked.into_iter().find_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            Some((flag, path)) if !experiment.tunes => {
                let message = "is a log of the tuner, which runs with --learners auto alone: add that, or leave it out";
                Err(InputError::flag(flag, path.display().to_string(), message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses files that could not be written after the training.
    fn check_outputs(&self) -> Result<(), InputError> {
        let (trace, tuner_log) = (self.trace.as_deref(), self.tuner_log.as_deref());
        let weights = ("--save-weights", self.save_weights.as_deref());
        let (driver_log, metrics) = (self.driver.output(), self.operation.output());
        check_outputs(&[("--trace", trace), ("--tuner-log", tuner_log), driver_log, metrics, weights])
    }

    /// What the trained models are to write.
    fn written(&self, experiment: &Experiment, of: &[Configuration]) -> Result<Option<Written>, InputError> {
        self.generate.map(|count| Written::new(count, self.prompt.as_deref(), (experiment, of))).transpose()
    }

    pub(super) fn run(self) -> Result<(), Failure> {
        let mut experiment = self.settings.resolve(self.experiment.as_deref())?;
        take_started(&mut experiment);
        devices(&experiment)?;
        if experiment.device.is_gpu() {
            experiment.find_library();
        }
        self.check_tuner(&experiment)?;
        if let Some(path) = &self.replay_tuner {
            experiment.tuning = Logged::load(path)?;
        }
        self.check_outputs()?;
        experiment.tokenizer = Dataset::tokenizer_sha256(&experiment.data)?;
        // Errors in the input are reported before the processes join each other.
        let configurations = experiment.configurations()?;
        let written = self.written(&experiment, &configurations)?;
        lay_out(&experiment, &mut configurations.clone())?;
        self.driver.apply(&mut experiment, &configurations)?;
        self.operation.check(&experiment, &configurations)?;
        let saved = self.save_weights.as_deref();
        let saved = saved.map(|path| SavedWeights::new(path, &experiment, &configurations)).transpose()?;
        let mut launch = Launch::new(&experiment, self.operation.stall_limit())?;
        if launch.prints() {
            announce(&experiment, &configurations);
        }
        let operation = launch.all(self.operation.open(&experiment, &configurations[0], &launch))?;
        let operation = Operation { timed: self.trace.is_some(), ..operation };
        stamp_with(now_text);
        let (mut trace, mut kept) = (TraceFile::new(), Ok(()));
        let (mut claims, mut tuned, mut notes) = (Vec::new(), Vec::new(), configurations[0].job.model.notes().to_vec());
        notes.extend(experiment.account_of_names());
        let rows = rows(&experiment, &operation, &mut launch, |configuration, measured| {
            claims.clone_from(&measured.run.claims);
            let news = measured.run.notes.iter().filter(|note| !notes.contains(note)).cloned().collect::<Vec<_>>();
            notes.extend(news);
            if let Some(tuning) = &measured.tuning {
                let (configuration, seed) = (configuration.label(), measured.seed);
                let (most, trials) = (measured.most.clone(), measured.trials.clone());
                tuned.push(Logged { configuration, seed, most, trials });
                notes.push(tuning.clone());
            }
            let seed = if experiment.seeds > 1 { format!(", seed {}", measured.seed) } else { String::new() };
            let label = format!("{}{seed}", configuration.label());
            notes.extend(written.iter().map(|written| written.note(&label, measured, self.format)));
            // What is measured is printed, whether or not its files can be kept.
            if kept.is_ok() {
                kept = saved.iter().try_for_each(|saved| saved.write(measured));
            }
            if self.trace.is_some() {
                let (label, run) = (format!("measured {label}"), &measured.run);
                trace.add(&label, &measured.program, &run.periodic, &run.timeline);
            }
            Ok(())
        })?;
        notes.extend(notes_on_accuracy(&experiment));
        if !launch.prints() {
            return Ok(());
        }
        Report::new(rows, notes).print(self.format)?;
        kept?;
        self.driver.save(&claims)?;
        if let Some(path) = &self.trace {
            trace.save(path)?;
        }
        if let Some(path) = &self.tuner_log {
            Logged::save(&tuned, path)?;
        }
        Ok(())
    }
}

/// Says what is about to be trained.
fn announce(experiment: &Experiment, configurations: &[Configuration]) {
    let seed = |more: u32| experiment.seed.wrapping_add(u64::from(more)).to_string();
    let seeds = match experiment.seeds {
        few @ ..=MOST_LISTED => (0..few).map(seed).collect::<Vec<_>>().join(", "),
        many => format!("{} to {}", seed(0), seed(many - 1)),
    };
    print_information(&format!("seed {seeds}, {} configuration(s)", configurations.len()));
    print_information(&experiment.account_of_training(configurations));
}

/// What accuracies and losses are, where that is not plain.
fn notes_on_accuracy(experiment: &Experiment) -> Vec<String> {
    let several = experiment.length.epochs().is_some_and(|epochs| epochs > 1).then_some(
        "accuracy is that after the last step; test_error_pct is the median after each of the last five epochs, so that \
         the two need not add up to 100 %",
    );
    let null = (!experiment.device.learns())
        .then_some("the null device computes nothing: losses and accuracies have no meaning");
    several.into_iter().chain(null).map(str::to_owned).collect()
}
