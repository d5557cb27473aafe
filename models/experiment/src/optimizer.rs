//! Reads the optimizer's name and the keys of `[optimizer]`, which are flags too; experiments and recipes share them.

use lockstep_models::{Decay, Moments, MomentumForm, NoDecay, Scaling, UpdateRule, WarmUp};
use lockstep_topology::InputError;

use crate::experiment::Experiment;
use crate::form::{CHOICE, MOMENTUM, NOT_NEGATIVE, POSITIVE, word};
use crate::setting::{One, PREDICT, ROW, RUN, ReadBy, Reading, SWEEP, SettingEntry};
use crate::trained::Trained;
use lockstep_topology::document::Entry;

const fn row(
    key: &'static str,
    help: &'static str,
    value: &'static str,
    default: &'static str,
    how: &'static dyn Reading,
) -> SettingEntry {
    SettingEntry { key, help, value, default, how, table: Some("optimizer"), flag_of: RUN, reads: ReadBy::Run, ..ROW }
}

/// The settings in the table `[optimizer]`.
pub(crate) static OPTIMIZER: &[SettingEntry] = &[
    row(
        "learning_rate",
        "Learning rate [default: 0.02; 0.001 for adam and adamw]",
        "X",
        "",
        &One(NOT_NEGATIVE, |e, rate| e.optimizer.learning_rate = rate),
    ),
    row(
        "scaling",
        "How the rate follows the global batch: none, linear:256 (times batch / 256), square-root:256",
        "RULE",
        "none",
        &One(word::<Scaling>(), |e, scaling| e.optimizer.scaling = scaling),
    ),
    row(
        "warm_up",
        "How the first epochs lead to the scaled rate: none, constant:5, gradual:5, gradual:5@0.1",
        "RULE",
        "none",
        &One(word::<WarmUp>(), |e, warm_up| e.optimizer.warm_up = warm_up),
    ),
    row(
        "decay",
        "How the rate falls: constant, steps:0.1@30,60,80, every:0.5@20 (epochs; with steps behind, as in every:0.1@5000steps, steps), \
         linear, polynomial:0.5, cosine, exponential:0.999, inverse:0.0001@0.75, sigmoid:-0.001@5000",
        "RULE",
        "constant",
        &One(word::<Decay>(), |e, decay| e.optimizer.decay = decay),
    ),
    row(
        "momentum",
        "Momentum of SGD, e.g. 0.9",
        "X",
        "0.9",
        &One(MOMENTUM, |e, momentum| e.optimizer.momentum = momentum),
    ),
    row(
        "momentum_form",
        "What the momentum buffer holds: separate (no rate), absorbed (the rate too), corrected (absorbed, with a correction)",
        "FORM",
        "separate",
        &One(word::<MomentumForm>(), |e, form| e.optimizer.form = form),
    ),
    row(
        "nesterov",
        "Look ahead along the momentum",
        "BOOL",
        "false",
        &One(CHOICE, |e, nesterov| e.optimizer.nesterov = nesterov),
    ),
    row(
        "beta1",
        "Part of the first moment that a step of adam or adamw keeps",
        "X",
        "0.9",
        &One(MOMENTUM, |e, beta| e.optimizer.beta1 = beta),
    ),
    row(
        "beta2",
        "Part of the second moment that a step of adam or adamw keeps",
        "X",
        "0.999",
        &One(MOMENTUM, |e, beta| e.optimizer.beta2 = beta),
    ),
    row(
        "epsilon",
        "Added to the root of the second moment by adam and adamw",
        "X",
        "1e-8",
        &One(NOT_NEGATIVE, |e, epsilon| e.optimizer.epsilon = epsilon),
    ),
    SettingEntry {
        flag_of: PREDICT | RUN | SWEEP,
        reads: ReadBy::Both,
        trained: Some((Trained::As, |run| {
            Some(run.experiment.optimizer.moments).filter(|of| *of != Moments::F32).map(|of| of.to_string())
        })),
        ..row(
            "moments",
            "The numbers in which the optimizer keeps its moments, SGD its momentum: fp32 or bf16",
            "NUMBERS",
            "fp32",
            &One(word::<Moments>(), |e, moments| e.optimizer.moments = moments),
        )
    },
    row(
        "weight_decay",
        "Weight decay [default: 0; 0.01 for adamw]",
        "X",
        "",
        &One(NOT_NEGATIVE, |e, decay| e.optimizer.weight_decay = decay),
    ),
    SettingEntry {
        flag_of: PREDICT | RUN | SWEEP,
        reads: ReadBy::Both,
        ..row(
            "clip_norm",
            "Scale gradients down to this norm of all of them together, e.g. 1",
            "X",
            "",
            &One(POSITIVE, |e, most| e.optimizer.clip_norm = Some(most)),
        )
    },
    row(
        "decay_batch_norm",
        "Let batch norm's parameters decay too",
        "BOOL",
        "false",
        &One(CHOICE, |e, yes| e.optimizer.decay_batch_norm = yes),
    ),
    row(
        "no_decay",
        "Parameters without weight decay: one-dimensional, or patterns of their names, e.g. one-dimensional,*embedding*",
        "PATTERN,…",
        "",
        &One(word::<NoDecay>(), |e, spared| e.optimizer.no_decay = spared),
    ),
];

/// The optimizer: its name, or in a file the table `[optimizer]`, which may have a name.
pub(crate) struct Named;

impl Reading for Named {
    fn check(&self, text: &str) -> Result<(), String> {
        text.parse::<UpdateRule>().map(drop)
    }

    fn take(&self, experiment: &mut Experiment, _: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        for text in texts {
            choose(experiment, text.parse().map_err(|wrong: String| InputError::new("", "", wrong))?);
        }
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        read(experiment, entry)
    }
}

/// Steps by `rule`, with its defaults for what nothing states; a recipe for another rule states nothing.
fn choose(experiment: &mut Experiment, rule: UpdateRule) {
    if rule == experiment.optimizer.rule {
        return;
    }
    experiment.optimizer.rule = rule;
    if !experiment.states("learning_rate") {
        experiment.optimizer.learning_rate = rule.learning_rate();
    }
    if !experiment.states("weight_decay") {
        experiment.optimizer.weight_decay = rule.weight_decay();
    }
}

/// Applies a table `[optimizer]`, or the name of an optimizer.
///
/// # Errors
/// An unknown key or optimizer, or a value that its key cannot have.
pub(crate) fn read(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    if entry.plain_text().is_some() {
        choose(experiment, entry.read(str::parse)?);
        return Ok(());
    }
    let keys: Vec<&str> = std::iter::once("name").chain(OPTIMIZER.iter().map(|row| row.key)).collect();
    let section = entry.section("[optimizer]", &keys)?;
    if let Some(name) = section.get("name") {
        choose(experiment, name.read(str::parse)?);
    }
    for entry in section.entries().filter(|entry| entry.key() != "name") {
        let row = OPTIMIZER.iter().find(|row| row.key == entry.key());
        row.map_or(Ok(()), |row| row.how.read(experiment, row, &entry))?;
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    Ok(())
}
