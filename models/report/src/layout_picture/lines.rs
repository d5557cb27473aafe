//! Defines picture rows (`Line`): rows of the table, or results of changes that no row of the table follows.

use lockstep_models::{AxisSet, LayerId, Layout, LayoutRow};

/// A tensor in its layout, and what changes that.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) tensor: &'static str,
    pub(super) layers: Vec<LayerId>,
    pub(super) layout: Layout,
    /// What makes the layout of the next line, which is of the same tensor.
    pub(super) change: Option<Change>,
}

/// A change from one line to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    /// The collective; `None` where every rank already has what it needs.
    pub(super) by: Option<&'static str>,
    pub(super) axes: AxisSet,
    /// How often a step contains it.
    pub(super) times: u32,
}

/// The rows of a picture, in the order of the table.
pub(super) fn lines(table: &[LayoutRow]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut show = |tensor: &'static str, layout: Layout, layers: &[LayerId], change: Option<Change>| {
        // The result of a change has no layers yet: it takes those of the row that follows with it.
        let same = |last: &&mut Line| (last.tensor, last.layout, last.change) == (tensor, layout, None);
        match lines.last_mut().filter(same).filter(|last| last.layers.is_empty()) {
            Some(last) => *last = Line { tensor, layers: layers.to_vec(), layout, change },
            None => lines.push(Line { tensor, layers: layers.to_vec(), layout, change }),
        }
    };
    for row in table {
        let change = row.change.as_ref().map(|change| Change { by: change.by, axes: change.axes, times: row.changes });
        show(row.tensor, row.layout, &row.layers, change);
        if let Some(change) = &row.change {
            show(row.tensor, change.to, &[], None);
        }
    }
    lines
}
