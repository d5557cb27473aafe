//! The account: every row predicted, its error, what bounds it, and what all of it rests on.

use std::collections::BTreeMap;

use lockstep_models::Op;
use lockstep_sim::{FoldRule, NetworkModel};
use lockstep_topology::InputError;

use super::{Mark, Paper, Quantity, Row};
use crate::anchor::{Scaled, fit};
use crate::experiment::{Anchor, Experiment};
use crate::failure::Failure;
use crate::predict::{Predicted, Setup, predict};
use crate::report::PaperRow;
use crate::site::Site;
use crate::tune;

/// All rows, and in sentences what they rest on.
#[derive(Debug)]
pub struct Account {
    /// In the order of papers and their rows.
    pub rows: Vec<PaperRow>,
    /// Per paper: source, machine, anchors.
    pub notes: Vec<String>,
}

/// What is predicted of one configuration.
#[derive(Debug, Clone)]
struct Figure {
    step_time_s: f64,
    task_time_s: f64,
    images_per_s: f64,
    global_batch: u64,
    ranks: u32,
    bound: String,
}

/// What one paper's rows share while they are predicted.
struct Reckoning<'a> {
    paper: &'a Paper,
    sites: BTreeMap<String, Site>,
    /// What computation is multiplied by, per model with an anchor; the first anchor's serves the other models.
    factors: Vec<(String, f64)>,
    known: Vec<(Experiment, Figure)>,
}

/// Predicts all rows of `papers`; `progress` hears the share that is done and what comes next.
///
/// # Errors
/// Configurations that cannot be predicted, at the file and line of their row.
pub fn account(papers: &[Paper], mut progress: impl FnMut(f64, &str)) -> Result<Account, Failure> {
    let all = papers.iter().map(|paper| paper.rows.len()).sum::<usize>() as f64;
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for paper in papers {
        let mut reckoning = Reckoning::new(paper);
        notes.push(format!("{}: {}; cluster {}", paper.name, paper.source, paper.common.cluster));
        let input = paper.common.input.iter();
        notes.extend(input.map(|input| format!("{}: {}", paper.name, input.account())));
        for row in paper.rows.iter().filter(|row| row.mark == Some(Mark::Anchor)) {
            let factor = reckoning.anchor(row).map_err(|failure| at(row, failure))?;
            let source = format!("{}: computation of {} is scaled by {factor:.4}", paper.name, row.at.model);
            notes.push(format!("{source} to {} ({})", row.name, row.says));
        }
        for row in &paper.rows {
            progress(rows.len() as f64 / all, &row.name);
            rows.push(reckoning.row(row).map_err(|failure| at(row, failure))?);
        }
    }
    notes.extend(summary(&rows));
    Ok(Account { rows, notes })
}

/// An error of a row's configuration, at the row.
fn at(row: &Row, failure: Failure) -> Failure {
    match failure {
        Failure::Input(error) => {
            let value = format!("{} {}", error.place, error.value);
            Failure::Input(InputError { place: row.place.clone(), value: value.trim().to_owned(), ..error })
        }
        other => other,
    }
}

impl<'a> Reckoning<'a> {
    fn new(paper: &'a Paper) -> Reckoning<'a> {
        Reckoning { paper, sites: BTreeMap::new(), factors: Vec::new(), known: Vec::new() }
    }

    /// What an experiment's cluster is and costs.
    fn site(&mut self, experiment: &Experiment) -> Result<Site, InputError> {
        if let Some(site) = self.sites.get(&experiment.cluster) {
            return Ok(site.clone());
        }
        let site = Site::open(experiment, None)?;
        self.sites.insert(experiment.cluster.clone(), site.clone());
        Ok(site)
    }

    /// Scales the computation of the row's model until the row comes out.
    fn anchor(&mut self, row: &Row) -> Result<f64, Failure> {
        let site = self.site(&row.at)?;
        let setup = setup(&row.at, &site)?;
        let configuration = first(&row.at)?;
        let wrong = |message: String| InputError::new(&row.place, &row.name, message);
        let (Some(quantity), Some(published)) = (&row.quantity, row.published) else {
            return Err(wrong("an anchor needs a figure".to_owned()).into());
        };
        let figure = published * row.unit.factor;
        let images_per_s = quantity.images_per_s(figure, configuration.setting().global_batch).map_err(wrong)?;
        let anchor = Anchor { ranks: configuration.job.workers, batch_per_rank: None, images_per_s };
        let factor = fit(&anchor, &row.at, &site, &setup)?;
        self.factors.push((row.at.model.clone(), factor));
        Ok(factor)
    }

    /// What is predicted of the first configuration of an experiment.
    fn figure(&mut self, experiment: &Experiment) -> Result<Figure, Failure> {
        if let Some((_, figure)) = self.known.iter().find(|(known, _)| known == experiment) {
            return Ok(figure.clone());
        }
        let site = self.site(experiment)?;
        let costs = Scaled::new(site.costs.as_ref(), self.factor(experiment));
        let setup = setup(experiment, &site)?;
        let mut configuration = first(experiment)?;
        let predicted = predict(&mut configuration, experiment, &site.cluster, &costs, &setup)?;
        let figure = Figure {
            step_time_s: predicted.step_time_s,
            task_time_s: task_time_s(&predicted),
            images_per_s: predicted.images_per_s,
            global_batch: predicted.program.global_batch(),
            ranks: predicted.program.workers,
            bound: predicted.bound.by,
        };
        self.known.push((experiment.clone(), figure.clone()));
        Ok(figure)
    }

    /// What the computation of an experiment's model is multiplied by.
    fn factor(&self, experiment: &Experiment) -> f64 {
        let of_model = self.factors.iter().find(|(model, _)| *model == experiment.model).or(self.factors.first());
        of_model.map_or(1.0, |(_, factor)| *factor)
    }

    fn row(&mut self, row: &Row) -> Result<PaperRow, Failure> {
        let mut holds = None;
        let (mut predicted, mut bound) = (None, None);
        match &row.quantity {
            None => {}
            Some(Quantity::Computed(computed)) => predicted = Some(computed.value()?),
            Some(Quantity::Order { cases, grows, per_image }) => holds = Some(self.order(cases, *grows, *per_image)?),
            Some(Quantity::TunedLearners) => predicted = Some(f64::from(self.tuned(&row.at)?)),
            Some(quantity) => {
                let at = self.figure(&row.at)?;
                predicted = Some(self.value(quantity, &at)?);
                bound = Some(at.bound);
            }
        }
        let predicted = predicted.map(|value| value / row.unit.factor);
        let both = predicted.zip(row.published);
        holds = both.filter(|_| row.at_most).map(|(ours, most)| ours <= most).or(holds);
        let error_pct = both.filter(|_| !row.at_most).map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0);
        Ok(PaperRow {
            paper: self.paper.name.clone(),
            row: row.name.clone(),
            says: row.says.clone(),
            cite: row.cite.clone(),
            published: row.published,
            predicted,
            unit: row.unit.name.to_owned(),
            error_pct,
            holds,
            mark: row.mark.map(|mark| mark.to_string()),
            counted: row.mark.is_none(),
            bound,
        })
    }

    /// The quantity in seconds, images per second, or as a number.
    fn value(&mut self, quantity: &Quantity, at: &Figure) -> Result<f64, Failure> {
        Ok(match quantity {
            // A step takes a whole global batch; what is left over of an epoch is dropped.
            Quantity::Time { epochs, samples } => epochs * (samples / at.global_batch as f64).floor() * at.step_time_s,
            Quantity::StepTime => at.step_time_s,
            Quantity::TaskTime => at.task_time_s,
            Quantity::Throughput => at.images_per_s,
            Quantity::Speedup { over } => at.images_per_s / self.figure(over)?.images_per_s,
            Quantity::Slowdown { over } => at.step_time_s / self.figure(over)?.step_time_s,
            Quantity::Efficiency { over } => {
                let over = self.figure(over)?;
                (at.images_per_s / f64::from(at.ranks)) / (over.images_per_s / f64::from(over.ranks))
            }
            Quantity::Order { .. } | Quantity::TunedLearners | Quantity::Computed(_) => {
                unreachable!("told apart before")
            }
        })
    }

    /// Learners on each device that the auto-tuner ends with, on predictions of each number.
    fn tuned(&mut self, experiment: &Experiment) -> Result<u32, Failure> {
        let (site, factor) = (self.site(experiment)?, self.factor(experiment));
        let costs = Scaled::new(site.costs.as_ref(), factor);
        let setup = setup(experiment, &site)?;
        let (chosen, _) = tune::predicted(&first(experiment)?, experiment, &site.cluster, &costs, &setup)?;
        Ok(chosen.learners)
    }

    /// Whether a step, or an image, takes longer from configuration to configuration of each case, and more so from case to case.
    fn order(&mut self, cases: &[Vec<Experiment>], grows: bool, per_image: bool) -> Result<bool, Failure> {
        let mut spread = 0.0;
        for case in cases {
            let mut times = Vec::new();
            for of in case {
                let figure = self.figure(of)?;
                times.push(if per_image { 1.0 / figure.images_per_s } else { figure.step_time_s });
            }
            let rises = times.windows(2).all(|pair| pair[0] < pair[1]);
            let of_case = times[times.len() - 1] / times[0];
            if !rises || (grows && of_case <= spread) {
                return Ok(false);
            }
            spread = of_case;
        }
        Ok(true)
    }
}

/// Seconds of one micro-batch's load, forward and backward passes, the mean over all of a run.
fn task_time_s(predicted: &Predicted) -> f64 {
    let program = &predicted.program;
    let (mut busy_s, mut batches) = (0.0, 0);
    for (_, role, task, total) in predicted.prediction.timeline.totals(program).iter() {
        match program.roles[role].tasks[task].op {
            Op::Load { .. } => (busy_s, batches) = (busy_s + total.busy_s(), batches + total.runs),
            Op::Compute { .. } => busy_s += total.busy_s(),
            _ => {}
        }
    }
    busy_s / batches.max(1) as f64
}

/// The first configuration, which is the only one that a row speaks of.
fn first(experiment: &Experiment) -> Result<crate::experiment::Configuration, Failure> {
    let message = "has no configuration: check ranks and batch";
    let none = || InputError::new("experiment", &experiment.model, message);
    Ok(experiment.configurations()?.into_iter().next().ok_or_else(none)?)
}

/// Messages share links; exchanges are rounded up to equal parts where ranks then fold.
fn setup(experiment: &Experiment, site: &Site) -> Result<Setup, InputError> {
    let mut setup = Setup::of(experiment, site, NetworkModel::MaxMin)?;
    setup.options.fold = FoldRule::Padded;
    Ok(setup)
}

/// Mean and worst error over the rows that count, and the orderings.
fn summary(rows: &[PaperRow]) -> Vec<String> {
    let counted = || rows.iter().filter(|row| row.counted).filter_map(|row| Some((row, row.error_pct?.abs())));
    let mut notes = Vec::new();
    if let Some((worst, error)) = counted().max_by(|a, b| a.1.total_cmp(&b.1)) {
        let mean = counted().map(|(_, error)| error).sum::<f64>() / counted().count() as f64;
        let count = counted().count();
        let row = &worst.row;
        notes.push(format!("{count} rows count: mean error {mean:.1} %, worst {error:.1} % ({row})"));
    }
    let orderings: Vec<bool> = rows.iter().filter_map(|row| row.holds).collect();
    if !orderings.is_empty() {
        let right = orderings.iter().filter(|holds| **holds).count();
        notes.push(format!("{right} of {} orderings hold", orderings.len()));
    }
    notes
}
