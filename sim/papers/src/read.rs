//! Reads a paper from its TOML text.

use lockstep_topology::InputError;

use super::computed::Computed;
use super::machine::MachineParameter;
use super::paper::{Paper, PaperFit};
use super::quantity::Quantity;
use super::row::{CaseRow, RowMark};
use super::unit::Unit;
use lockstep_experiment::{Experiment, read};
use lockstep_topology::document::{Entry, SourceText, Table};

const KEYS: [&str; 5] = ["name", "source", "experiment", "fit", "row"];
const FIT_KEYS: [&str; 4] = ["parameter", "between", "rows", "why"];
const ROW_KEYS: [&str; 17] = [
    "row",
    "says",
    "cite",
    "mark",
    "same",
    "quantity",
    "published",
    "unit",
    "at",
    "over",
    "epochs",
    "samples",
    "cases",
    "grows",
    "per",
    "at_most",
    "computed",
];

impl Paper {
    /// The paper that `text`, the content of `file`, describes.
    ///
    /// # Errors
    /// Invalid TOML, unknown or missing keys, units that do not fit, a figure that cannot be an anchor: with file,
    /// line, value and cure.
    pub fn parse(file: &str, text: &str) -> Result<Paper, InputError> {
        let document = SourceText { file, text }.parse()?;
        let root = document.table("a paper", &KEYS)?;
        let mut common = Experiment { places: Default::default(), ..Experiment::default() };
        change(&mut common, &root.need("experiment", "{ cluster = \"big-basin-50gbe\" }")?)?;
        let mut rows: Vec<CaseRow> = Vec::new();
        for entry in root.need("row", "[{ row = \"G-1\" }]")?.items()? {
            let row = row(&common, &entry)?;
            let same = |other: &&CaseRow| other.mark == Some(RowMark::Anchor) && is_scaling(&other.at, &row.at);
            if row.mark == Some(RowMark::Anchor)
                && let Some(other) = rows.iter().find(same)
            {
                let message =
                    format!("{} is an anchor of {} already: a configuration has one", other.name, row.at.model);
                return Err(entry.error(message));
            }
            rows.push(row);
        }
        repeats(&rows)?;
        let name = root.need("name", "\"goyal2017\"")?.text()?.to_owned();
        let source = root.need("source", "\"Goyal et al. 2017, arXiv:1706.02677\"")?.text()?.to_owned();
        let fits = root.get("fit").map_or(Ok(Vec::new()), |entry| fits(&entry, &rows))?;
        Ok(Paper { name, source, common, fits, rows, plots: Vec::new() })
    }
}

/// Refuses rows that repeat one that is not there, or that does not count itself.
fn repeats(rows: &[CaseRow]) -> Result<(), InputError> {
    for row in rows {
        let Some(same) = &row.same else { continue };
        if !rows.iter().any(|other| other.name == *same && other.mark.is_none() && other.published.is_some()) {
            let message = "must name a row that has a figure and no mark";
            return Err(InputError::new(&row.place, format!("same = {same:?}"), message));
        }
    }
    Ok(())
}

/// Whether two experiments are one configuration on different numbers of ranks.
pub(super) fn is_scaling(one: &Experiment, other: &Experiment) -> bool {
    let (ranks, algorithms) = (one.ranks.clone(), one.algorithms.clone());
    *one == Experiment { ranks, algorithms, ..other.clone() }
}

/// The parameters to fit, each to rows that no other is fitted to.
fn fits(entry: &Entry<'_>, rows: &[CaseRow]) -> Result<Vec<PaperFit>, InputError> {
    let mut fits: Vec<PaperFit> = Vec::new();
    for entry in entry.items()? {
        let table = entry.section("a fit", &FIT_KEYS)?;
        let parameter: MachineParameter = table.need("parameter", "\"step-overhead\"")?.read(str::parse)?;
        if fits.iter().any(|other| other.parameter == parameter) {
            return Err(entry.error(format!("{parameter} is fitted twice: leave one out")));
        }
        let between = table.need("between", "[0.0, 0.1]")?;
        let ends = between.items()?.iter().map(|item| item.number(0.0)).collect::<Result<Vec<f64>, _>>()?;
        let [low, high] = ends[..] else { return Err(between.error("must be two numbers")) };
        let factor = matches!(parameter, MachineParameter::Scale(_));
        if low >= high || (factor && low == 0.0) {
            return Err(between.error("must ascend, and factors be above 0"));
        }
        let mut names = Vec::new();
        for item in table.need("rows", "[\"G-2\"]")?.items()? {
            let name = item.text()?.to_owned();
            let row = rows.iter().find(|row| row.name == name).ok_or_else(|| item.error("there is no such row"))?;
            if !matches!(row.mark, None | Some(RowMark::Same)) || row.published.is_none() {
                return Err(item.error("must have a figure and no mark: nothing is fitted to others"));
            }
            if names.contains(&name) || fits.iter().any(|other| other.rows.contains(&name)) {
                return Err(item.error("is fitted to twice: leave one out"));
            }
            names.push(name);
        }
        let why = table.need("why", "\"kernels start late\"")?.text()?.to_owned();
        fits.push(PaperFit { parameter, between: [low, high], rows: names, why });
    }
    Ok(fits)
}

/// Applies the entry's keys to an experiment.
fn change(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    for key in entry.section("a configuration", &read::keys())?.entries() {
        read::set(experiment, &key)?;
    }
    // Equal configurations are equal wherever they are written.
    experiment.places.clear();
    Ok(())
}

pub(super) fn changed(common: &Experiment, entry: &Entry<'_>) -> Result<Experiment, InputError> {
    let mut experiment = common.clone();
    change(&mut experiment, entry)?;
    Ok(experiment)
}

fn row(common: &Experiment, entry: &Entry<'_>) -> Result<CaseRow, InputError> {
    let row = entry.section("a row", &ROW_KEYS)?;
    let at = row.get("at").map_or(Ok(common.clone()), |entry| changed(common, &entry))?;
    let same = row.get("same").map(|entry| entry.text().map(str::to_owned)).transpose()?;
    let mark: Option<RowMark> = row.get("mark").map(|entry| entry.read(str::parse)).transpose()?;
    let mark = match (mark, &same) {
        (None, Some(_)) => Some(RowMark::Same),
        (Some(RowMark::Same), None) => return Err(entry.error("lacks same: name the row of the same measurement")),
        (Some(mark), Some(_)) if mark != RowMark::Same => {
            return Err(entry.error(format!("has mark = \"{mark}\" and same: leave one out")));
        }
        (mark, _) => mark,
    };
    let quantity = quantity(common, &row, entry)?;
    let unit: Unit = row.get("unit").map_or("1".parse().map_err(|_| entry.error("unit")), |e| e.read(str::parse))?;
    let published = row.get("published").map(|entry| entry.number(0.0)).transpose()?;
    match &quantity {
        None if !matches!(mark, Some(RowMark::Statistical | RowMark::Contradiction)) => {
            return Err(
                entry.error("does not say what it is a figure of: add quantity or computed, or mark = \"s\" or \"c\"")
            );
        }
        Some(quantity) if quantity.dimension() != unit.of => {
            let message = format!("unit {} is none of {:?}", unit.name, quantity.dimension());
            return Err(row.get("unit").as_ref().unwrap_or(entry).error(message));
        }
        Some(Quantity::Order { .. }) | None => {}
        Some(Quantity::Computed(_)) if matches!(mark, Some(RowMark::Ordering | RowMark::Exact)) => {}
        Some(_) if published.is_none() => return Err(entry.error("lacks published: add the paper's figure")),
        Some(_) => {}
    }
    if let (Some(RowMark::Anchor), Some(quantity), Some(figure)) = (mark, &quantity, published) {
        quantity.images_per_s(figure, 1).map_err(|message| entry.error(message))?;
    }
    Ok(CaseRow {
        name: row.need("row", "\"G-1\"")?.text()?.to_owned(),
        says: row.need("says", "\"90 epochs in one hour\"")?.text()?.to_owned(),
        cite: row.need("cite", "\"section 5\"")?.text()?.to_owned(),
        mark,
        same,
        quantity,
        at,
        published,
        at_most: row.get("at_most").map_or(Ok(false), |entry| entry.boolean())?,
        unit,
        place: entry.place(),
    })
}

fn quantity(common: &Experiment, row: &Table<'_>, whole: &Entry<'_>) -> Result<Option<Quantity>, InputError> {
    if let Some(entry) = row.get("computed") {
        let unread = ["quantity", "at", "over", "epochs", "samples", "cases", "grows", "per"];
        row.unread(&unread, "a computed figure is of no configuration")?;
        return Computed::read(&entry).map(|computed| Some(Quantity::Computed(computed)));
    }
    let Some(entry) = row.get("quantity") else {
        row.unread(&["over", "epochs", "samples", "cases", "grows", "per"], "the row states no quantity")?;
        return Ok(None);
    };
    let over = || {
        let over =
            row.get("over").ok_or_else(|| whole.error("lacks over: the configuration that it is compared with"))?;
        changed(common, &over).map(Box::new)
    };
    let kind = entry.text()?;
    if kind != "order" {
        row.unread(&["cases", "grows", "per"], "only an order has cases")?;
    }
    if !matches!(kind, "speedup" | "slowdown" | "efficiency") {
        row.unread(&["over"], &format!("{kind} is compared with no other configuration"))?;
    }
    if let Some(quantity) = Quantity::along_axes(kind, row, over)? {
        return Ok(Some(quantity));
    }
    Ok(Some(match kind {
        "backward-time" => Quantity::BackwardTime,
        "task-time" => Quantity::TaskTime,
        "tuned-learners" => Quantity::TunedLearners,
        "hidden-share" => Quantity::HiddenShare,
        "order" => {
            let case = |entry: Entry<'_>| -> Result<Vec<Experiment>, InputError> {
                entry.items()?.iter().map(|item| changed(common, item)).collect()
            };
            let cases = row.need("cases", "[[{ ranks = 8 }, { ranks = 4 }]]")?;
            let cases: Vec<Vec<Experiment>> = cases.items()?.into_iter().map(case).collect::<Result<_, _>>()?;
            let grows = row.get("grows").map_or(Ok(false), |entry| entry.boolean())?;
            let per_image = match row.get("per") {
                None => false,
                Some(entry) if entry.text()? == "image" => true,
                Some(entry) => return Err(entry.error("write per = \"image\", or leave it out: a step's time")),
            };
            Quantity::Order { cases, grows, per_image }
        }
        _ => {
            let known = "time, step-time, task-time, backward-time, throughput, tuned-learners, hidden-share, speedup, \
                         slowdown, efficiency or order";
            return Err(entry.error(format!("unknown quantity: write {known}")));
        }
    }))
}
