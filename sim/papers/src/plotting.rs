//! Draws plots with the axes of a paper's figures, from predictions of the same machine as its rows.
//!
//! A plot is lines of configurations that differ in one key, and points, each of which is a row whose configuration is
//! on the line. So a point is a number of the paper's text or follows from two of them; nothing is read off an image.

mod across;
mod bounds;
mod draw;
mod exchange;
mod point;
mod published;
mod read;
#[cfg(test)]
mod tests;

use std::path::Path;

use lockstep_topology::{DESCRIPTION, InputError, read_text};

use super::paper::Paper;
use super::plot::Plot;
use super::shipped::Shipped;

pub use bounds::bounds_line;
pub(super) use draw::svg;
pub(super) use point::predicted;

/// The plots of a paper: those that come with lockstep, or those of the file `NAME.figures.toml` beside its own, if
/// it is there.
///
/// # Errors
/// An unreadable file, unknown or missing keys, units that do not fit, points on no line: with file, line and cure.
pub(super) fn plots(paper: &Paper, file: &str) -> Result<Vec<Plot>, InputError> {
    if let Some(shipped) = Shipped::called(file) {
        return read::parse(paper, &shipped.file.replace(".toml", ".figures.toml"), shipped.figures);
    }
    let beside = Path::new(file).with_extension("figures.toml");
    match read_text(&beside, DESCRIPTION) {
        Ok(text) => read::parse(paper, &beside.display().to_string(), &text),
        Err(error) if error.is_missing() => Ok(Vec::new()),
        Err(error) => {
            let message = error.with_cure("it holds the paper's figures");
            Err(InputError::new("PAPER", beside.display().to_string(), message))
        }
    }
}
