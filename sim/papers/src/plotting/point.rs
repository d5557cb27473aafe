//! Collects the points of a paper's plots: predictions along each line, published figures, and perfect scaling.

use crate::case::{Case, at_place};
use crate::figures::Cores;
use crate::paper::Paper;
use crate::plot::{Line, Of, Plot};
use crate::quantity::Quantity;
use crate::row::CaseRow;
use lockstep_report::PlotRow;
use lockstep_report::failure::Failure;
use lockstep_report::svg::Spacing;

/// Every point of the paper's plots, those of a line from left to right: predicted, published, perfect.
///
/// # Errors
/// A configuration that cannot be predicted, at its line of the file.
pub(crate) fn predicted(paper: &Paper, case: &Case<'_>, cores: &Cores) -> Result<Vec<PlotRow>, Failure> {
    let lines = || paper.plots.iter().flat_map(|plot| plot.lines.iter().map(move |line| (plot, line)));
    let rows: Vec<&CaseRow> = lines()
        .flat_map(|(_, line)| match &line.of {
            Of::Rows(rows) => rows.iter().collect::<Vec<_>>(),
            Of::Exchanges(_) => Vec::new(),
        })
        .collect();
    case.predict(&rows, |_| ())?;
    let jobs: Vec<(&Plot, &Line, usize)> =
        lines().flat_map(|(plot, line)| (0..plot.x.values.len()).map(move |index| (plot, line, index))).collect();
    let found = cores.each(&jobs, |(_, line, index)| one(case, line, *index));
    let mut found = found.into_iter();
    let mut points = Vec::new();
    for (plot, line) in lines() {
        let values: Vec<(f64, Option<String>)> = found.by_ref().take(plot.x.values.len()).collect::<Result<_, _>>()?;
        points.extend(of_line(paper, plot, line, &values));
    }
    Ok(points)
}

/// The prediction at one value of the axis, in seconds, bytes per second, images per second or a number; and
/// what bounds it.
fn one(case: &Case<'_>, line: &Line, index: usize) -> Result<(f64, Option<String>), Failure> {
    match &line.of {
        Of::Exchanges(exchanges) => {
            let exchange = &exchanges[index];
            let (value, bound) =
                exchange.value(case.site(&exchange.at)).map_err(|failure| at_place(&exchange.place, failure))?;
            Ok((value, Some(bound)))
        }
        Of::Rows(rows) => {
            let row = &rows[index];
            let value = case.value(row).map_err(|failure| at_place(&row.place, failure))?.unwrap_or(f64::NAN);
            let bound = match row.quantity {
                Some(Quantity::Computed(_)) => None,
                _ => Some(case.figure(&row.at)?.bound),
            };
            Ok((value * row.unit.factor, bound))
        }
    }
}

/// The points of a line whose predictions are these values.
pub(super) fn of_line(paper: &Paper, plot: &Plot, line: &Line, values: &[(f64, Option<String>)]) -> Vec<PlotRow> {
    let unit = plot.y.unit;
    let blank = |source: &str, x: f64, y: f64| PlotRow {
        paper: paper.name.clone(),
        figure: plot.name.clone(),
        title: plot.title.clone(),
        like: plot.like.clone(),
        line: line.name.clone(),
        source: source.to_owned(),
        x,
        x_name: plot.x.values.iter().find(|(value, _)| *value == x).and_then(|(_, name)| name.clone()),
        y,
        unit: unit.name.to_owned(),
        x_label: plot.x.label.clone(),
        y_label: plot.y.name(),
        x_log: plot.x.spacing == Spacing::Log,
        y_log: plot.y.spacing == Spacing::Log,
        y_from: plot.y.from,
        row: None,
        says: None,
        counted: None,
        bound: None,
    };
    let along = || plot.x.values.iter().zip(values).map(|((x, _), (y, bound))| (*x, y / unit.factor, bound));
    let mut points: Vec<PlotRow> =
        along().map(|(x, y, bound)| PlotRow { bound: bound.clone(), ..blank("predicted", x, y) }).collect();
    for point in &line.points {
        let row = paper.rows.iter().find(|row| row.name == point.row);
        let on_line = along().find(|(x, ..)| *x == point.x).map(|(_, y, _)| y);
        let source = if point.y.is_some() { "published" } else { "published x" };
        let (Some(row), Some(y)) = (row, point.y.or(on_line)) else { continue };
        points.push(PlotRow {
            row: Some(row.name.clone()),
            says: Some(row.says.clone()),
            counted: Some(row.mark.is_none()),
            ..blank(source, point.x, y)
        });
    }
    if let (true, Some((first_x, first_y, _))) = (line.perfect, along().next()) {
        let rate = match &line.of {
            Of::Rows(rows) => match rows.first().and_then(|row| row.quantity.as_ref()) {
                Some(Quantity::Throughput | Quantity::Speedup { .. }) => 1,
                Some(Quantity::Time { .. }) => -1,
                _ => 0,
            },
            Of::Exchanges(_) => 0,
        };
        points.extend(along().map(|(x, ..)| blank("perfect", x, first_y * (x / first_x).powi(rate))));
    }
    points
}
