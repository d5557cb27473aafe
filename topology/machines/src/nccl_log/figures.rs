//! Reads the figures of a table's rows, with the rounding of their print.

use lockstep_topology::InputError;

use super::runs::{Row, Run};
use super::wrong;

/// The least bandwidth whose printed digits say something, in GB/s.
pub(super) const CLEAR: f64 = 0.5;
/// How far printed figures may be from each other besides their rounding.
pub(super) const SLACK: f64 = 0.01;
/// A bandwidth or a time, with half of its last printed digit.
fn printed(cell: &str) -> Option<(f64, f64)> {
    let value: f64 = cell.parse().ok().filter(|value: &f64| value.is_finite())?;
    let (digits, power) = cell.split_once(['e', 'E']).unwrap_or((cell, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len() as i32);
    let last = power.parse::<i32>().unwrap_or(0).saturating_sub(decimals);
    // Read as text, which is the same everywhere.
    Some((value, 0.51 * format!("1e{last}").parse::<f64>().unwrap_or(0.0)))
}

/// A row's figures of one group of columns.
pub(super) struct Figures {
    pub(super) bytes: f64,
    pub(super) time: (f64, f64),
    pub(super) algbw: Option<(f64, f64)>,
    pub(super) busbw: Option<(f64, f64)>,
}

/// The figures of the row: out of place, else in place, and whether they are in place.
pub(super) fn figures(file: &str, run: &Run, row: &Row) -> Result<(Figures, bool), InputError> {
    let refuse = |value: &str, message: &str| Err(wrong(file, row.line, value, message));
    let Ok(bytes) = row.cells[0].parse::<u64>() else { return refuse(&row.cells[0], "is not a size in bytes") };
    let mut groups = run.columns.times.clone();
    if run.in_place_first {
        groups.reverse();
    }
    let first = groups[0];
    let measured =
        |at: &&usize| row.cells.get(**at).is_some_and(|cell| printed(cell).is_some_and(|(time, _)| time > 0.0));
    let in_order = groups.iter().find(measured);
    let Some(&at) = in_order else {
        let cell = row.cells.get(first).map_or("", String::as_str);
        return refuse(cell, "is not a time above 0 in microseconds: use the table as it was printed");
    };
    let missing =
        row.cells.get(first).is_some_and(|cell| cell == "N/A" || printed(cell).is_some_and(|(t, _)| t == 0.0));
    if at != first && !missing {
        let cell = row.cells.get(first).map_or("", String::as_str);
        return refuse(cell, "is not a time above 0 in microseconds: use the table as it was printed");
    }
    let beside = |of: usize| run.columns.kind.and_then(|_| row.cells.get(at + of)).and_then(|cell| printed(cell));
    let Some(time) = printed(&row.cells[at]) else { return refuse(&row.cells[at], "is not a time") };
    Ok((Figures { bytes: bytes as f64, time, algbw: beside(1), busbw: beside(2) }, at != first))
}

/// The interval in which busbw / algbw lies by all rows that say it.
pub(super) fn share(all: &[Figures]) -> Option<(f64, f64)> {
    let of = |f: &Figures| {
        let ((a, around), (b, beside)) = (f.algbw?, f.busbw?);
        (a >= CLEAR).then(|| ((b - beside) / (a + around), (b + beside) / (a - around)))
    };
    let bounds = all.iter().filter_map(of).reduce(|x, y| (x.0.max(y.0), x.1.min(y.1)))?;
    let clear = all
        .iter()
        .filter(|f| f.algbw.is_some_and(|(a, _)| a >= CLEAR))
        .max_by(|x, y| x.algbw.map_or(0.0, |a| a.0).total_cmp(&y.algbw.map_or(0.0, |a| a.0)));
    // Rows that disagree: the clearest one decides.
    if bounds.0 <= bounds.1 { Some(bounds) } else { clear.and_then(of) }
}
