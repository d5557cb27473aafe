//! The flags of runs: data, length, seeds, the optimizer and how the model is judged.

use clap::Args;
use lockstep_exec::data::Augmentation;
use lockstep_models::{Decay, MomentumForm, Scaling, WarmUp};
use lockstep_topology::InputError;

use super::flags::{checked, parsed, positive, replace};
use crate::experiment::{Experiment, Length, Recipe, accuracy, momentum};

/// Flags of the runs of an experiment.
#[derive(Debug, Clone, Args)]
pub(super) struct RunFlags {
    /// Data: mnist, synthetic, synthetic:SAMPLES, or a folder of IDX files
    #[arg(long)]
    data: Option<String>,
    /// Optimizer steps
    #[arg(long, value_parser = positive, value_name = "N", conflicts_with = "epochs", allow_hyphen_values = true)]
    steps: Option<u32>,
    /// Passes over the training samples; the error is then the median after each of the last 5
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    epochs: Option<u32>,
    /// Seed of initial parameters, of the order of the samples and of dropout
    #[arg(long, value_parser = seed, value_name = "N", allow_hyphen_values = true)]
    seed: Option<u64>,
    /// Train with so many seeds in turn, e.g. 5: seed, seed + 1, …; the error is shown with mean and standard deviation
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    seeds: Option<u32>,
    /// What is done to training samples: none, or some of patch,scale,crop=4,flip (predictions leave its time out)
    #[arg(long, value_parser = parsed::<Augmentation>, value_name = "WHAT")]
    augment: Option<Augmentation>,
    /// End a run when the model (of learners: their average) is that accurate after an epoch, e.g. 0.99
    #[arg(long, value_parser = checked(accuracy), value_name = "X", allow_hyphen_values = true)]
    target_accuracy: Option<f64>,
    /// Look for it in the median accuracy of the last N epochs, e.g. 5
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    target_epochs: Option<u32>,
    /// Recompute batch norm's statistics over an epoch of training samples before each evaluation
    #[arg(long)]
    recompute_bn: bool,
    #[command(flatten)]
    optimizer: OptimizerFlags,
}

/// Flags of the optimizer.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Optimizer")]
struct OptimizerFlags {
    /// Train as a paper did, e.g. goyal2017, iandola2016:nin, or FILE.toml; the flags below replace what it says
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Learning rate of SGD
    #[arg(long, value_parser = not_negative, value_name = "X", allow_hyphen_values = true)]
    learning_rate: Option<f64>,
    /// How the rate follows the global batch: none, linear:256 (times batch / 256), square-root:256
    #[arg(long, value_parser = parsed::<Scaling>, value_name = "RULE")]
    scaling: Option<Scaling>,
    /// How the first epochs lead to the scaled rate: none, constant:5, gradual:5, gradual:5@0.1
    #[arg(long, value_parser = parsed::<WarmUp>, value_name = "RULE")]
    warm_up: Option<WarmUp>,
    /// How the rate falls: constant, steps:0.1@30,60,80, every:0.5@20, polynomial:0.5, cosine
    #[arg(long, value_parser = parsed::<Decay>, value_name = "RULE")]
    decay: Option<Decay>,
    /// Momentum of SGD, e.g. 0.9
    #[arg(long, value_parser = checked(momentum), value_name = "X", allow_hyphen_values = true)]
    momentum: Option<f64>,
    /// What the momentum buffer holds: separate (no rate), absorbed (the rate too), corrected (absorbed, with a correction)
    #[arg(long, value_parser = parsed::<MomentumForm>, value_name = "FORM")]
    momentum_form: Option<MomentumForm>,
    /// Look ahead along the momentum
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    nesterov: Option<bool>,
    /// Weight decay
    #[arg(long, value_parser = not_negative, value_name = "X", allow_hyphen_values = true)]
    weight_decay: Option<f64>,
    /// Let batch norm's parameters decay too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    decay_batch_norm: Option<bool>,
}

impl RunFlags {
    /// Replaces what the experiment says.
    ///
    /// # Errors
    /// An unknown recipe.
    pub(super) fn apply(self, experiment: &mut Experiment) -> Result<(), InputError> {
        if let Some(name) = &self.optimizer.recipe {
            experiment.follow(Recipe::load(name)?);
            experiment.overridden("recipe");
        }
        replace(experiment, "data", self.data, |e, data| e.data = data);
        replace(experiment, "steps", self.steps, |e, steps| e.length = Length::Steps(steps));
        replace(experiment, "epochs", self.epochs, |e, epochs| e.length = Length::Epochs(epochs));
        replace(experiment, "seed", self.seed, |e, seed| e.seed = seed);
        replace(experiment, "seeds", self.seeds, |e, seeds| e.seeds = seeds);
        replace(experiment, "target_accuracy", self.target_accuracy, |e, target| e.target.accuracy = Some(target));
        replace(experiment, "target_epochs", self.target_epochs, |e, epochs| e.target.epochs = epochs);
        replace(experiment, "recompute_bn", self.recompute_bn.then_some(true), |e, yes| e.recompute_bn = yes);
        replace(experiment, "augment", self.augment, |e, augmentation| e.augmentation = augmentation);
        let flags = self.optimizer;
        replace(experiment, "optimizer", flags.learning_rate, |e, rate| e.optimizer.learning_rate = rate);
        replace(experiment, "optimizer", flags.scaling, |e, scaling| e.optimizer.scaling = scaling);
        replace(experiment, "optimizer", flags.warm_up, |e, warm_up| e.optimizer.warm_up = warm_up);
        replace(experiment, "optimizer", flags.decay, |e, decay| e.optimizer.decay = decay);
        replace(experiment, "optimizer", flags.momentum, |e, momentum| e.optimizer.momentum = momentum);
        replace(experiment, "optimizer", flags.momentum_form, |e, form| e.optimizer.form = form);
        replace(experiment, "optimizer", flags.nesterov, |e, nesterov| e.optimizer.nesterov = nesterov);
        replace(experiment, "optimizer", flags.weight_decay, |e, decay| e.optimizer.weight_decay = decay);
        replace(experiment, "optimizer", flags.decay_batch_norm, |e, decay| e.optimizer.decay_batch_norm = decay);
        Ok(())
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "must be a whole number from 0 to 2^64 - 1".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number of at least 0".to_owned()),
    }
}
