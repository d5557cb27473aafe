//! `lockstep papers`.

use clap::Args;

use crate::failure::Failure;
use crate::papers::{PAPERS, Paper, account};
use crate::progress::Estimate;
use crate::report::{Format, Report};

/// Flags of `papers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep papers                    every row of every paper, its error, and what bounds it
  lockstep papers goyal2017
  lockstep papers my-paper.toml --format csv

Marks: c the paper contradicts itself, o an ordering, s statistical, = computed, anchor; only unmarked rows count.")]
pub(super) struct Papers {
    /// Which: names, or .toml files of the same form; without any, all that come with lockstep
    papers: Vec<String>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Papers {
    pub(super) fn run(self) -> Result<(), Failure> {
        let all = || PAPERS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let names: Vec<String> = if self.papers.is_empty() { all() } else { self.papers };
        let papers = names.iter().map(|name| Paper::load(name)).collect::<Result<Vec<_>, _>>()?;
        let estimate = Estimate::new("predicting");
        let account = account(&papers, |share, row| estimate.show(share, row))?;
        estimate.end();
        Report::new(account.rows, account.notes).print(self.format)
    }
}
