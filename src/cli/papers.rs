//! Runs `lockstep papers`: compares predictions with published measurements.

use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_topology::{InputError, RECORD, read_text};

use lockstep_papers::errors::{check, errors};
use lockstep_papers::{Paper, Shipped, account, bounds_line, save_papers};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::progress::Estimate;
use lockstep_report::{Format, Report};

/// Flags of `papers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep papers                    every row of every paper, its error, and what bounds it
  lockstep papers goyal2017
  lockstep papers my-paper.toml --format csv
  lockstep papers --html papers.html
  lockstep papers goyal2017 --figures --format json
  lockstep papers --check experiments/papers/errors.csv

Marks: c the paper contradicts itself, o an ordering, s statistical, = computed, anchor, fitted; only unmarked rows count.")]
pub(super) struct Papers {
    /// Which: names, or .toml files of the same form; without any, all that come with lockstep
    papers: Vec<String>,
    /// Also write a page: all rows, to filter and sort, figures, machines with the provenance of their numbers
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the points of the papers' figures instead of the rows: predicted, published, perfect scaling
    #[arg(long)]
    figures: bool,
    /// Fail if a row is worse than in this file by more than one percentage point
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Write the file that --check reads
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    write_errors: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Papers {
    pub(super) fn run(self) -> Result<(), Failure> {
        check_outputs(&[("--html", self.html.as_deref()), ("--write-errors", self.write_errors.as_deref())])?;
        let committed = self.check.as_deref().map(read).transpose()?;
        let all = || Shipped::all().map(|shipped| shipped.name.to_owned()).collect();
        let names: Vec<String> = if self.papers.is_empty() { all() } else { self.papers };
        let drawn = self.figures || self.html.is_some();
        let load = |name: &String| if drawn { Paper::with_plots(name) } else { Paper::load(name) };
        let papers = names.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let estimate = Estimate::new("predicting");
        let mut account = account(&papers, |share, row| estimate.show(share, row))?;
        estimate.end();
        if let Some(file) = &self.html {
            save_papers(file, &papers, &account)?;
        }
        if let Some(file) = &self.write_errors {
            let text = errors(&account.rows);
            write_atomically("--write-errors", file, |out| out.write_all(text.as_bytes()))?;
        }
        let checked = committed.map(|(file, text)| check(&file, &text, &account.rows));
        if let Some(Ok(news)) = &checked {
            account.notes.extend(news.iter().cloned());
        }
        if self.figures {
            let captions = papers.iter().flat_map(|paper| {
                let own: Vec<_> = account.plots.iter().filter(|row| row.paper == paper.name).cloned().collect();
                paper.plots.iter().map(move |plot| format!("{} {}: {}", paper.name, plot.name, bounds_line(plot, &own)))
            });
            let captions = captions.collect();
            Report::new(account.plots, captions).print(self.format)?;
        } else {
            Report::new(account.rows, account.notes).print(self.format)?;
        }
        checked.transpose().map(|_| ())
    }
}

/// A file's name and content.
fn read(file: &Path) -> Result<(String, String), InputError> {
    let name = file.display().to_string();
    match read_text(file, RECORD) {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(InputError::flag("check", name, error.with_cure("write it with --write-errors"))),
    }
}
