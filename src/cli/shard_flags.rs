//! Defines `--shard` and `--merge`: a sweep as several jobs, and their merged results.

use std::borrow::Cow;
use std::path::Path;

use clap::Args;
use lockstep_experiment::shard::{SweepShard, shards};
use lockstep_topology::InputError;

/// Which part of a sweep a command does.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct ShardFlags {
    /// Run shard I of N, I from 1: the rows of --out rows.csv go to rows.I-of-N.csv
    #[arg(long, value_name = "I/N", requires = "out", conflicts_with = "merge")]
    pub(super) shard: Option<SweepShard>,
    /// Merge the files of all N shards into --out: the same command with this instead of --shard
    #[arg(long, value_name = "N", requires = "out", value_parser = shards, allow_hyphen_values = true)]
    pub(super) merge: Option<u32>,
}

impl ShardFlags {
    /// Refuses outputs of the whole sweep when only a part is done.
    ///
    /// # Errors
    /// Such an output.
    pub(super) fn check(&self, whole: &[(&'static str, Option<&Path>)]) -> Result<(), InputError> {
        let given = whole.iter().find_map(|(flag, path)| Some((*flag, (*path)?)));
        match (self.shard, given) {
            (Some(_), Some((flag, path))) => {
                Err(InputError::flag(flag, path.display().to_string(), "is of the whole sweep: give it with --merge"))
            }
            _ => Ok(()),
        }
    }

    /// The file of this part, given the file `out` of the whole sweep.
    pub(super) fn file<'a>(&self, out: &'a Path) -> Cow<'a, Path> {
        self.shard.map_or(Cow::Borrowed(out), |shard| Cow::Owned(shard.file(out)))
    }
}

/// The progress of a shard, and the next command.
pub(super) fn part_note(shard: SweepShard, done: u64, all: usize, path: &Path, what: &str) -> String {
    let next = match done == all as u64 {
        true => format!("--merge {} puts all shards together", shard.of()),
        false => "rerunning the command resumes".to_owned(),
    };
    format!("shard {shard}: {done} of {all} {what} are in {}; {next}", path.display())
}
