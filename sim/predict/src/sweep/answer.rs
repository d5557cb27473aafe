//! `Answer`: collects what a sweep has found so far: the front of each question, its knee, and counts of points.

use std::collections::BTreeMap;

use super::front::{Front, PAYS};
use crate::cost::TrainingCost;
use lockstep_experiment::sweep::{Question, Sweep, SweepPlan};
use lockstep_report::{FrontRow, Setting, SweepRow};
use lockstep_topology::Cluster;

/// One predicted point in a plot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dot {
    /// The question that it answers.
    pub question: Question,
    /// Its ranks.
    pub total_ranks: u32,
    /// Samples per second.
    pub images_per_s: f64,
    /// Seconds per step.
    pub step_time_s: f64,
}

/// The state of a sweep.
#[derive(Debug, Default)]
pub struct SweepAnswer {
    /// The front of each question, in the order of the sweep's lists.
    pub fronts: BTreeMap<Question, Front<SweepRow>>,
    /// Every point that fits.
    pub dots: Vec<Dot>,
    /// Every row, refused ones too, where they are kept.
    pub kept: Option<Vec<SweepRow>>,
    /// Rows so far.
    pub rows: u64,
    out_of_memory: u64,
    refused: u64,
    first_refused: Option<(u64, String)>,
}

impl SweepAnswer {
    /// Adds a finished row.
    pub fn add(&mut self, sweep: &Sweep, plan: &SweepPlan, row: &SweepRow) {
        self.rows += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(row.clone());
        }
        let (Some(step_time_s), Some(images_per_s)) = (row.step_time_s, row.images_per_s) else {
            self.refused += 1;
            if self.first_refused.is_none() {
                self.first_refused = row.refused.clone().map(|reason| (row.point, reason));
            }
            return;
        };
        if row.fits_memory == Some(false) {
            self.out_of_memory += 1;
            return;
        }
        let Setting { batch_per_rank, accumulate, global_batch, .. } = row.setting;
        let weak = sweep.is_weak().then(|| u64::from(batch_per_rank) * u64::from(accumulate));
        let question = sweep.question(&plan.points[row.point as usize], weak.unwrap_or(global_batch));
        self.fronts.entry(question).or_default().add(row.total_ranks, images_per_s, || row.clone());
        self.dots.push(Dot { question, total_ranks: row.total_ranks, images_per_s, step_time_s });
    }

    /// Whether no row so far has figures.
    pub fn none_predicted(&self) -> bool {
        self.refused == self.rows
    }

    /// Why the first refused point was refused.
    pub fn first_refused(&self) -> Option<&str> {
        self.first_refused.as_ref().map(|(_, reason)| reason.as_str())
    }

    /// The fronts as rows, and the notes below them.
    pub fn report(&self, sweep: &Sweep, plan: &SweepPlan) -> (Vec<FrontRow>, Vec<String>) {
        let mut rows = Vec::new();
        let fixed = match sweep.is_weak() {
            true => "images/s; samples per rank and step are fixed",
            false => "images/s, which is as little time per step; samples per step are fixed",
        };
        let mut notes = vec![
            format!(
                "front: of each cluster, scale, model, strategy and batch the points that no other beats with as few ranks and as \
                 many {fixed}"
            ),
            format!("knee: from there on no doubling of the ranks in the sweep brings {PAYS} times the throughput"),
        ];
        for (question, front) in &self.fronts {
            let knee = front.knee();
            let gains = front.gains();
            for (at, (row, gain)) in front.points().zip(&gains).enumerate() {
                let cost = cost(sweep, plan, row);
                rows.push(FrontRow {
                    row: row.clone(),
                    doubling_gain: *gain,
                    knee: knee == Some(at),
                    cost_per_million_samples: cost.map(|cost| cost.per_million_samples),
                    cost_per_epoch: cost.and_then(|cost| cost.per_epoch),
                });
            }
            let found = match (knee.and_then(|at| front.points().nth(at)), front.widest()) {
                (Some(row), _) => format!("knee at {}", ranks(row.total_ranks)),
                (None, Some(widest)) if gains.iter().any(Option::is_some) => {
                    format!("no knee: doubling pays as far as the sweep goes, {}", ranks(widest))
                }
                _ => "no knee: no point has twice the ranks of another on the front".to_owned(),
            };
            notes.push(format!("{}: {found}", label(sweep, question)));
        }
        let same = plan.same_as.range(..self.rows as u32).count();
        let mut counts = format!("{} of {} points", self.rows, plan.points.len());
        for (count, what) in [
            (same as u64, "the same as another and predicted once"),
            (self.out_of_memory, "out of memory and on no front"),
            (self.refused, "impossible"),
        ] {
            if count > 0 {
                counts.push_str(&format!(", {count} {what}"));
            }
        }
        if let Some((point, reason)) = &self.first_refused {
            counts.push_str(&format!(" (the first: point {point}: {reason})"));
        }
        if self.dots.len() > rows.len() {
            counts.push_str(&format!("; the {} on a front are shown, the file of rows has all", rows.len()));
        }
        notes.push(counts);
        (rows, notes)
    }
}

/// The cost of a point that has figures, where its cluster has a price.
fn cost(sweep: &Sweep, plan: &SweepPlan, row: &SweepRow) -> Option<TrainingCost> {
    let point = plan.points.get(usize::try_from(row.point).ok()?)?;
    let variant = sweep.variant(point);
    let price = sweep.base.price_of(sweep.place(point).entry, sweep.entries.len()).ok()??;
    let ranks = row.setting.ranks / variant.learners.max(1);
    let mut configuration = variant.configuration(sweep.model(point), 0, ranks, &variant.algorithms[0]).ok()?;
    let cluster = if variant.on_this_machine() { None } else { Cluster::load(&variant.cluster).ok() };
    let placed = cluster.and_then(|cluster| configuration.place(&cluster, &variant).ok());
    match placed {
        Some((placement, _)) => {
            TrainingCost::of(&sweep.base, &configuration, Some(price), &placement, row.images_per_s?)
        }
        // This machine is one device.
        None => {
            let samples = sweep.base.stated_samples(configuration.job.model.input());
            Some(TrainingCost::at(price, 1, row.images_per_s?, samples))
        }
    }
}

/// `dgx-a100:1..32@infiniband-hdr, nic=2, resnet-50 x 32 per rank`: without what all questions have in common.
pub(super) fn label(sweep: &Sweep, question: &Question) -> String {
    let mut parts = vec![sweep.entries[question.entry as usize].clone()];
    if !sweep.scales.is_empty() {
        parts.push(sweep.scale_label(question.scale as usize));
    }
    if sweep.varies("strategy") {
        parts.push(sweep.text("strategy", question.strategy).to_owned());
    }
    let batch = if sweep.is_weak() { "per rank" } else { "per step" };
    parts.push(format!("{} x {} {batch}", sweep.models[question.model as usize].name(), question.samples));
    parts.join(", ")
}

fn ranks(count: u32) -> String {
    if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") }
}
