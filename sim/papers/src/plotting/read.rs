//! Reads plots from their TOML text.

use lockstep_topology::{Bytes, ErrorPlace, InputError};

use super::across::{BYTES, Moved, set, spacing};
use super::published::published;
use crate::computed::Computed;
use crate::paper::Paper;
use crate::plot::{Exchange, Line, Of, Plot, Point, Upwards};
use crate::quantity::Quantity;
use crate::read::changed;
use crate::row::CaseRow;
use crate::unit::{Unit, UnitDimension};
use lockstep_experiment::{Experiment, read};
use lockstep_report::failure::Failure;
use lockstep_topology::document::{Entry, SourceText, Table};

const PLOT_KEYS: [&str; 7] = ["name", "title", "like", "caption", "x", "y", "line"];
const Y_KEYS: [&str; 8] = ["quantity", "label", "unit", "scale", "from", "epochs", "samples", "bytes"];
const QUANTITIES: [&str; 8] =
    ["time", "step-time", "throughput", "speedup", "slowdown", "efficiency", "exchange-time", "exchange-rate"];
const LINE_KEYS: [&str; 7] = ["name", "at", "over", "over_moves", "computed", "rows", "perfect"];

/// The plots of `paper` in `text`, the content of `file`.
pub(super) fn parse(paper: &Paper, file: &str, text: &str) -> Result<Vec<Plot>, InputError> {
    let document = SourceText { file, text }.parse()?;
    let root = document.table("a file of figures", &["figure"])?;
    let mut plots: Vec<Plot> = Vec::new();
    for entry in root.need("figure", "[{ name = \"step-time\" }]")?.items()? {
        let plot = plot(paper, &entry)?;
        if plots.iter().any(|other| other.name == plot.name) {
            return Err(entry.error(format!("{} is given twice: name one of them otherwise", plot.name)));
        }
        plots.push(plot);
    }
    Ok(plots)
}

fn plot(paper: &Paper, entry: &Entry<'_>) -> Result<Plot, InputError> {
    let table = entry.section("a figure", &PLOT_KEYS)?;
    let text = |key, example| Ok::<_, InputError>(table.need(key, example)?.text()?.to_owned());
    let x = Moved::of(&table.need("x", "{ key = \"ranks\", label = \"GPUs\", values = [8, 16] }")?)?;
    let y = table.need("y", "{ quantity = \"step-time\", label = \"time of a step\", unit = \"ms\" }")?;
    let y = y.section("an axis", &Y_KEYS)?;
    let upwards = Upwards {
        label: y.need("label", "\"time of a step\"")?.text()?.to_owned(),
        spacing: spacing(&y)?,
        unit: y.need("unit", "\"ms\"")?.read(str::parse)?,
        from: y.get("from").map_or(Ok(0.0), |entry| entry.number(0.0))?,
    };
    let axes = Axes { paper, x, y, up: upwards };
    let lines = table.need("line", "[{ name = \"ResNet-50\" }]")?.items()?;
    axes.check(&lines)?;
    Ok(Plot {
        name: text("name", "\"step-time\"")?,
        title: text("title", "\"Time of a step\"")?,
        like: text("like", "\"Fig. 7\"")?,
        caption: text("caption", "\"The wires are never full.\"")?,
        lines: lines.iter().map(|entry| axes.line(entry)).collect::<Result<_, _>>()?,
        x: axes.x.across,
        y: axes.up,
    })
}

/// A row without a published figure.
fn unpublished(quantity: Quantity, at: Experiment, unit: Unit, place: ErrorPlace) -> CaseRow {
    CaseRow {
        name: String::new(),
        says: String::new(),
        cite: String::new(),
        same: None,
        mark: None,
        quantity: Some(quantity),
        at,
        published: None,
        at_most: false,
        unit,
        place,
    }
}

/// A figure's axes, against which its lines are read.
struct Axes<'a> {
    paper: &'a Paper,
    x: Moved,
    y: Table<'a>,
    up: Upwards,
}

impl Axes<'_> {
    /// Refuses an unknown quantity, and keys of the vertical axis that no line reads.
    fn check(&self, lines: &[Entry<'_>]) -> Result<(), InputError> {
        let entry = self.y.need("quantity", "\"step-time\"")?;
        let kind = entry.text()?;
        if !QUANTITIES.contains(&kind) {
            return Err(entry.error(format!("unknown quantity: write one of {}", QUANTITIES.join(", "))));
        }
        let mut computed = Vec::new();
        for line in lines {
            computed.push(line.section("a line", &LINE_KEYS)?.get("computed").is_some());
        }
        let computed = computed.iter().all(|computed| *computed);
        if kind != "time" || computed {
            self.y.unread(&["epochs", "samples"], "only the time of a configuration is of epochs and samples")?;
        }
        if !kind.starts_with("exchange-") || computed || self.x.key == BYTES {
            self.y.unread(&[BYTES], "only an exchange has a buffer, and none along its size or in closed form")?;
        }
        Ok(())
    }

    fn line(&self, entry: &Entry<'_>) -> Result<Line, InputError> {
        let table = entry.section("a line", &LINE_KEYS)?;
        let quantity = self.y.need("quantity", "\"step-time\"")?.text()?;
        if table.get("computed").is_some() {
            table.unread(&["at", "over", "over_moves"], "a closed form is of no configuration")?;
        }
        if !matches!(quantity, "speedup" | "slowdown" | "efficiency") {
            table.unread(&["over"], &format!("{quantity} is compared with no other configuration"))?;
        }
        if table.get("over").is_none() {
            table.unread(&["over_moves"], "it is of the configuration over")?;
        }
        let name = table.need("name", "\"ResNet-50\"")?.text()?.to_owned();
        let moves = table.get("over_moves").map_or(Ok(false), |entry| entry.boolean())?;
        for entry in [table.get("at"), table.get("over").filter(|_| moves)].into_iter().flatten() {
            entry.section("a configuration", &read::keys())?.unread(&[&self.x.key], "the axis gives it")?;
        }
        let base =
            table.get("at").map_or(Ok(self.paper.common.clone()), |entry| changed(&self.paper.common, &entry))?;
        let of = match quantity {
            kind @ ("exchange-time" | "exchange-rate") => {
                let rate = kind == "exchange-rate";
                let wanted = if rate { UnitDimension::Rate } else { UnitDimension::Time };
                if self.up.unit.of != wanted {
                    return Err(entry.error(format!("unit {} is none of {wanted:?}", self.up.unit.name)));
                }
                match table.get("computed") {
                    Some(computed) => Of::Rows(self.closed_form(&computed)?),
                    None => Of::Exchanges(self.exchanges(&base, rate, entry)?),
                }
            }
            kind => Of::Rows(match table.get("computed") {
                Some(computed) => self.closed_form(&computed)?,
                None => self.configurations(kind, &base, (&table, moves), entry)?,
            }),
        };
        let mut points = Vec::new();
        for item in table.get("rows").map_or(Ok(Vec::new()), |entry| entry.items())? {
            points.push(self.point(&of, &item)?);
        }
        let perfect = table.get("perfect").map_or(Ok(false), |entry| entry.boolean())?;
        Ok(Line { name, of, perfect, points })
    }

    /// Closed forms whose axis is the number of workers.
    fn closed_form(&self, entry: &Entry<'_>) -> Result<Vec<CaseRow>, InputError> {
        if !self.x.counts_ranks() {
            return Err(entry.error("is a figure along numbers of workers: the axis needs key = \"ranks\" alone"));
        }
        let form = Computed::read(entry)?;
        let one = |(value, _): &(f64, Option<String>)| {
            let form = form.among(*value as u32).ok_or_else(|| entry.error("is not a figure for that many workers"))?;
            if form.dimension() != self.up.unit.of {
                return Err(entry.error(format!("unit {} is none of {:?}", self.up.unit.name, form.dimension())));
            }
            Ok(unpublished(Quantity::Computed(form), Experiment::default(), self.up.unit, entry.place()))
        };
        self.x.across.values.iter().map(one).collect()
    }

    /// Allreduces alone, in a configuration like `base`.
    fn exchanges(&self, base: &Experiment, rate: bool, entry: &Entry<'_>) -> Result<Vec<Exchange>, InputError> {
        let bytes = match self.x.key.as_str() {
            BYTES => None,
            _ => Some(self.y.need(BYTES, "\"25MiB\"")?.read(str::parse::<Bytes>)?.0),
        };
        let with = |(at, (value, _)): (Experiment, &(f64, Option<String>))| {
            let bytes = bytes.unwrap_or(*value as u64);
            Exchange { at, bytes, rate, place: entry.place() }
        };
        Ok(self.x.each(base)?.into_iter().zip(&self.x.across.values).map(with).collect())
    }

    /// Configurations like `base`, one for each value of the axis.
    fn configurations(
        &self,
        kind: &str,
        base: &Experiment,
        (line, moves): (&Table<'_>, bool),
        entry: &Entry<'_>,
    ) -> Result<Vec<CaseRow>, InputError> {
        let each = self.x.each(base)?;
        let overs = match line.get("over") {
            None => Vec::new(),
            Some(over) => {
                let over = changed(&self.paper.common, &over)?;
                if moves { self.x.each(&over)? } else { vec![over; each.len()] }
            }
        };
        let quantity = |index: usize| -> Result<Quantity, InputError> {
            let lacks = || entry.error("lacks over: the configuration that it is compared with");
            let over = || overs.get(index).cloned().map(Box::new).ok_or_else(lacks);
            Quantity::along_axes(kind, &self.y, over)?.ok_or_else(|| entry.error("unknown quantity"))
        };
        let one = |(index, at): (usize, Experiment)| {
            let quantity = quantity(index)?;
            if quantity.dimension() != self.up.unit.of {
                return Err(entry.error(format!("unit {} is none of {:?}", self.up.unit.name, quantity.dimension())));
            }
            Ok(unpublished(quantity, at, self.up.unit, entry.place()))
        };
        each.into_iter().enumerate().map(one).collect()
    }

    /// The published row that `entry` names, if its configuration is on the line.
    fn point(&self, of: &Of, entry: &Entry<'_>) -> Result<Point, InputError> {
        let name = entry.text()?;
        let row =
            self.paper.rows.iter().find(|row| row.name == name).ok_or_else(|| entry.error("there is no such row"))?;
        let Of::Rows(line) = of else { return Err(entry.error("is not an allreduce alone: leave it out")) };
        // The published figure may be the value of the axis itself: then the point is on the line.
        if let (Some(Quantity::TunedLearners), "learners", Some(learners)) =
            (&row.quantity, self.x.key.as_str(), row.published)
        {
            let tuned = set(&row.at, &self.x.key, &format!("{learners}"), &self.x.place)?;
            return match line.iter().any(|other| other.at == tuned) {
                true => Ok(Point { row: name.to_owned(), x: learners, y: None }),
                false => Err(entry.error("is of no configuration of this line")),
            };
        }
        let same = |other: &&CaseRow| match (&other.quantity, &row.quantity) {
            (Some(Quantity::Computed(ours)), Some(Quantity::Computed(theirs))) => ours == theirs,
            (_, Some(Quantity::Computed(_))) | (Some(Quantity::Computed(_)), _) => false,
            _ => other.at == row.at,
        };
        let Some((other, (value, _))) = line.iter().zip(&self.x.across.values).find(|(other, _)| same(other)) else {
            return Err(entry.error("is of no configuration of this line"));
        };
        let wanted = other.quantity.as_ref().map_or(Ok(None), |wanted| published(self.paper, row, wanted));
        let wanted = wanted.map_err(|failure| match failure {
            Failure::Input(error) => entry.error(error.to_string()),
            other => entry.error(other.to_string()),
        })?;
        let y = wanted.ok_or_else(|| entry.error("gives no figure for this axis: leave it out"))?;
        Ok(Point { row: name.to_owned(), x: *value, y: Some(y / self.up.unit.factor) })
    }
}
