//! An experiment from its TOML text.

use lockstep_topology::InputError;

use super::optimizer::{inits, optimizer};
use super::reader::{Entry, Section, Source};
use super::{Anchor, Batch, Experiment, Learners, Point, Published, Recipe, arms, axes};

/// The keys of an experiment.
pub(crate) const KEYS: [&str; 40] = [
    "name",
    "model",
    "data",
    "cluster",
    "ranks",
    "batch_per_rank",
    "global_batch",
    "accumulate",
    "strategy",
    "learners",
    "growth",
    "algorithm",
    "bucket",
    "chunk",
    "concurrent_exchanges",
    "fuse",
    "transport",
    "ranks_per_node",
    "sampling",
    "tuner_threshold",
    "device",
    "threads_per_rank",
    "steps",
    "epochs",
    "seed",
    "seeds",
    "recompute_bn",
    "target_accuracy",
    "target_epochs",
    "augment",
    "recipe",
    "optimizer",
    "init",
    "anchor",
    "published",
    "noise",
    "input",
    "sweep",
    "arm",
    "scenario",
];

/// The experiment that `text`, the content of `file`, describes.
pub(super) fn parse(file: &str, text: &str) -> Result<Experiment, InputError> {
    let source = Source { file, text };
    let root = source.table()?;
    let root = Section::new(source, "an experiment", root.get_ref(), 0, &KEYS)?;
    root.need("name", "\"lenet-scaling\"")?;
    root.need("model", "\"lenet\"")?;
    if let (Some(_), Some(global)) = (root.get("batch_per_rank"), root.get("global_batch")) {
        return Err(global.error("batch_per_rank is there too: give one of the two"));
    }
    if let (Some(_), Some(epochs)) = (root.get("steps"), root.get("epochs")) {
        return Err(epochs.error("steps is there too: give one of the two"));
    }
    let mut experiment = Experiment::default();
    // Everything else replaces what a recipe says.
    if let Some(entry) = root.get("recipe") {
        experiment.follow(entry.read(|name| Recipe::load(name).map_err(|error| error.message))?);
    }
    for entry in root.entries().filter(|entry| !["sweep", "arm"].contains(&entry.key())) {
        set(&mut experiment, &entry)?;
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    // Arms are what all the rest says, but for their own keys.
    if let Some(entry) = root.get("arm") {
        experiment.arms = arms::read(&experiment, &entry)?;
    }
    // Its lists take the place of what stands above them.
    if let Some(entry) = root.get("sweep") {
        axes::read(&mut experiment, &entry)?;
    }
    Ok(experiment)
}

/// Takes one entry over.
///
/// # Errors
/// A value that its key cannot have.
pub(crate) fn set(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    match entry.key() {
        "name" => experiment.name = name(entry)?,
        "model" => experiment.model = entry.text()?.to_owned(),
        "data" => experiment.data = entry.text()?.to_owned(),
        "cluster" => experiment.cluster = entry.text()?.to_owned(),
        "ranks" => experiment.ranks = each(entry, |item| item.count())?,
        "batch_per_rank" => experiment.batch = Batch::PerRank(each(entry, |item| item.count())?),
        "global_batch" => experiment.batch = Batch::Global(each(entry, |item| item.whole(1..1 << 48))?),
        "accumulate" => experiment.accumulate = entry.count()?,
        "strategy" => experiment.strategy = entry.read(str::parse)?,
        "learners" => experiment.set_learners(learners(entry)?),
        "growth" => experiment.growth = each(entry, |item| item.read(str::parse))?,
        "algorithm" => experiment.algorithms = each(entry, |item| item.read(str::parse))?,
        "bucket" => experiment.bucket = entry.read(str::parse)?,
        "chunk" => experiment.chunk = Some(entry.read(super::parse_chunk)?),
        "concurrent_exchanges" => experiment.concurrent_exchanges = entry.count()?,
        "fuse" => experiment.fuse = entry.boolean()?,
        "transport" => experiment.transport = entry.read(str::parse)?,
        "ranks_per_node" => experiment.ranks_per_node = Some(entry.count()?),
        "sampling" => experiment.sampling = entry.read(str::parse)?,
        "tuner_threshold" => experiment.tuner_threshold = entry.checked(super::threshold)?,
        "device" => experiment.device = entry.read(str::parse)?,
        "threads_per_rank" => experiment.threads_per_rank = entry.count()?,
        "steps" => experiment.length = super::Length::Steps(entry.count()?),
        "epochs" => experiment.length = super::Length::Epochs(entry.count()?),
        "seed" => experiment.seed = entry.whole(0..1 << 63)?,
        "seeds" => experiment.seeds = entry.count()?,
        "target_accuracy" => experiment.target.accuracy = Some(entry.checked(super::accuracy)?),
        "target_epochs" => experiment.target.epochs = entry.count()?,
        "recompute_bn" => experiment.recompute_bn = entry.boolean()?,
        "augment" => experiment.augmentation = entry.read(str::parse)?,
        "recipe" => {}
        "optimizer" => optimizer(&mut experiment.optimizer, entry)?,
        "init" => inits(&mut experiment.inits, entry)?,
        "scenario" => experiment.scenarios = super::scenario::read(entry)?,
        "input" => experiment.input = Some(super::input::read(experiment.input.as_ref(), entry)?),
        "noise" => experiment.noise = Some(super::noise::read(entry)?),
        "anchor" => experiment.anchor = Some(anchor(entry)?),
        _ => experiment.published = Some(published(entry)?),
    }
    Ok(())
}

/// Most characters of an experiment's name.
const LONGEST_NAME: usize = 100;

/// What an experiment is called: files are named after it, so it is one component of a path.
fn name(entry: &Entry<'_>) -> Result<String, InputError> {
    let Some(name) = entry.plain_text() else { return Err(entry.error("name must be a text in quotes")) };
    let length = name.chars().count();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let wrong = match name {
        "" => "is empty".to_owned(),
        "." | ".." => "is no name that a file can have".to_owned(),
        _ if length > LONGEST_NAME => format!("has {length} characters"),
        _ => match name.chars().find(|c| !allowed(*c)) {
            None => return Ok(name.to_owned()),
            Some(other) => format!("has the character {other:?} in it"),
        },
    };
    Err(entry.error(format!(
        "{wrong}: files are named after it, so take 1 to {LONGEST_NAME} letters (a to z), digits, -, _ and ."
    )))
}

/// A number, or `"auto"`.
fn learners(entry: &Entry<'_>) -> Result<Learners, InputError> {
    if entry.is("auto") { Ok(Learners::Auto) } else { entry.whole(1..1025).map(|each| Learners::Each(each as u32)) }
}

/// The items of a list, or a single value; none twice.
pub(super) fn each<T: PartialEq>(
    entry: &Entry<'_>,
    read: impl Fn(&Entry<'_>) -> Result<T, InputError>,
) -> Result<Vec<T>, InputError> {
    let mut values = Vec::new();
    for item in entry.items()? {
        let value = read(&item)?;
        if values.contains(&value) {
            return Err(item.error(format!("stands twice in {}: leave one out", entry.key())));
        }
        values.push(value);
    }
    Ok(values)
}

fn anchor(entry: &Entry<'_>) -> Result<Anchor, InputError> {
    let section = entry.section("[anchor]", &["ranks", "batch_per_rank", "images_per_s"])?;
    let images = section.need("images_per_s", "219.0")?;
    let images_per_s = images.number(0.0)?;
    if images_per_s == 0.0 {
        return Err(images.error("images_per_s must be more than 0"));
    }
    Ok(Anchor {
        ranks: section.get("ranks").map_or(Ok(1), |entry| entry.count())?,
        batch_per_rank: section.get("batch_per_rank").map(|entry| entry.count()).transpose()?,
        images_per_s,
    })
}

fn published(entry: &Entry<'_>) -> Result<Published, InputError> {
    let section = entry.section("[published]", &["source", "points"])?;
    let source = section.need("source", "\"Goyal et al. 2017, Table 1\"")?.text()?.to_owned();
    let mut points = Vec::new();
    for item in section.need("points", "[{ ranks = 8, images_per_s = 1500.0 }]")?.items()? {
        let keys = ["ranks", "batch_per_rank", "algorithm", "images_per_s"];
        let point = item.section("a published point", &keys)?;
        points.push(Point {
            ranks: point.need("ranks", "8")?.count()?,
            batch_per_rank: point.get("batch_per_rank").map(|entry| entry.count()).transpose()?,
            algorithm: point.get("algorithm").map(|entry| entry.read(str::parse)).transpose()?,
            images_per_s: point.need("images_per_s", "1500.0")?.number(f64::MIN_POSITIVE)?,
        });
    }
    Ok(Published { source, points })
}
