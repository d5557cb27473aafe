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

use lockstep_topology::{DESCRIPTION, InputError, read_text};

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

/// What comes with lockstep of a paper.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// As `lockstep papers` names it.
    pub name: &'static str,
    /// The text of `experiments/papers/NAME.toml`: its rows.
    rows: &'static str,
    /// The text of `experiments/papers/NAME.figures.toml`: what is drawn of it.
    figures: &'static str,
}

/// The files of the paper called `$name`.
macro_rules! shipped {
    ($name:literal) => {
        Shipped {
            name: $name,
            rows: include_str!(concat!("../../experiments/papers/", $name, ".toml")),
            figures: include_str!(concat!("../../experiments/papers/", $name, ".figures.toml")),
        }
    };
}

/// The papers that come with lockstep, in the order in which they are printed.
pub const PAPERS: [Shipped; 5] = [
    shipped!("goyal2017"),
    shipped!("iandola2016"),
    shipped!("krizhevsky2014"),
    shipped!("kumar2018"),
    shipped!("koliousis2019"),
];

impl Shipped {
    /// That with this name.
    fn called(name: &str) -> Option<Shipped> {
        PAPERS.into_iter().find(|shipped| shipped.name == name)
    }
}

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
        if let Some(shipped) = Shipped::called(name) {
            return Paper::parse(&format!("experiments/papers/{name}.toml"), shipped.rows);
        }
        if !name.ends_with(".toml") {
            let names = PAPERS.map(|shipped| shipped.name).join(", ");
            let message = format!("there is no such paper: there are {names}, or name a .toml file");
            return Err(InputError::new("PAPER", name, message));
        }
        let text = read_text(Path::new(name), DESCRIPTION)
            .map_err(|error| InputError::new("PAPER", name, error.told("name one of lockstep's, or a .toml file")))?;
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
