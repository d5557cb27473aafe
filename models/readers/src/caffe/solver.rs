//! Reads Caffe's solvers (`SolverParameter` of `caffe.proto`): the training of a net as an optimizer, a length, and
//! other settings of a run.

use std::path::Path;

use lockstep_models::{Decay, MomentumForm, Optimizer};
use lockstep_topology::{Bytes, DESCRIPTION, ErrorPlace, InputError, LineIndex, read_text};

use super::text::{Message, Source};
use super::training::batch_size;

/// The training of a net.
#[derive(Debug, Clone, PartialEq)]
pub struct Solver {
    /// Its file.
    pub file: String,
    /// The file of its net.
    pub net: String,
    /// Samples of a batch, from the net's data layer.
    pub batch: Option<u32>,
    /// Batches of a step: `iter_size`.
    pub accumulate: u32,
    /// `max_iter`.
    pub steps: Option<u32>,
    /// `random_seed`.
    pub seed: Option<u64>,
    /// A file of initial weights.
    pub weights: Option<String>,
    /// Rates, momentum, decay.
    pub optimizer: Optimizer,
    /// Fields without effect on training, with their replacements.
    pub notes: Vec<String>,
}

/// Fields that are read.
const READ: &[&str] = &[
    "net",
    "train_net",
    "base_lr",
    "lr_policy",
    "gamma",
    "power",
    "stepsize",
    "stepvalue",
    "momentum",
    "weight_decay",
    "regularization_type",
    "max_iter",
    "iter_size",
    "type",
    "solver_type",
    "random_seed",
    "clip_gradients",
    "weights",
];

/// Fields without effect on training, the flags that replace them, and what these do.
const NOTED: &[(&[&str], &[&str], &str)] = &[
    (&["display", "average_loss", "debug_info"], &["metrics"], "keeps the loss of each step"),
    (
        &[
            "test_net",
            "test_net_param",
            "test_state",
            "test_iter",
            "test_interval",
            "test_initialization",
            "test_compute_loss",
        ],
        &["epochs"],
        "judges the model after epochs, and it is judged after the last step",
    ),
    (
        &["snapshot", "snapshot_prefix", "snapshot_format", "snapshot_diff", "snapshot_after_train"],
        &["checkpoint", "checkpoint_every"],
        "keep the state of training",
    ),
    (
        &["solver_mode", "device_id", "layer_wise_reduce"],
        &["device", "bucket"],
        "say what computes and when gradients are exchanged",
    ),
    (&["delta", "momentum2", "rms_decay"], &["momentum", "nesterov"], "are all that this type of solver reads"),
];

/// Fields without an equivalent, and the cure.
const REFUSED: &[(&str, &str)] = &[
    ("net_param", "a net is read from a file of its own: write it there, and its name under net"),
    ("train_net_param", "a net is read from a file of its own: write it there, and its name under net"),
    ("train_state", "layers of stages and levels are not told apart: write the net of that state into a file"),
];

impl Solver {
    /// The solver in the file at `path`, with values of its net. The net is searched in the working directory, as Caffe
    /// does, and beside the solver.
    ///
    /// # Errors
    /// An unreadable file, and whatever [`Solver::parse`] refuses.
    pub fn load(path: &str) -> Result<Solver, InputError> {
        let cure = "name a solver.prototxt";
        let refused = |error: lockstep_topology::Unreadable| InputError::flag("solver", path, error.with_cure(cure));
        let (mut solver, place) = parse(path, &read_text(Path::new(path), DESCRIPTION).map_err(refused)?)?;
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        let own_name = Path::new(&solver.net).file_name().unwrap_or_default();
        let places = [Path::new(&solver.net).to_owned(), folder.join(&solver.net), folder.join(own_name)];
        let found = places.into_iter().find(|place| place.is_file()).and_then(|path| path.to_str().map(str::to_owned));
        let Some(found) = found else {
            let message = "there is no such file, from here or beside the solver: correct the path";
            return Err(InputError::new(place, solver.net, message));
        };
        let text = read_text(Path::new(&found), NET)
            .map_err(|error| InputError::new(place, &found, error.with_cure("name a net")))?;
        solver.batch = batch_size(&Source { file: &found, text: &text, lines: &LineIndex::of(&text) }.read()?)?;
        if solver.batch.is_some() {
            solver.notes.push(format!("the net's data layer: samples come from {}", ErrorPlace::Flag("data")));
        }
        solver.net = found;
        Ok(solver)
    }

    /// The solver that `text`, the content of `file`, describes; its net is only named.
    ///
    /// # Errors
    /// The line of the first field that is unknown, missing, out of range or without an equivalent here.
    pub fn parse(file: &str, text: &str) -> Result<Solver, InputError> {
        parse(file, text).map(|(solver, _)| solver)
    }
}

/// The largest file of a net.
const NET: Bytes = Bytes(8 << 20);

/// The solver, and the place where it names its net.
fn parse(file: &str, text: &str) -> Result<(Solver, ErrorPlace), InputError> {
    let lines = &LineIndex::of(text);
    let of = Source { file, text, lines }.read()?;
    let refused: Vec<&str> = REFUSED.iter().map(|(name, _)| *name).collect();
    let noted: Vec<&str> = NOTED.iter().flat_map(|(names, ..)| names.iter().copied()).collect();
    of.allow(&[READ, &noted, &refused])?;
    for (name, cure) in REFUSED {
        if let Some(field) = of.get(name) {
            return Err(field.error(*cure));
        }
    }
    let clips = of.get("clip_gradients").map(|field| Ok::<_, InputError>((field, field.double()?))).transpose()?;
    if let Some((field, _)) = clips.filter(|(_, most)| *most >= 0.0) {
        return Err(field.error("gradients are not clipped here: leave it out"));
    }
    let Some(net) = of.get("train_net").or(of.get("net")) else {
        return Err(of.error("net", "has no net: add net: \"train_val.prototxt\""));
    };
    let name = net.text()?;
    if !name.ends_with(".prototxt") {
        return Err(net.error("a net's file ends in .prototxt here: rename it"));
    }
    let whole = |name: &str, least: u32| match of.get(name) {
        None => Ok(None),
        Some(field) => match field.size()? {
            number if number < least => Err(field.error(format!("must be at least {least}"))),
            number => Ok(Some(number)),
        },
    };
    let seed = match of.get("random_seed") {
        None => None,
        Some(field) => match field.word()?.parse::<i64>() {
            Ok(seed) => u64::try_from(seed).ok(),
            Err(_) => return Err(field.error("must be a whole number, or -1 for any")),
        },
    };
    let weights = match of.all("weights").collect::<Vec<_>>()[..] {
        [] => None,
        [file] => Some(file.text()?.to_owned()),
        [_, second, ..] => return Err(second.error("is a second file of weights: name one")),
    };
    let given =
        |names: &[&'static str]| names.iter().copied().filter(|name| of.get(name).is_some()).collect::<Vec<_>>();
    let note = |(names, flags, what): &(&[&'static str], &[&'static str], &str)| {
        let given = given(names);
        let flags: Vec<String> = flags.iter().map(|flag| ErrorPlace::Flag(flag).to_string()).collect();
        (!given.is_empty()).then(|| format!("{}: {} {what}", given.join(", "), flags.join(" and ")))
    };
    let solver = Solver {
        file: file.to_owned(),
        net: name.to_owned(),
        batch: None,
        accumulate: whole("iter_size", 1)?.unwrap_or(1),
        steps: whole("max_iter", 1)?,
        seed,
        weights,
        optimizer: optimizer(&of)?,
        notes: NOTED.iter().filter_map(note).collect(),
    };
    Ok((solver, net.place()))
}

/// Caffe's momentum SGD: the buffer includes the rate (`v ← m·v + η·(g + λ·w)`, `w ← w − v`), and every
/// parameter decays.
fn optimizer(of: &Message<'_>) -> Result<Optimizer, InputError> {
    let nesterov = match of.get("type").or(of.get("solver_type")) {
        None => false,
        Some(field) => match field.name_of_type()? {
            "SGD" | "0" => false,
            "Nesterov" | "NESTEROV" | "1" => true,
            _ => return Err(field.error("steps in another way than momentum SGD: use SGD or Nesterov")),
        },
    };
    if let Some(field) = of.get("regularization_type")
        && field.text()? != "L2"
    {
        return Err(field.error("weights decay by L2 alone here: use \"L2\""));
    }
    if of.get("base_lr").is_none() {
        return Err(of.error("base_lr", "has no learning rate: add base_lr: 0.01"));
    }
    let momentum = positive(of, "momentum", 0.0)?;
    if momentum >= 1.0 {
        return Err(of.error(format!("momentum: {momentum}"), "must be below 1"));
    }
    Ok(Optimizer {
        learning_rate: positive(of, "base_lr", 0.0)?,
        decay: decay(of)?,
        momentum,
        form: MomentumForm::Absorbed,
        nesterov,
        weight_decay: positive(of, "weight_decay", 0.0)?,
        decay_batch_norm: true,
        ..Optimizer::default()
    })
}

/// `lr_policy` and its fields, following Caffe's `GetLearningRate`.
fn decay(of: &Message<'_>) -> Result<Decay, InputError> {
    const EXAMPLE: &str = "fixed, step, exp, inv, multistep, poly or sigmoid";
    let Some(policy) = of.get("lr_policy") else {
        return Err(of.error(
            "lr_policy",
            format!("does not say how the rate falls: add lr_policy: \"fixed\", or one of {EXAMPLE}"),
        ));
    };
    let name = policy.text()?;
    let need = |field: &str| match of.get(field) {
        Some(_) => Ok(()),
        None => Err(policy.error(format!("needs {field}: add it"))),
    };
    let number = |field: &str| need(field).and_then(|()| positive(of, field, 0.0));
    let steps = |field: &str| need(field).and_then(|()| of.size(field, 0)).map(u64::from);
    match name {
        "fixed" => Ok(Decay::Constant),
        "step" => match steps("stepsize")? {
            0 => Err(policy.error("needs a stepsize of at least 1")),
            steps => Ok(Decay::EverySteps { factor: number("gamma")?, steps }),
        },
        "exp" => Ok(Decay::Exponential { factor: number("gamma")? }),
        "inv" => Ok(Decay::Inverse { slope: number("gamma")?, power: number("power")? }),
        "multistep" => {
            need("stepvalue")?;
            let steps = of.all("stepvalue").map(|field| field.size().map(u64::from)).collect::<Result<Vec<_>, _>>()?;
            if !steps.is_sorted_by(|one, next| one < next) {
                return Err(policy.error("needs stepvalues that ascend"));
            }
            Ok(Decay::AtSteps { factor: number("gamma")?, steps })
        }
        "poly" => {
            need("max_iter")?;
            Ok(Decay::Polynomial { power: number("power")? })
        }
        "sigmoid" => {
            need("gamma")?;
            Ok(Decay::Sigmoid { slope: of.double("gamma", 0.0)?, middle: steps("stepsize")? })
        }
        _ => Err(policy.error(format!("there is no such policy: use {EXAMPLE}"))),
    }
}

/// A number of at least 0 under `name`.
fn positive(of: &Message<'_>, name: &str, without: f64) -> Result<f64, InputError> {
    match (of.get(name), of.double(name, without)?) {
        (Some(field), negative) if negative < 0.0 => Err(field.error("must be at least 0")),
        (_, number) => Ok(number),
    }
}

#[cfg(test)]
mod tests;
