//! Computes time to accuracy: the number of samples to a target, from tables or logged runs, times the predicted time
//! per sample.
//!
//! Throughput is predicted; the number of samples is not, since it cannot be known without training. It is read where
//! it is known, interpolated for global batches in between, and never extrapolated.

mod logged;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_report::PredictedRow;
use lockstep_topology::{InputError, RECORD, read_text};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Coverage of the intervals of the mean.
const CONFIDENCE: f64 = 0.95;

/// Samples to a target by global batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Convergence {
    /// The model that was trained.
    model: String,
    /// The target, in words.
    target: String,
    /// The source of the figures.
    source: String,
    /// At least one, in any order.
    points: Vec<Point>,
}

/// The figures for one way to train.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    global_batch: u64,
    /// The strategy that it applies to; `None`: to all.
    strategy: Option<String>,
    /// The number of learners per device that it applies to; `None`: to all.
    learners: Option<u32>,
    /// Samples to the target, for each run that reached it.
    samples: Vec<f64>,
    /// Runs that did not reach it.
    missed: u32,
}

/// A number of samples, with a confidence interval of the mean where there are several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Samples {
    mean: f64,
    interval: Option<(f64, f64)>,
}

impl Convergence {
    /// Reads the file at `path`: a table of epochs (TOML), or the report of runs with a target
    /// (`exec run --format json`).
    ///
    /// # Errors
    /// A file that cannot be read or holds no usable figures, with its line.
    pub fn load(path: &Path) -> Result<Convergence, InputError> {
        let file = path.display().to_string();
        let cure = "name a table of epochs or a report of exec run";
        let text = read_text(path, RECORD).map_err(|error| InputError::flag("target", &file, error.with_cure(cure)))?;
        match path.extension().is_some_and(|extension| extension == "json") {
            true => logged::parse(&file, &text),
            false => table::parse(&file, &text),
        }
    }

    /// Fills in the times to the target of `rows`; the notes state their sources, and the batch beyond which a larger
    /// one does not pay.
    pub fn annotate(&self, rows: &mut [PredictedRow]) -> Vec<String> {
        let mut notes = vec![format!("time to accuracy: {} of {}, {}", self.target, self.model, self.source)];
        let mut add = |note: String| {
            if !notes.contains(&note) {
                notes.push(note);
            }
        };
        for row in rows.iter_mut() {
            match self.samples(row) {
                Err(reason) => add(reason),
                Ok(samples) => {
                    let time_s = |samples: f64| samples / row.images_per_s;
                    // The two errors are independent: one of how models learn, one of how long kernels and messages
                    // take.
                    let of_time = row.error_bar_pct.unwrap_or(0.0) / 100.0;
                    let interval = samples.interval.map(|(low, high)| {
                        let reach = |end: f64| (end / samples.mean - 1.0).hypot(of_time);
                        (time_s(samples.mean) * (1.0 - reach(low)).max(0.0), time_s(samples.mean) * (1.0 + reach(high)))
                    });
                    row.steps_to_target = Some((samples.mean / row.setting.global_batch as f64).ceil());
                    row.time_to_target_s = Some(time_s(samples.mean));
                    (row.time_to_target_low_s, row.time_to_target_high_s) = interval.unzip();
                }
            }
        }
        pays(rows).into_iter().for_each(add);
        notes
    }

    /// Samples to the target of a row's configuration, or why they are unknown.
    fn samples(&self, row: &PredictedRow) -> Result<Samples, String> {
        let setting = &row.setting;
        if setting.model != self.model {
            return Err(format!("nothing is known of {} there: no time to accuracy", setting.model));
        }
        let fits = |point: &&Point| {
            point.strategy.as_ref().is_none_or(|strategy| *strategy == setting.strategy)
                && point.learners.is_none_or(|learners| learners == setting.learners)
        };
        let known: BTreeMap<u64, &Point> =
            self.points.iter().filter(fits).map(|point| (point.global_batch, point)).collect();
        let batch = setting.global_batch;
        if let (Some((low, first)), Some((high, second))) =
            (known.range(..=batch).next_back(), known.range(batch..).next())
        {
            // The mean over only the runs that reached the target would be too optimistic.
            if let Some((at, point)) = [(low, first), (high, second)].into_iter().find(|(_, point)| point.missed > 0) {
                let (missed, runs) = (point.missed, point.missed as usize + point.samples.len());
                return Err(format!("global batch {batch}: at {at} {missed} of {runs} runs did not get there"));
            }
            return Ok(between((*low, mean(&first.samples)), (*high, mean(&second.samples)), batch));
        }
        let range = match (known.first_key_value(), known.last_key_value()) {
            (Some((least, _)), Some((most, _))) => format!("known from {least} to {most}"),
            _ => format!("not known for {}, {} learner(s) a device", setting.strategy, setting.learners),
        };
        Err(format!("global batch {batch}: the number of samples to the target is {range}, and not extrapolated"))
    }
}

/// Mean of runs, with Student's interval where there are several.
fn mean(samples: &[f64]) -> Samples {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let interval = reach(samples).map(|reach| ((mean - reach).max(0.0), mean + reach));
    Samples { mean, interval }
}

/// Half the width of Student's 95 % interval for the mean of `values`; `None` for fewer than two.
pub fn reach(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    (values.len() > 1).then(|| {
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        // The distribution requires at least one degree of freedom.
        let student =
            StudentsT::new(0.0, 1.0, count - 1.0).map_or(f64::NAN, |t| t.inverse_cdf((1.0 + CONFIDENCE) / 2.0));
        student * (variance / count).sqrt()
    })
}

/// Interpolates at `batch` between two batches by a power law.
fn between((low, first): (u64, Samples), (high, second): (u64, Samples), batch: u64) -> Samples {
    if low == high {
        return first;
    }
    let log = |batch: u64| (batch as f64).ln();
    let share = (log(batch) - log(low)) / (log(high) - log(low));
    let value = |first: f64, second: f64| first.powf(1.0 - share) * second.powf(share);
    let interval = first.interval.zip(second.interval);
    Samples {
        mean: value(first.mean, second.mean),
        interval: interval.map(|(first, second)| (value(first.0, second.0), value(first.1, second.1))),
    }
}

/// By global batch: the least time to the target in seconds, and its row.
type Series<'a> = BTreeMap<u64, (f64, &'a PredictedRow)>;

/// For the rows of one cluster, strategy and scenario: the global batch that reaches the target first.
fn pays(rows: &[PredictedRow]) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str, Option<&str>), Series<'_>> = BTreeMap::new();
    for row in rows {
        let Some(time_s) = row.time_to_target_s else { continue };
        let setting = &row.setting;
        let key = (row.cluster.as_str(), setting.strategy.as_str(), row.scenario.as_deref());
        let best = groups.entry(key).or_default().entry(setting.global_batch).or_insert((time_s, row));
        if time_s < best.0 {
            *best = (time_s, row);
        }
    }
    let notes_of_groups = groups.into_iter().filter(|(_, batches)| batches.len() > 1).filter_map(|(key, batches)| {
        let (batch, (time_s, best)) = batches.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let (cluster, strategy, scenario) = key;
        let scenario = scenario.map(|scenario| format!(", {scenario}")).unwrap_or_default();
        let first = format!("{cluster}, {strategy}{scenario}: a global batch of {batch} reaches the target first, after {}", time(*time_s));
        Some(match batches.range(batch + 1..).next() {
            None => format!("{first}; the samples that a larger one needs are not known"),
            Some((larger, (later_s, then))) => format!(
                "{first}; a larger one does not pay: with {larger}, throughput is {:.2} times as high and {:.2} times as \
                 many samples are needed, so {}",
                then.images_per_s / best.images_per_s,
                later_s * then.images_per_s / (time_s * best.images_per_s),
                time(*later_s),
            ),
        })
    });
    notes_of_groups.collect()
}

/// `13.2 h`.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        _ if seconds < 120.0 => (seconds, "s"),
        _ if seconds < 7_200.0 => (seconds / 60.0, "min"),
        _ if seconds < 172_800.0 => (seconds / 3_600.0, "h"),
        _ => (seconds / 86_400.0, "days"),
    };
    format!("{value:.3} {unit}")
}

#[cfg(test)]
mod tests;
