//! Defines `--tp`, `--pp`, `--dp` and `--interleave`: sizes of the axes of a mesh and chunks of a stage, under the names that
//! Megatron gives them.

use std::fmt::{self, Display, Formatter};

use clap::{Arg, ArgMatches, Command};
use lockstep_experiment::Experiment;
use lockstep_experiment::form::positive;
use lockstep_models::{Axis, Mesh, Strategy};
use lockstep_topology::{ErrorPlace, InputError};

/// An axis with its flag, the flag's other names, and its description.
type AxisFlag = (Axis, &'static str, &'static [&'static str], &'static str);

/// The axes that have a flag, outer ones first.
const AXES: [AxisFlag; 3] = [
    (
        Axis::Pipeline,
        "pp",
        &["pipeline-parallel", "pipeline-parallel-size", "pipeline-model-parallel-size"],
        "Pipeline stages: the mesh's axis pipeline",
    ),
    (
        Axis::Data,
        "dp",
        &["data-parallel", "data-parallel-size"],
        "Ranks among which samples are divided: the mesh's axis data [default: those of --ranks that --tp and --pp leave]",
    ),
    (
        Axis::Tensor,
        "tp",
        &["tensor-parallel", "tensor-parallel-size", "tensor-model-parallel-size"],
        "Ranks that split each layer: the mesh's axis tensor; with the strategy megatron, if none is given",
    ),
];

/// The sizes that are given, by the position of the axis in [`AXES`], and the chunks of layers of each stage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AxisSizes([Option<u32>; 3], Option<u32>);

/// The flag of interleaved schedules, and its other names.
const INTERLEAVE: &str = "interleave";
const INTERLEAVE_OTHERS: [&str; 2] = ["num-virtual-stages-per-pipeline-rank", "virtual-pipeline-stages"];

impl AxisSizes {
    /// The command with these flags.
    pub(super) fn augment(command: Command) -> Command {
        let interleave = Arg::new(INTERLEAVE).long(INTERLEAVE).aliases(INTERLEAVE_OTHERS).value_name("V");
        let help = "Chunks of layers of each pipeline stage: the schedule interleaved:V, and 1f1b of one";
        let interleave = interleave.help(help).value_parser(positive).conflicts_with("schedule");
        let command = command.arg(interleave.allow_hyphen_values(true));
        AXES.into_iter().fold(command, |command, (_, flag, others, help)| {
            let argument = Arg::new(flag).long(flag).aliases(others).help(help).value_name("N").conflicts_with("mesh");
            command.arg(argument.value_parser(positive).allow_hyphen_values(true))
        })
    }

    /// The sizes that a command line gives.
    pub(super) fn of(matches: &ArgMatches) -> AxisSizes {
        AxisSizes(AXES.map(|(_, flag, ..)| matches.get_one(flag).copied()), matches.get_one(INTERLEAVE).copied())
    }

    /// Makes them the mesh of the experiment; a strategy that splits layers is chosen where none is stated.
    ///
    /// # Errors
    /// Ranks that the other axes do not divide.
    pub(super) fn apply(&self, experiment: &mut Experiment) -> Result<(), InputError> {
        if let Some(chunks) = self.1 {
            let schedule = if chunks == 1 { "1f1b".parse() } else { format!("interleaved:{chunks}").parse() };
            experiment.schedule = schedule.map_err(|wrong| InputError::flag(INTERLEAVE, chunks.to_string(), wrong))?;
            experiment.overridden("schedule");
            experiment.places.insert("schedule".to_owned(), ErrorPlace::Flag(INTERLEAVE));
        }
        if self.0.iter().all(Option::is_none) {
            return Ok(());
        }
        let [stages, data, tensor] = self.0;
        let others = stages.unwrap_or(1).saturating_mul(tensor.unwrap_or(1));
        let data = match (data, experiment.states("ranks"), experiment.ranks.as_slice()) {
            (Some(data), ..) => data,
            (None, true, &[ranks]) if ranks.is_multiple_of(others) => ranks / others,
            (None, true, ranks @ [_, _, ..]) => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                let message = "are several, and --tp, --pp and --dp make one mesh of one number of ranks: give one";
                return Err(InputError::flag("ranks", ranks.join(","), message));
            }
            (None, true, ranks) => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                let message =
                    format!("are not a multiple of the {others} that --tp and --pp take: give one that is, or --dp");
                return Err(InputError::flag("ranks", ranks.join(","), message));
            }
            _ => 1,
        };
        // A file's number of ranks is replaced; a flag's must be the mesh's.
        if matches!(experiment.places.get("ranks"), Some(place) if !matches!(place, ErrorPlace::Flag(_))) {
            experiment.places.remove("ranks");
        }
        let sizes = [stages.unwrap_or(1), data, tensor.unwrap_or(1)];
        let axes: Vec<(Axis, u32)> =
            AXES.iter().map(|(axis, ..)| *axis).zip(sizes).filter(|(_, size)| *size > 1).collect();
        let alone = [(Axis::Data, 1)];
        experiment.mesh = Some(Mesh::new(if axes.is_empty() { &alone } else { &axes })?);
        experiment.overridden("mesh");
        if tensor.is_some_and(|size| size > 1) && !experiment.states("strategy") {
            let megatron: Result<Strategy, String> = "megatron".parse();
            experiment.set_strategies(vec![megatron.map_err(|wrong| InputError::flag("strategy", "megatron", wrong))?]);
            experiment.overridden("strategy");
        }
        Ok(())
    }
}

/// As on a command line, each preceded by a space.
impl Display for AxisSizes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let given = AXES.iter().zip(self.0).filter_map(|((_, flag, ..), size)| Some((flag, size?)));
        given.into_iter().try_for_each(|(flag, size)| write!(f, " --{flag} {size}"))?;
        self.1.map_or(Ok(()), |chunks| write!(f, " --{INTERLEAVE} {chunks}"))
    }
}
