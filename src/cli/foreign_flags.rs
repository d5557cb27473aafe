//! `ForeignFlags`: takes the flags of other frameworks, which stand for ours before the command line is parsed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_flags::{Read, read_file, read_megatron};
use lockstep_topology::InputError;

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

/// The commands that take them.
const MEMORY: &[&str] = &["memory"];
const PREDICT: &[&str] = &["sim", "predict"];

/// Our flags that say the same, where one of a command line replaces another of a file.
const SAME: &[&[&str]] = &[
    &["micro-batch-size", "batch-per-rank"],
    &["global-batch-size", "global-batch", "accumulate"],
    &["precision", "dtype"],
    &["strategy", "sequence-parallel"],
    &["tp", "mesh"],
    &["pp", "mesh"],
    &["interleave", "schedule"],
];

/// A command line with our flags beside those of another framework, and what to say of them.
pub(super) struct Expanded {
    pub(super) arguments: Vec<OsString>,
    pub(super) notes: Vec<String>,
}

/// Adds what `--from` and `--from-megatron` stand for. Flags of the command line itself replace them.
///
/// # Errors
/// Files that cannot be read, and what of them is not understood.
pub(super) fn expanded(arguments: Vec<OsString>) -> Result<Expanded, InputError> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command: Vec<&str> = words.iter().skip(1).map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let unchanged = |arguments| Ok(Expanded { arguments, notes: Vec::new() });
    let predicts = command.starts_with(PREDICT);
    if !predicts && !command.starts_with(MEMORY) {
        return unchanged(arguments);
    }
    let has = |flag: &str| {
        let (whole, start) = (format!("--{flag}"), format!("--{flag}="));
        words.iter().any(|word| *word == whole || word.starts_with(&start))
    };
    let value = |flag: &str| {
        let (whole, start) = (format!("--{flag}"), format!("--{flag}="));
        let next = words.iter().position(|word| *word == whole).and_then(|at| words.get(at + 1).cloned());
        next.or_else(|| words.iter().find_map(|word| word.strip_prefix(&start).map(str::to_owned)))
    };
    let (file, megatron) = (value("from"), value("from-megatron"));
    let (read, place): (Read, String) = match (file, megatron) {
        (Some(file), None) => (read_file(Path::new(&file), has("model"))?, file),
        (None, Some(text)) => (read_megatron(&text, has("model"))?, "--from-megatron".to_owned()),
        // The parser refuses both.
        _ => return unchanged(arguments),
    };
    let read = if predicts { read.for_predictions() } else { read };
    if !has("ignore") {
        read.check(&place)?;
    }
    let replaced = |flag: &str| {
        let same = SAME.iter().filter(|same| same[0] == flag).flat_map(|same| same.iter());
        has(flag) || same.into_iter().any(|other| has(other))
    };
    let taken: Vec<&(&str, String)> = read.flags.iter().filter(|(flag, _)| !replaced(flag)).collect();
    let shown: Vec<String> =
        taken.iter().map(|(flag, value)| format!("--{flag} {value}").trim_end().to_owned()).collect();
    let mut notes = vec![format!("{place} ({}) stands for {}", read.source, shown.join(" "))];
    for (what, of) in [
        ("without effect on memory and time", &read.nothing),
        ("not counted by predictions", &read.not_counted),
        ("not understood, ignored", &read.not_read),
    ] {
        if !of.is_empty() {
            notes.push(format!("{place}: {what}: {}", of.join(", ")));
        }
    }
    let mut arguments = arguments;
    for (flag, value) in taken {
        arguments.push(format!("--{flag}").into());
        arguments.extend((!value.is_empty()).then(|| value.into()));
    }
    Ok(Expanded { arguments, notes })
}
