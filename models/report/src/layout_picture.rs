//! Draws the table of layouts in SVG: a column for each rank, a row for each tensor of a step, a band for
//! each collective.
//!
//! A cell is the whole tensor, samples from top to bottom and features from left to right; the filled part is what
//! the rank holds.

mod band;
mod cell;
mod columns;
mod contents;
mod draw;
mod grid;
mod legend;
mod lines;
mod paper;
#[cfg(test)]
mod tests;

use lockstep_models::{LayoutRow, Mesh, Model};

use columns::Columns;

/// The picture of a step whose tensors have the layouts of `table` on the ranks of `mesh`; `model` has the names
/// of its layers.
///
/// Of more than eight ranks the first ones along each axis and the last are shown, and the picture says so. The same
/// input gives the same bytes.
///
/// ```
/// # use std::sync::Arc;
/// # use lockstep_models::{Job, random_model};
/// # use lockstep_report::layout_picture;
/// let job = Job::new(Arc::new(random_model(7, false)), 4, 8);
/// let (graph, _) = job.graph().unwrap();
/// let picture = layout_picture("strategy ssgd", &job.model, &graph.mesh, &graph.table());
/// assert!(picture.starts_with("<svg") && picture.contains(">allreduce</text>") && picture.contains(">along data</text>"));
/// ```
pub fn layout_picture(heading: &str, model: &Model, mesh: &Mesh, table: &[LayoutRow]) -> String {
    draw::svg(heading, model, &Columns::of(mesh), &lines::lines(table))
}
