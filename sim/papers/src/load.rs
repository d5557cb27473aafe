//! Loads papers by their names or from their files.

use std::path::Path;

use lockstep_topology::{DESCRIPTION, InputError, read_text};

use super::paper::Paper;
use super::plotting;
use super::shipped::Shipped;

impl Paper {
    /// The paper called `name`, or that of the file at this path.
    ///
    /// # Errors
    /// An unknown name, an unreadable file, and whatever [`Paper::parse`] refuses.
    pub fn load(name: &str) -> Result<Paper, InputError> {
        if let Some(shipped) = Shipped::called(name) {
            return Paper::parse(shipped.file, shipped.rows);
        }
        if !name.ends_with(".toml") {
            let names = Shipped::all().map(|shipped| shipped.name).collect::<Vec<_>>().join(", ");
            let message = format!("unknown paper: known are {names}, or name a .toml file");
            return Err(InputError::new("PAPER", name, message));
        }
        let text = read_text(Path::new(name), DESCRIPTION).map_err(|error| {
            InputError::new("PAPER", name, error.with_cure("name one of lockstep's, or a .toml file"))
        })?;
        Paper::parse(name, &text)
    }

    /// The paper called `name` with its plots.
    ///
    /// # Errors
    /// As [`Paper::load`], and errors in the file of its figures.
    pub fn with_plots(name: &str) -> Result<Paper, InputError> {
        let mut paper = Paper::load(name)?;
        paper.plots = plotting::plots(&paper, name)?;
        Ok(paper)
    }
}
