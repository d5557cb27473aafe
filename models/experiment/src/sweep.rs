//! `Sweep`: prepares the lists of a sweep; `Plan`: lists its points in the order of their rows.
//!
//! Lists nest as their rows in the table of settings say: the cluster outermost, so that each is needed in one stretch;
//! ranks and algorithm innermost, so that of points that differ only in their ranks the fewest come first.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_models::{Job, Model};
use lockstep_topology::{Algorithm, InputError};

use crate::experiment::{Choice, Experiment};
use crate::identity::Identity;
use crate::setting::Nests;
use crate::settings::settings;

pub use crate::range::{RankCount, clusters, counts};
pub use crate::scale::{ClusterScale, SCALES};

/// A sweep may have at most this many points, whatever `--max-points` allows.
pub const MOST_POINTS: u64 = 2_000_000;

/// One cluster of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepCluster {
    /// The position of the entry that it is from; `dgx-a100:1..8` names four.
    pub entry: usize,
    /// As in the key `cluster`.
    pub name: String,
}

/// A list of a sweep, with one value where none was given.
#[derive(Debug, Clone)]
struct List {
    key: &'static str,
    nests: Nests,
    exchanges: bool,
    /// Its values; empty for the scales, which are not the experiment's.
    choices: Vec<Choice>,
    /// How many values it has, and the number of consecutive points that share one value.
    length: u64,
    stride: u64,
}

impl List {
    /// The position of a point in the list.
    fn position(&self, point: SweepPoint) -> usize {
        (point.0 / self.stride % self.length) as usize
    }

    /// A point at another position of the list.
    fn moved(&self, point: SweepPoint, position: usize) -> SweepPoint {
        SweepPoint(point.0 - self.position(point) as u64 * self.stride + position as u64 * self.stride)
    }
}

/// Every list of a sweep.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// What all points have in common.
    pub base: Experiment,
    /// Entries of the list of clusters, as written.
    pub entries: Vec<String>,
    /// The library between the GPUs of each.
    libraries: Vec<Option<Algorithm>>,
    /// The clusters that they expand to.
    pub places: Vec<SweepCluster>,
    /// Figures to multiply.
    pub scales: Vec<ClusterScale>,
    /// Models.
    pub models: Vec<Arc<Model>>,
    /// The lists, the outermost first.
    lists: Vec<List>,
    /// Whether the cluster determines the number of ranks, where they are no list.
    ranks_are_the_clusters: bool,
}

/// One point of a sweep: its number in the product of all lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepPoint(u64);

/// Points with the same work on the same kind of cluster; a front compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The entry of the list of clusters.
    pub entry: u32,
    /// The factors.
    pub scale: u32,
    /// The model.
    pub model: u32,
    /// The strategy.
    pub strategy: u32,
    /// Samples per step, or per rank and step where the batch is per rank.
    pub samples: u64,
}

/// Points that differ in the cluster's size and the ranks alone, among which efficiency is relative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepFamily {
    entry: usize,
    /// Whether it is of a single rank, which has no exchanges.
    alone: bool,
    rest: SweepPoint,
}

/// The points.
#[derive(Debug)]
pub struct SweepPlan {
    /// By the number of their row.
    pub points: Vec<SweepPoint>,
    /// For points that are the same as an earlier one, that one's number.
    pub same_as: BTreeMap<u32, u32>,
}

impl Sweep {
    /// The sweep of an experiment and its lists; reads the models.
    ///
    /// # Errors
    /// No model, an unknown one, a range that is none, more than [`MOST_POINTS`] points, scenarios, learners
    /// to be tuned.
    pub fn new(experiment: Experiment) -> Result<Sweep, InputError> {
        let mut base = experiment;
        if let Some(scenario) = base.scenarios.first() {
            let message = "a sweep predicts undisturbed runs: remove the scenarios, or ask sim predict";
            return Err(base.locate(InputError::flag("scenario", scenario.name.clone(), message)));
        }
        base.check_read()?;
        // A list replaces tuning.
        base.tunes &= !base.sweep.lists.contains_key("learners");
        base.refuse_tuning("a sweep")?;
        let axes = std::mem::take(&mut base.sweep);
        base.refuse_accumulate(axes.lists.contains_key("accumulate"))?;
        // Each point is simulated once, over as many steps as a stable median needs.
        base.noise.iter_mut().for_each(|noise| noise.trials = 1);
        let mut sweep = Sweep {
            base,
            entries: Vec::new(),
            libraries: Vec::new(),
            places: Vec::new(),
            scales: axes.scales,
            models: Vec::new(),
            lists: Vec::new(),
            ranks_are_the_clusters: false,
        };
        // Of two lists that replace each other, the given one leaves the other empty.
        let mut first = sweep.base.clone();
        axes.lists.values().for_each(|(_, choices)| (choices[0].set)(&mut first));
        for setting in settings() {
            let Some(axis) = &setting.axis else { continue };
            let given =
                axes.lists.get(setting.instead_of.unwrap_or(setting.key)).filter(|(key, _)| *key == setting.key);
            let choices = given.map_or_else(|| axis.how.own(&first), |(_, choices)| choices.clone());
            let (nests, exchanges) = (axis.nests, axis.exchanges);
            sweep.lists.push(List { key: setting.key, nests, exchanges, choices, length: 0, stride: 0 });
        }
        sweep.lists.sort_by_key(|list| list.nests);
        sweep.find_models_and_places()?;
        sweep.number_points()?;
        Ok(sweep)
    }

    /// Loads the models, and finds the clusters of each entry, with their libraries.
    fn find_models_and_places(&mut self) -> Result<(), InputError> {
        let load = |choice: &Choice| self.base.load_model(&choice.text).map(Arc::new);
        self.models = self.choices("model").iter().map(load).collect::<Result<_, _>>()?;
        self.entries = self.choices("cluster").iter().map(|choice| choice.text.clone()).collect();
        self.base.price_of(0, self.entries.len())?;
        for (entry, text) in self.entries.iter().enumerate() {
            let wrong = |message| self.base.locate(InputError::flag("cluster", text.clone(), message));
            let names = clusters(text).map_err(wrong)?;
            // All sizes of a cluster have the same GPUs.
            let mut first = Experiment { cluster: names.first().cloned().unwrap_or_default(), ..Experiment::default() };
            first.find_library();
            self.libraries.push(first.library);
            self.places.extend(names.into_iter().map(|name| SweepCluster { entry, name }));
        }
        Ok(())
    }

    /// Numbers the points: the length of each list, and the distance between points that differ in it by one.
    fn number_points(&mut self) -> Result<(), InputError> {
        // Ascending; the number that the cluster determines comes last.
        let count = |choice: &Choice| self.with(choice).ranks.first().copied().map_or((1, 0), |count| (0, count));
        let mut ranks = self.choices("ranks").to_vec();
        ranks.sort_by_cached_key(count);
        let (places, scalings, mut points) = (self.places.len() as u64, self.scalings(), 1u64);
        for list in self.lists.iter_mut().rev() {
            list.length = match list.key {
                "cluster" => places,
                "scale" => scalings,
                _ => list.choices.len().max(1) as u64,
            };
            if list.key == "ranks" {
                list.choices.clone_from(&ranks);
            }
            list.stride = points;
            points = points.saturating_mul(list.length);
        }
        self.ranks_are_the_clusters = self.each("ranks", |variant| variant.ranks.is_empty()).iter().all(|none| *none);
        if points > MOST_POINTS {
            let message = format!("a sweep has at most {MOST_POINTS} points: leave values out");
            return Err(InputError::new("sweep", format!("{points} points"), message));
        }
        Ok(())
    }

    fn list(&self, key: &str) -> &List {
        self.lists.iter().find(|list| list.key == key).unwrap_or_else(|| unreachable!("{key} is an axis"))
    }

    fn choices(&self, key: &str) -> &[Choice] {
        &self.list(key).choices
    }

    /// What all points have in common, with one choice.
    fn with(&self, choice: &Choice) -> Experiment {
        let mut experiment = self.base.clone();
        (choice.set)(&mut experiment);
        experiment
    }

    /// The result of `of` for each value in a list.
    fn each<T>(&self, key: &str, of: impl Fn(&Experiment) -> T) -> Vec<T> {
        self.choices(key).iter().map(|choice| of(&self.with(choice))).collect()
    }

    /// The position of a point in a list.
    pub fn position(&self, point: &SweepPoint, key: &str) -> usize {
        self.list(key).position(*point)
    }

    /// Whether a list has more than one value.
    pub fn varies(&self, key: &str) -> bool {
        self.list(key).length > 1
    }

    /// The value at a position of a list, in the spelling of identities.
    pub fn text(&self, key: &str, position: u32) -> &str {
        &self.choices(key)[position as usize].text
    }

    /// Whether samples per rank are fixed, and not those of a step.
    pub fn is_weak(&self) -> bool {
        self.choices("global_batch").is_empty()
    }

    /// The number of ways to scale a cluster.
    fn scalings(&self) -> u64 {
        self.scales.iter().fold(1, |all, scale| all.saturating_mul(scale.factors.len() as u64))
    }

    /// The factor of each scale at a point.
    pub fn factors(&self, scale: usize) -> Vec<f64> {
        let mut rest = scale;
        let mut factors: Vec<f64> = Vec::with_capacity(self.scales.len());
        for scale in self.scales.iter().rev() {
            factors.push(scale.factors[rest % scale.factors.len()]);
            rest /= scale.factors.len();
        }
        factors.reverse();
        factors
    }

    /// `nic=2 gpu=1`, or `-`.
    pub fn scale_label(&self, scale: usize) -> String {
        let each = self.scales.iter().zip(self.factors(scale));
        let texts: Vec<String> = each.map(|(scale, factor)| format!("{}={factor}", scale.name)).collect();
        if texts.is_empty() { "-".to_owned() } else { texts.join(" ") }
    }

    /// The cluster of a point.
    pub fn place(&self, point: &SweepPoint) -> &SweepCluster {
        &self.places[self.position(point, "cluster")]
    }

    /// The model of a point.
    pub fn model(&self, point: &SweepPoint) -> &Arc<Model> {
        &self.models[self.position(point, "model")]
    }

    /// The experiment of this point alone; it has no ranks where the cluster determines them.
    pub fn variant(&self, point: &SweepPoint) -> Experiment {
        // A row is the same wherever the experiment's file is.
        let mut variant = Experiment { places: BTreeMap::new(), ..self.base.clone() };
        for list in &self.lists {
            if let Some(choice) = list.choices.get(list.position(*point)) {
                (choice.set)(&mut variant);
            }
        }
        let SweepCluster { entry, name } = self.place(point);
        variant.cluster.clone_from(name);
        variant.library.clone_from(&self.libraries[*entry]);
        variant.algorithms = variant.methods(variant.learners);
        variant
    }

    /// The same on unscaled clusters.
    pub fn unscaled(&self) -> Sweep {
        Sweep { scales: Vec::new(), ..self.clone() }
    }

    /// The question that a point belongs to; `samples` are those of its step, or of a rank and step where the batch
    /// is per rank.
    pub fn question(&self, point: &SweepPoint, samples: u64) -> Question {
        let position = |key| self.position(point, key) as u32;
        let entry = self.place(point).entry as u32;
        Question { entry, scale: position("scale"), model: position("model"), strategy: position("strategy"), samples }
    }

    /// The points that a point's efficiency is relative to; `ranks` is what it has.
    pub fn family(&self, point: &SweepPoint, ranks: u32) -> SweepFamily {
        let alone = ranks == 1;
        let apart = |list: &&List| ["cluster", "ranks"].contains(&list.key) || (alone && list.exchanges);
        let rest = self.lists.iter().filter(apart).fold(*point, |point, list| list.moved(point, 0));
        SweepFamily { entry: self.place(point).entry, alone, rest }
    }

    /// Whether a point's efficiency has a reference.
    pub fn compares(&self, point: &SweepPoint, ranks: u32) -> bool {
        let sizes = self.places.iter().filter(|place| place.entry == self.place(point).entry).count();
        ranks == 1 || self.varies("ranks") || (sizes > 1 && self.ranks_are_the_clusters)
    }

    /// All points.
    ///
    /// # Errors
    /// Errors of a model's program on two ranks.
    pub fn plan(&self) -> Result<SweepPlan, InputError> {
        let cuts = self.cuts()?;
        let alone = self.each("ranks", |variant| variant.ranks == [1]);
        let own_device = self.each("learners", |variant| variant.learners == 1);
        let in_flight = self.each("concurrent_exchanges", |variant| variant.concurrent_exchanges);
        let (mut points, mut same_as, mut known) = (Vec::new(), BTreeMap::new(), BTreeMap::<SweepPoint, u32>::new());
        let exchanges: Vec<&List> = self.lists.iter().filter(|list| list.exchanges).collect();
        let [ranks, learners, model, bucket, flights] =
            ["ranks", "learners", "model", "bucket", "concurrent_exchanges"].map(|key| self.list(key));
        let outermost = &self.lists[0];
        for number in 0..outermost.stride * outermost.length {
            let point = SweepPoint(number);
            let sends_nothing = alone[ranks.position(point)] && own_device[learners.position(point)];
            if sends_nothing && exchanges.iter().any(|list| list.position(point) != 0) {
                // A single rank exchanges nothing: one point.
                continue;
            }
            let cut = &cuts[model.position(point)][bucket.position(point)];
            let flying = |position: usize| in_flight[position].min(cut.exchanges);
            let now = flights.position(point);
            let first = (0..now).find(|position| flying(*position) == flying(now)).unwrap_or(now);
            let plain = flights.moved(bucket.moved(point, cut.first), first);
            let row = points.len() as u32;
            let earlier = *known.entry(plain).or_insert(row);
            if earlier < row {
                same_as.insert(row, earlier);
            }
            points.push(point);
        }
        Ok(SweepPlan { points, same_as })
    }

    /// For each model and bucket, the first bucket with the same cuts, and how many exchanges a step has.
    fn cuts(&self) -> Result<Vec<Vec<Cut>>, InputError> {
        let buckets = self.each("bucket", |variant| variant.bucket);
        let of_model = |model: &Arc<Model>| {
            let (mut seen, mut cuts) = (Vec::<Vec<(u64, u64)>>::new(), Vec::new());
            for bucket in &buckets {
                let program = Job { bucket: *bucket, ..Job::new(model.clone(), 2, 1) }.program()?;
                let updates = program.roles[0].tasks.iter().filter_map(|task| task.op.update());
                let ranges: Vec<_> = updates.map(|of| (of.range.start, of.range.end)).collect();
                let first = seen.iter().position(|other| *other == ranges).unwrap_or(seen.len());
                cuts.push(Cut { first, exchanges: ranges.len() as u32 });
                seen.push(ranges);
            }
            Ok(cuts)
        };
        self.models.iter().map(of_model).collect()
    }

    /// Adds what decides the rows: every list, and what the points have in common.
    pub fn identify(&self, identity: &mut Identity) {
        for List { key, choices, .. } in self.lists.iter().filter(|list| !list.choices.is_empty()) {
            identity.set_list(key, choices.iter().map(|choice| &choice.text));
        }
        for scale in &self.scales {
            identity.set_list(&format!("scale.{}", scale.name), &scale.factors);
        }
        // Factors are multiplied out in the order of the scales.
        identity.set_list("scale", self.scales.iter().map(|scale| &scale.name));
        for (index, model) in self.models.iter().enumerate() {
            identity.set_model(&format!("model.{index}"), model);
        }
        settings().for_each(|setting| (setting.identify)(&self.base, identity));
        identity.set_some("processes", self.base.processes);
    }
}

/// How a bucket cuts a model's gradients.
struct Cut {
    first: usize,
    exchanges: u32,
}
