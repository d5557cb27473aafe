//! Defines `--tp`, `--pp`, `--dp` and `--interleave`: sizes of the axes of a mesh and chunks of a stage, under the names that
//! Megatron gives them.

use clap::{Arg, ArgMatches, Command};
use lockstep_experiment::form::positive;
use lockstep_experiment::{AXIS_SIZES, AxisSizes, INTERLEAVE};

/// The other names of each axis's flag, and its description.
const AXES: [(&[&str], &str); 3] = [
    (
        &["pipeline-parallel", "pipeline-parallel-size", "pipeline-model-parallel-size"],
        "Pipeline stages: the mesh's axis pipeline",
    ),
    (
        &["data-parallel", "data-parallel-size"],
        "Ranks among which samples are divided: the mesh's axis data [default: those of --ranks that --tp and --pp leave]",
    ),
    (
        &["tensor-parallel", "tensor-parallel-size", "tensor-model-parallel-size"],
        "Ranks that split each layer: the mesh's axis tensor; with the strategy megatron, if none is given",
    ),
];

/// The other names of the flag of interleaved schedules.
const INTERLEAVE_OTHERS: [&str; 2] = ["num-virtual-stages-per-pipeline-rank", "virtual-pipeline-stages"];

/// The command with these flags.
pub(super) fn augment(command: Command) -> Command {
    let interleave = Arg::new(INTERLEAVE).long(INTERLEAVE).aliases(INTERLEAVE_OTHERS).value_name("V");
    let help = "Chunks of layers of each pipeline stage: the schedule interleaved:V, and 1f1b of one";
    let interleave = interleave.help(help).value_parser(positive).conflicts_with("schedule");
    let command = command.arg(interleave.allow_hyphen_values(true));
    AXIS_SIZES.into_iter().zip(AXES).fold(command, |command, ((_, flag), (others, help))| {
        let argument = Arg::new(flag).long(flag).aliases(others).help(help).value_name("N").conflicts_with("mesh");
        command.arg(argument.value_parser(positive).allow_hyphen_values(true))
    })
}

/// The sizes that a command line gives.
pub(super) fn sizes(matches: &ArgMatches) -> AxisSizes {
    AxisSizes {
        sizes: AXIS_SIZES.map(|(_, flag)| matches.get_one(flag).copied()),
        chunks: matches.get_one(INTERLEAVE).copied(),
    }
}
