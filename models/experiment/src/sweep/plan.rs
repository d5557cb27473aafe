//! `Sweep`: the lists of a sweep made ready, and `Plan`: its points in the order of their rows.
//!
//! Rows go by cluster, scale, model, strategy, learners, batch, accumulation, bucket, chunk, exchanges in flight, ranks and
//! algorithm, the last one fastest. A cluster is so needed in one stretch, and of points that differ only in their ranks the fewest come first.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_models::{Bucket, Job, Model, Op, Strategy};
use lockstep_topology::{Algorithm, Bytes, InputError};

use super::range::{RankCount, clusters};
use super::scale::Scale;
use crate::{Batch, Experiment};

/// At most this many points stand in one sweep, whatever `--max-points` allows.
pub const MOST_POINTS: u64 = 2_000_000;

/// One cluster of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The position of the entry that asked for it; `dgx-a100:1..8` asks for four.
    pub entry: usize,
    /// As `cluster` takes it.
    pub name: String,
}

/// Every list of a sweep, one value where nothing else was asked for.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// What all points have in common.
    pub base: Experiment,
    /// Entries of the list of clusters, as written.
    pub entries: Vec<String>,
    /// The clusters that they stand for.
    pub places: Vec<Place>,
    /// Figures to multiply.
    pub scales: Vec<Scale>,
    /// Models.
    pub models: Vec<Arc<Model>>,
    /// Their names as written.
    pub model_names: Vec<String>,
    /// How training is spread over ranks.
    pub strategies: Vec<Strategy>,
    /// Learners on each device.
    pub learners: Vec<u32>,
    /// Samples per step.
    pub batch: Batch,
    /// Micro-batches.
    pub accumulate: Vec<u32>,
    /// Buckets.
    pub buckets: Vec<Bucket>,
    /// Chunks.
    pub chunks: Vec<Option<Bytes>>,
    /// Exchanges in flight.
    pub concurrent_exchanges: Vec<u32>,
    /// Numbers of ranks, ascending.
    pub ranks: Vec<RankCount>,
    /// Methods of the allreduce; `None`: what so many learners on a device take by default.
    pub algorithms: Vec<Option<Algorithm>>,
}

/// One point of a sweep: a position in each list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The cluster.
    pub place: u32,
    /// The factors of all scales as one number, the last scale's the fastest digit.
    pub scale: u32,
    /// The model.
    pub model: u32,
    /// The strategy.
    pub strategy: u32,
    /// The number of learners.
    pub learners: u32,
    /// The batch.
    pub batch: u32,
    /// The number of micro-batches.
    pub accumulate: u32,
    /// The bucket.
    pub bucket: u32,
    /// The chunk.
    pub chunk: u32,
    /// The number of exchanges in flight.
    pub concurrent: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The method of the allreduce.
    pub algorithm: u32,
}

/// Points that ask for the same work on the same sort of cluster, which is what a front compares.
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
pub struct Family {
    entry: u32,
    rest: [u32; 7],
    /// Absent of a single rank, which uses none of it.
    exchange: Option<[u32; 3]>,
}

/// The points.
#[derive(Debug)]
pub struct Plan {
    /// By the number of their row.
    pub points: Vec<Point>,
    /// For points that are the same as an earlier one, that one's number.
    pub same_as: BTreeMap<u32, u32>,
}

impl Sweep {
    /// The sweep that an experiment and its lists ask for; reads the models.
    ///
    /// # Errors
    /// No model, an unknown one, a range that is none, more than [`MOST_POINTS`] points, scenarios, learners to be tuned.
    pub fn new(experiment: Experiment) -> Result<Sweep, InputError> {
        let mut base = experiment;
        if let Some(scenario) = base.scenarios.first() {
            let message = "a sweep predicts undisturbed runs: take the scenarios out, or ask sim predict";
            return Err(base.locate(InputError::flag("scenario", scenario.name.clone(), message)));
        }
        // A list takes the place of what would be tuned.
        base.tunes &= base.sweep.learners.is_none();
        base.refuse_tuning("a sweep")?;
        let axes = std::mem::take(&mut base.sweep);
        // Each point is simulated once, over as many steps as a steady median needs.
        base.noise.iter_mut().for_each(|noise| noise.trials = 1);
        let model_names = axes.models.unwrap_or_else(|| vec![base.model.clone()]);
        let load = |name: &String| base.load_model(name).map(Arc::new);
        let models = model_names.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let entries = axes.clusters.unwrap_or_else(|| vec![base.cluster.clone()]);
        let mut places = Vec::new();
        for (entry, text) in entries.iter().enumerate() {
            let wrong = |message| base.locate(InputError::flag("cluster", text.clone(), message));
            places.extend(clusters(text).map_err(wrong)?.into_iter().map(|name| Place { entry, name }));
        }
        let mut ranks = axes.ranks.unwrap_or_else(|| base.ranks.iter().copied().map(RankCount::Of).collect());
        ranks.sort();
        let sweep = Sweep {
            entries,
            places,
            scales: axes.scales,
            models,
            model_names,
            strategies: axes.strategies.unwrap_or_else(|| vec![base.strategy.clone()]),
            learners: axes.learners.unwrap_or_else(|| vec![base.learners]),
            batch: axes.batch.unwrap_or_else(|| base.batch.clone()),
            accumulate: axes.accumulate.unwrap_or_else(|| vec![base.accumulate]),
            buckets: axes.buckets.unwrap_or_else(|| vec![base.bucket]),
            chunks: axes.chunks.unwrap_or_else(|| vec![base.chunk]),
            concurrent_exchanges: axes.concurrent_exchanges.unwrap_or_else(|| vec![base.concurrent_exchanges]),
            ranks,
            algorithms: match axes.algorithms.as_ref().unwrap_or(&base.algorithms).as_slice() {
                [] => vec![None],
                named => named.iter().cloned().map(Some).collect(),
            },
            base,
        };
        let most = sweep.most_points();
        if most > MOST_POINTS {
            let message = format!("a sweep has at most {MOST_POINTS} points: leave values out");
            return Err(InputError::new("sweep", format!("{most} points"), message));
        }
        Ok(sweep)
    }

    /// How many ways there are to scale a cluster.
    pub fn scalings(&self) -> u64 {
        product(self.scales.iter().map(|scale| scale.factors.len()))
    }

    fn batches(&self) -> usize {
        match &self.batch {
            Batch::PerRank(sizes) => sizes.len(),
            Batch::Global(sizes) => sizes.len(),
        }
    }

    /// The product of all lists.
    fn most_points(&self) -> u64 {
        let lists = [
            self.places.len(),
            self.models.len(),
            self.strategies.len(),
            self.learners.len(),
            self.batches(),
            self.accumulate.len(),
            self.buckets.len(),
            self.chunks.len(),
            self.concurrent_exchanges.len(),
            self.ranks.len(),
            self.algorithms.len(),
        ];
        product(lists.into_iter()).saturating_mul(self.scalings())
    }

    /// The factor of each scale at a point.
    pub fn factors(&self, scale: u32) -> Vec<f64> {
        let mut rest = scale as usize;
        let mut factors: Vec<f64> = Vec::with_capacity(self.scales.len());
        for scale in self.scales.iter().rev() {
            factors.push(scale.factors[rest % scale.factors.len()]);
            rest /= scale.factors.len();
        }
        factors.reverse();
        factors
    }

    /// `nic=2 gpu=1`, or `-`.
    pub fn scale_label(&self, scale: u32) -> String {
        let each = self.scales.iter().zip(self.factors(scale));
        let texts: Vec<String> = each.map(|(scale, factor)| format!("{}={factor}", scale.name)).collect();
        if texts.is_empty() { "-".to_owned() } else { texts.join(" ") }
    }

    /// How training is spread over the ranks of a point.
    pub fn strategy_of(&self, point: &Point) -> &Strategy {
        &self.strategies[point.strategy as usize]
    }

    /// Learners on each device of a point.
    pub fn learners_of(&self, point: &Point) -> u32 {
        self.learners[point.learners as usize]
    }

    /// The ranks of a point, where they do not depend on the cluster.
    pub fn ranks_of(&self, point: &Point) -> Option<u32> {
        match self.ranks[point.ranks as usize] {
            RankCount::Of(count) => Some(count),
            RankCount::All => None,
        }
    }

    /// What a point is compared with.
    pub fn question(&self, point: &Point) -> Question {
        let (batch, times) = (point.batch as usize, u64::from(self.accumulate[point.accumulate as usize]));
        let samples = match &self.batch {
            Batch::PerRank(sizes) => u64::from(sizes[batch]) * times,
            Batch::Global(sizes) => sizes[batch],
        };
        let entry = self.places[point.place as usize].entry as u32;
        Question { entry, scale: point.scale, model: point.model, strategy: point.strategy, samples }
    }

    /// The points that a point's efficiency is relative to; `ranks` is what it has.
    pub fn family(&self, point: &Point, ranks: u32) -> Family {
        let Point { scale, model, strategy, learners, batch, accumulate, bucket, .. } = *point;
        Family {
            entry: self.places[point.place as usize].entry as u32,
            rest: [scale, model, strategy, learners, batch, accumulate, bucket],
            exchange: (ranks > 1).then_some([point.chunk, point.concurrent, point.algorithm]),
        }
    }

    /// Whether a point's efficiency has anything to be relative to.
    pub fn compares(&self, point: &Point, ranks: u32) -> bool {
        let entry = self.places[point.place as usize].entry;
        let sizes = self.places.iter().filter(|place| place.entry == entry).count();
        ranks == 1 || self.ranks.len() > 1 || (sizes > 1 && self.ranks_of(point).is_none())
    }

    /// All points.
    ///
    /// # Errors
    /// Whatever refuses a model's program on two ranks.
    pub fn plan(&self) -> Result<Plan, InputError> {
        let cuts = self.cuts()?;
        let (mut points, mut same_as) = (Vec::new(), BTreeMap::new());
        let mut known: BTreeMap<Point, u32> = BTreeMap::new();
        let lists = [
            self.places.len() as u64,
            self.scalings(),
            self.models.len() as u64,
            self.strategies.len() as u64,
            self.learners.len() as u64,
            self.batches() as u64,
            self.accumulate.len() as u64,
            self.buckets.len() as u64,
            self.chunks.len() as u64,
            self.concurrent_exchanges.len() as u64,
            self.ranks.len() as u64,
            self.algorithms.len() as u64,
        ];
        for number in 0..self.most_points() {
            let mut rest = number;
            let mut digits = [0u32; 12];
            for (digit, length) in digits.iter_mut().zip(lists).rev() {
                *digit = (rest % length) as u32;
                rest /= length;
            }
            let [place, scale, model, strategy, learners, batch, rest @ ..] = digits;
            let [accumulate, bucket, chunk, concurrent, ranks, algorithm] = rest;
            let point = Point {
                place,
                scale,
                model,
                strategy,
                learners,
                batch,
                accumulate,
                bucket,
                chunk,
                concurrent,
                ranks,
                algorithm,
            };
            let alone = self.ranks_of(&point) == Some(1) && self.learners_of(&point) == 1;
            if alone && (chunk, concurrent, algorithm) != (0, 0, 0) {
                // A single rank exchanges nothing and stands once.
                continue;
            }
            let cut = &cuts[model as usize][bucket as usize];
            let flying = |position: u32| self.concurrent_exchanges[position as usize].min(cut.exchanges);
            let first = |position: u32| (0..position).find(|p| flying(*p) == flying(position)).unwrap_or(position);
            let plain = Point { bucket: cut.first, concurrent: first(concurrent), ..point };
            let row = points.len() as u32;
            match known.get(&plain) {
                Some(earlier) => {
                    same_as.insert(row, *earlier);
                }
                None => {
                    known.insert(plain, row);
                }
            }
            points.push(point);
        }
        Ok(Plan { points, same_as })
    }

    /// For each model and bucket, the first bucket that cuts as it does, and how many exchanges a step has.
    fn cuts(&self) -> Result<Vec<Vec<Cut>>, InputError> {
        let of_model = |model: &Arc<Model>| {
            let mut seen: Vec<Vec<(u64, u64)>> = Vec::new();
            let mut cuts = Vec::new();
            for bucket in &self.buckets {
                let program = Job { bucket: *bucket, ..Job::new(model.clone(), 2, 1) }.program()?;
                let range = |op: &Op| match op {
                    Op::Update { range } => Some((range.start, range.end)),
                    _ => None,
                };
                let ranges: Vec<_> = program.roles[0].tasks.iter().filter_map(|task| range(&task.op)).collect();
                let first = seen.iter().position(|other| *other == ranges).unwrap_or(seen.len());
                cuts.push(Cut { first: first as u32, exchanges: ranges.len() as u32 });
                seen.push(ranges);
            }
            Ok(cuts)
        };
        self.models.iter().map(of_model).collect()
    }
}

/// How a bucket cuts a model's gradients.
struct Cut {
    first: u32,
    exchanges: u32,
}

fn product(lengths: impl Iterator<Item = usize>) -> u64 {
    lengths.fold(1, |all, length| all.saturating_mul(length as u64))
}
