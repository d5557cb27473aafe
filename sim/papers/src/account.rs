//! `Account`: predicts every row of the papers, and lists its error, what bounds it, and what all of it is based on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::case::{Case, Known, at};
use super::figures::Cores;
use super::fit::{FitResult, fit, machine};
use super::paper::{Paper, PaperFit};
use super::plotting;
use super::quantity::Quantity;
use super::row::{CaseRow, RowMark};
use super::shipped::{Shipped, TABLES};
use lockstep_report::failure::Failure;
use lockstep_report::{PaperRow, PlotRow};

/// All rows, and notes on what they are based on.
#[derive(Debug)]
pub struct Account {
    /// In the order of papers and their rows.
    pub rows: Vec<PaperRow>,
    /// Per paper: source, machine, anchors, fitted parameters.
    pub notes: Vec<String>,
    /// The points of the papers' plots, in their order.
    pub plots: Vec<PlotRow>,
}

/// Predicts all rows of `papers` in parallel; `progress` gets the share that has begun and the row that begins.
///
/// # Errors
/// Configurations that cannot be predicted, at the file and line of their row: the first such row of the first paper.
pub fn account(papers: &[Paper], progress: impl Fn(f64, &str) + Sync) -> Result<Account, Failure> {
    let cores = Cores::all();
    let all = papers.iter().map(|paper| paper.rows.len()).sum::<usize>().max(1) as f64;
    let begun = AtomicUsize::new(0);
    let each = |row: &CaseRow| progress(begun.fetch_add(1, Ordering::Relaxed) as f64 / all, &row.name);
    let found: Vec<Result<Account, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = papers.iter().map(|paper| scope.spawn(|| of_paper(paper, &cores, &each))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let (mut rows, mut notes, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    for of_paper in found {
        let of_paper = of_paper?;
        rows.extend(of_paper.rows);
        notes.extend(of_paper.notes);
        plots.extend(of_paper.plots);
    }
    notes.extend(summary(&rows));
    Ok(Account { rows, notes, plots })
}

/// The rows of one paper.
fn of_paper(paper: &Paper, cores: &Cores, each: &(impl Fn(&CaseRow) + Sync)) -> Result<Account, Failure> {
    let known = Known::default();
    let found = fit(paper, cores, &known)?;
    let values: Vec<f64> = found.iter().map(|found| found.value).collect();
    let case = Case::new(paper, cores, machine(paper, &values), &known)?;
    let mut notes = vec![format!("{}: {}; cluster {}", paper.name, paper.source, paper.common.cluster)];
    notes.extend(paper.common.input.iter().map(|input| format!("{}: {}", paper.name, input.account())));
    for (of, factor) in case.factors() {
        let model = &of.model;
        let is_its = |row: &&CaseRow| row.mark == Some(RowMark::Anchor) && row.at == *of;
        let to = paper.rows.iter().find(is_its).map(|row| format!(" to {} ({})", row.name, row.says));
        let to = to.unwrap_or_default();
        notes.push(format!("{}: computation of {model} is scaled by {factor:.4}{to}", paper.name));
    }
    notes.extend(paper.fits.iter().zip(&found).map(|(fit, found)| fitted(paper, fit, found)));
    let every: Vec<&CaseRow> = paper.rows.iter().collect();
    case.predict(&every, each)?;
    let rows = cores.each(&paper.rows, |row| printed(&case, paper, row).map_err(|failure| at(row, failure)));
    let mut rows: Vec<PaperRow> = rows.into_iter().collect::<Result<_, _>>()?;
    leave_out(paper, &found, &mut rows);
    let plots = plotting::predicted(paper, &case, cores)?;
    Ok(Account { rows, notes, plots })
}

/// What is fitted, to what, and what it represents.
fn fitted(paper: &Paper, fit: &PaperFit, found: &FitResult) -> String {
    let show = |value: &f64| fit.parameter.show(*value);
    let mut note =
        format!("{}: fitted {} = {} to {}", paper.name, fit.parameter, show(&found.value), fit.rows.join(", "));
    let each = fit
        .rows
        .iter()
        .zip(&found.without)
        .filter_map(|(row, without)| without.as_ref().map(|(value, _)| format!("{} without {row}", show(value))));
    let each: Vec<String> = each.collect();
    if !each.is_empty() {
        note += &format!(" ({})", each.join(", "));
    }
    format!("{note}: {}", fit.why)
}

/// A row that something is fitted to is predicted with a fit to the other measurements; where there are no more of them
/// than fitted numbers, the rows do not count.
fn leave_out(paper: &Paper, found: &[FitResult], rows: &mut [PaperRow]) {
    let fitted_to = |name: &&String| paper.rows.iter().find(|row| row.name == **name).map(CaseRow::fact);
    let used: BTreeSet<&str> =
        paper.fits.iter().flat_map(|fit| &fit.rows).filter_map(|name| fitted_to(&name)).collect();
    for (fit, found) in paper.fits.iter().zip(found) {
        for (number, name) in fit.rows.iter().enumerate() {
            let Some(row) = rows.iter_mut().find(|row| row.row == *name) else { continue };
            match found.without[number] {
                Some((_, ratio)) if used.len() > paper.fits.len() => {
                    row.predicted = row.published.map(|published| published * ratio);
                    row.error_pct = Some((ratio - 1.0) * 100.0);
                    row.left_out = true;
                }
                _ if row.counted => {
                    row.mark = Some(RowMark::Fitted.to_string());
                    row.counted = false;
                }
                _ => {}
            }
        }
    }
}

/// A row as it is printed.
fn printed(case: &Case<'_>, paper: &Paper, row: &CaseRow) -> Result<PaperRow, Failure> {
    let holds = match &row.quantity {
        Some(Quantity::Order { cases, grows, per_image }) => Some(case.order(cases, *grows, *per_image)?),
        _ => None,
    };
    let simulated =
        !matches!(row.quantity, None | Some(Quantity::Order { .. } | Quantity::Computed(_) | Quantity::TunedLearners));
    let predicted = case.value(row)?;
    let both = predicted.zip(row.published);
    let holds = both.filter(|_| row.at_most).map(|(ours, most)| ours <= most).or(holds);
    let error_pct = both.filter(|_| !row.at_most).map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0);
    Ok(PaperRow {
        paper: paper.name.clone(),
        row: row.name.clone(),
        says: row.says.clone(),
        cite: row.cite.clone(),
        published: row.published,
        predicted,
        unit: row.unit.name.to_owned(),
        error_pct,
        holds,
        mark: row.mark.map(|mark| row.same.as_ref().map_or(mark.to_string(), |other| format!("{mark} as {other}"))),
        counted: row.mark.is_none(),
        left_out: false,
        bound: if simulated { Some(case.figure(&row.at)?.bound) } else { None },
    })
}

/// Mean and worst error over the rows that count, those to which nothing is fitted first, and the orderings.
fn summary(rows: &[PaperRow]) -> Vec<String> {
    let counted: Vec<&PaperRow> = rows.iter().filter(|row| row.counted && row.error_pct.is_some()).collect();
    let named = |row: &&&PaperRow, of: &[Shipped]| of.iter().any(|of| of.name == row.paper);
    let groups = [
        ("papers: ", counted.iter().filter(|row| !named(row, &TABLES)).copied().collect::<Vec<_>>()),
        ("training curves: ", counted.iter().filter(|row| named(row, &TABLES)).copied().collect()),
    ];
    let mut notes = Vec::new();
    let several = groups.iter().all(|(_, rows)| !rows.is_empty());
    for (name, rows) in groups {
        let (fitted, free): (Vec<&PaperRow>, Vec<&PaperRow>) = rows.into_iter().partition(|row| row.left_out);
        let name = if several { name } else { "" };
        notes.extend(errors(&free).map(|errors| format!("{name}{} counted rows are in no fit: {errors}", free.len())));
        let each = "counted rows are in a fit, each predicted by a fit without it";
        notes.extend(errors(&fitted).map(|errors| format!("{name}{} {each}: {errors}", fitted.len())));
    }
    notes.extend(errors(&counted).map(|errors| format!("{} rows count: {errors}", counted.len())));
    let orderings: Vec<bool> = rows.iter().filter_map(|row| row.holds).collect();
    if !orderings.is_empty() {
        let right = orderings.iter().filter(|holds| **holds).count();
        notes.push(format!("{right} of {} orderings hold", orderings.len()));
    }
    notes
}

/// The mean and the worst absolute error of rows; `None` without any.
fn errors(rows: &[&PaperRow]) -> Option<String> {
    let errors = || rows.iter().filter_map(|row| Some((&row.row, row.error_pct?.abs())));
    let (worst, error) = errors().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mean = errors().map(|(_, error)| error).sum::<f64>() / rows.len() as f64;
    Some(format!("mean error {mean:.1} %, worst {error:.1} % ({worst})"))
}
