//! `Grid`: computes the positions of the picture's columns.

use super::columns::Columns;

/// Left and right end of the area of all columns, in points.
pub(super) const ROOM: (f64, f64) = (190.0, 606.0);
/// Widest column.
const WIDEST: f64 = 86.0;
/// Space between neighbours, more where an outer coordinate changes, and more where ranks are left out.
const BETWEEN: f64 = 8.0;
const STEP: f64 = 12.0;
const LEFT_OUT: f64 = 18.0;

/// The columns' left edges and their width.
pub(super) struct Grid {
    pub(super) left: Vec<f64>,
    pub(super) width: f64,
    /// The middles of the places where ranks are left out.
    pub(super) left_out: Vec<f64>,
}

impl Grid {
    pub(super) fn of(columns: &Columns<'_>) -> Grid {
        let count = columns.ranks.len();
        let left_out = |column: usize| if columns.gap_after(column) { LEFT_OUT } else { 0.0 };
        let after = |column: usize| BETWEEN + STEP * columns.steps_after(column) as f64 + left_out(column);
        let gaps: Vec<f64> = (0..count.saturating_sub(1)).map(after).collect();
        let between: f64 = gaps.iter().sum();
        let width = ((ROOM.1 - ROOM.0 - between) / count as f64).min(WIDEST);
        let mut at = (ROOM.0 + ROOM.1 - between - width * count as f64) / 2.0;
        let mut grid = Grid { left: Vec::new(), width, left_out: Vec::new() };
        for column in 0..count {
            grid.left.push(at);
            at += width + gaps.get(column).copied().unwrap_or(0.0);
            if columns.gap_after(column) {
                grid.left_out.push((grid.left[column] + width + at) / 2.0);
            }
        }
        grid
    }

    /// The middle of a column.
    pub(super) fn middle(&self, column: usize) -> f64 {
        self.left[column] + self.width / 2.0
    }
}
