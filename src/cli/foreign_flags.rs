//! `ForeignFlags`: takes the flags of other frameworks, for which ours stand when the command line is parsed again.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use lockstep_flags::{Read, read_file, read_megatron};
use lockstep_topology::{ErrorPlace, InputError};

/// Flags of other frameworks, of the commands that take them.
#[derive(Debug, Args)]
pub(super) struct ForeignFlags {
    /// Take the settings in a file of torchtitan, transformers, DeepSpeed, accelerate, axolotl or LlamaFactory, or of Megatron-LM's
    /// arguments (JSON, TOML, YAML); flags replace them
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Take Megatron-LM's arguments: "--tensor-model-parallel-size 8 --bf16 …"
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, conflicts_with = "from")]
    from_megatron: Option<String>,
    /// Leave out what of them is not understood
    #[arg(long)]
    ignore: bool,
}

/// Flags of a command line in whose place a file's do not stand, besides the same ones.
const INSTEAD: &[(&str, &str)] = &[
    ("accumulate", "global-batch-size"),
    ("global-batch-size", "accumulate"),
    ("tp", "mesh"),
    ("pp", "mesh"),
    ("dp", "mesh"),
    ("interleave", "schedule"),
];

/// What a command line takes of another framework.
pub(super) struct Taken {
    /// Flags of ours that stand beside those of the command line.
    pub(super) arguments: Vec<OsString>,
    /// What to say of them.
    pub(super) notes: Vec<String>,
}

/// What `--from` and `--from-megatron` of a parsed command line stand for, but for what it states itself; `None` where it has neither.
///
/// # Errors
/// Files that cannot be read, and what of them is not understood.
pub(super) fn taken(root: &Command, matches: &ArgMatches) -> Result<Option<Taken>, InputError> {
    let (mut command, mut matches, mut predicts) = (root, matches, false);
    while let Some((name, inside)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { return Ok(None) };
        (command, matches, predicts) = (found, inside, name == "predict");
    }
    // A flag by any of its names.
    let has = |flag: &str| {
        let is = |argument: &&Arg| {
            argument.get_long() == Some(flag) || argument.get_all_aliases().is_some_and(|all| all.contains(&flag))
        };
        let argument = command.get_arguments().find(is);
        argument.is_some_and(|of| matches.value_source(of.get_id().as_str()) == Some(ValueSource::CommandLine))
    };
    let file = matches.try_get_one::<PathBuf>("from").ok().flatten();
    let megatron = matches.try_get_one::<String>("from_megatron").ok().flatten();
    let (read, place): (Read, String) = match (file, megatron) {
        (Some(file), _) => (read_file(file, has("model"))?, file.display().to_string()),
        (None, Some(text)) => (read_megatron(text, has("model"))?, ErrorPlace::Flag("from_megatron").to_string()),
        (None, None) => return Ok(None),
    };
    let read = if predicts { read.for_predictions() } else { read };
    if !has("ignore") {
        read.check(&place, &format!("add {}", ErrorPlace::Flag("ignore")))?;
    }
    let instead = |flag: &str| INSTEAD.iter().any(|(of, other)| *of == flag && has(other));
    let flags = read.flags.iter().filter(|(flag, _)| !has(flag) && !instead(flag));
    let written = |(flag, value): &(&str, String)| match value.as_str() {
        "" => format!("--{flag}"),
        value => format!("--{flag}={value}"),
    };
    let arguments: Vec<String> = flags.map(written).collect();
    let first = format!("{place} ({}) stands for {}", read.source, arguments.join(" "));
    let rest = read.notes().map(|note| format!("{place}: {note}"));
    let notes = std::iter::once(first).chain(rest).collect();
    Ok(Some(Taken { arguments: arguments.into_iter().map(OsString::from).collect(), notes }))
}
