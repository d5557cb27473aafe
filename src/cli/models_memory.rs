//! Runs `lockstep models show --memory`: the device memory that training on one rank takes, and its picture over a step.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lockstep_experiment::form::parsed;
use lockstep_measure::memory;
use lockstep_models::{Job, Model, Recompute, UpdateRule};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::{Format, Report};

/// Flags of `models show` that are about memory.
#[derive(Debug, Args)]
pub(super) struct ModelsMemory {
    /// Show what one learner takes of a device's memory instead of the layers
    #[arg(long, required = false)]
    memory: bool,
    /// Samples of a micro-batch, with --memory
    #[arg(long, default_value_t = 32, requires = "memory")]
    batch: u32,
    /// Optimizer, whose state is counted, with --memory: sgd (momentum), adam or adamw
    #[arg(long, value_name = "NAME", default_value = "sgd", value_parser = parsed::<UpdateRule>, requires = "memory")]
    optimizer: UpdateRule,
    /// Which activations are computed again, with --memory: none, full, full:every=N or selective with modules
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = parsed::<Recompute>, requires = "memory")]
    recompute: Recompute,
    /// Draw the memory over the tasks of a step (SVG), with --memory
    #[arg(long, value_name = "FILE.svg", requires = "memory")]
    plot: Option<PathBuf>,
}

impl ModelsMemory {
    pub(super) fn run(self, model: Model, format: Format) -> Result<(), Failure> {
        check_outputs(&[("--plot", self.plot.as_deref())])?;
        let (rule, recompute) = (self.optimizer, self.recompute);
        let job = Job { rule, recompute, ..Job::new(Arc::new(model), 1, self.batch) };
        let (rows, notes) = memory::rows(&job)?;
        if let Some(path) = &self.plot {
            let picture = memory::picture(&job)?;
            write_atomically("--plot", path, |file| file.write_all(picture.as_bytes()))?;
        }
        Report::new(rows, notes).print(format)
    }
}
