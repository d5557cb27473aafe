//! `lockstep papers`: what five papers measured, each figure beside what is predicted for it.
//!
//! A paper is one file of `experiments/papers`: what its experiments have in common, and a row for each published figure. A
//! machine's figures stand in its cluster file and belong to no row; at most one row of a paper and model is an anchor, to which
//! the cost of computation is scaled; what else no source tells of a machine is fitted to rows that say so, whose errors are then those of
//! a fit without them. Every row is printed, also those that fail.

mod account;
mod case;
mod chart;
mod computed;
mod errors;
mod figures;
mod fit;
mod html;
#[cfg(test)]
mod links;
mod machine;
mod plot;
mod quantity;
mod read;
mod row;
#[cfg(test)]
mod tests;

use std::path::Path;

use lockstep_topology::InputError;

use crate::experiment::Experiment;

pub use account::{Account, account};
pub use computed::Computed;
pub use errors::{check, errors};
pub use fit::Fit;
pub use html::page;
pub use machine::Parameter;
pub use plot::{Plot, told};
pub use quantity::{Quantity, Unit};
pub use row::{Mark, Row};

/// The papers that come with lockstep, as `lockstep papers` names them, and their files.
pub const PAPERS: [(&str, &str); 5] = [
    ("goyal2017", include_str!("../../experiments/papers/goyal2017.toml")),
    ("iandola2016", include_str!("../../experiments/papers/iandola2016.toml")),
    ("krizhevsky2014", include_str!("../../experiments/papers/krizhevsky2014.toml")),
    ("kumar2018", include_str!("../../experiments/papers/kumar2018.toml")),
    ("koliousis2019", include_str!("../../experiments/papers/koliousis2019.toml")),
];

/// One paper: its rows and what they have in common.
#[derive(Debug, Clone)]
pub struct Paper {
    /// Its short name.
    pub name: String,
    /// Authors, year, title.
    pub source: String,
    /// What all rows have in common.
    pub common: Experiment,
    /// What is fitted of its machine, in the order in which it is.
    pub fits: Vec<Fit>,
    /// The published figures, in the paper's order.
    pub rows: Vec<Row>,
    /// What is drawn of it; none unless asked for.
    pub plots: Vec<Plot>,
}

impl Paper {
    /// The paper called `name`, or that of the file at this path.
    ///
    /// # Errors
    /// An unknown name, an unreadable file, and whatever [`Paper::parse`] refuses.
    pub fn load(name: &str) -> Result<Paper, InputError> {
        if let Some((known, text)) = PAPERS.iter().find(|(known, _)| *known == name) {
            return Paper::parse(&format!("experiments/papers/{known}.toml"), text);
        }
        if !name.ends_with(".toml") {
            let names: Vec<&str> = PAPERS.iter().map(|(known, _)| *known).collect();
            let message = format!("there is no such paper: there are {}, or name a .toml file", names.join(", "));
            return Err(InputError::new("PAPER", name, message));
        }
        let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
            InputError::new("PAPER", name, format!("cannot be read: {error}; name one of lockstep's, or a .toml file"))
        })?;
        Paper::parse(name, &text)
    }

    /// The paper called `name` with what is drawn of it.
    ///
    /// # Errors
    /// As [`Paper::load`], and whatever is refused of the file of its figures.
    pub fn with_plots(name: &str) -> Result<Paper, InputError> {
        let mut paper = Paper::load(name)?;
        paper.plots = Plot::of(&paper, name)?;
        Ok(paper)
    }

    /// The paper that `text`, the content of `file`, describes.
    ///
    /// # Errors
    /// Anything that is no TOML, unknown or missing keys, units that do not fit, an anchor that no figure can be: with file,
    /// line, value and cure.
    pub fn parse(file: &str, text: &str) -> Result<Paper, InputError> {
        read::parse(file, text)
    }
}
