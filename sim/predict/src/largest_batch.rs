//! Finds the largest batch per rank with which a configuration fits in memory.
//!
//! The programs of other batches are built only for this answer: what one of them refuses, refuses no prediction.

use lockstep_sim::answer::fullest_device;
use lockstep_topology::{Cluster, InputError};

use crate::predicted::{Predicted, optimizer_elements};
use lockstep_experiment::{Configuration, Experiment};

/// More samples than any batch has.
const MOST: u32 = 1 << 24;
/// Guesses before halving.
const GUESSES: u32 = 8;

/// Doublings of a batch in search of one whose multiples can be divided too.
const DOUBLINGS: usize = 16;

/// The largest batch per rank that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LargestBatch {
    /// Its samples; 0 where none fits.
    pub(crate) samples: u32,
    /// The fewest samples that the ranks can divide among them.
    pub(crate) fewest: u32,
}

/// The largest batch per rank with which the fullest device has enough memory; `None` where its memory is not known.
///
/// It is looked for among the multiples of the smallest batch that the ranks can divide, and of which they can divide
/// multiples: some divide few samples by positions, and then only certain numbers of them. Memory is roughly linear in
/// the batch, so the next guess is where the line through the last two batches meets the capacity, and the batch beside
/// it as soon as one of the two is known; after a few guesses the remaining interval is halved. A batch that no program
/// takes does not fit.
pub(crate) fn largest_batch(
    configuration: &Configuration,
    experiment: &Experiment,
    cluster: &Cluster,
    predicted: &Predicted,
) -> Option<LargestBatch> {
    let capacity = predicted.memory.capacity?.0;
    let own = (configuration.job.batch_per_rank, predicted.memory.memory.total());
    let total = |batch: u32| -> Result<u64, InputError> {
        let mut other = configuration.clone();
        other.job.batch_per_rank = batch;
        let program = other.program()?;
        let memory = fullest_device(&program, cluster, &predicted.placement, optimizer_elements(experiment))?;
        Ok(memory.memory.total())
    };
    let known = |batch: u32| if batch == own.0 { Some(own.1) } else { total(batch).ok() };
    let divisors = (1..=own.0).filter(|batch| own.0.is_multiple_of(*batch));
    let doubled = std::iter::successors(Some(own.0), |batch| batch.checked_mul(2)).skip(1).take(DOUBLINGS);
    let mut few = Vec::new();
    let mut of_multiples = None;
    for batch in divisors.chain(doubled) {
        let Some(bytes) = known(batch) else { continue };
        if let Some(triple) = batch.checked_mul(3).and_then(known) {
            of_multiples = Some((batch, [bytes, triple]));
            break;
        }
        few.push((batch, bytes));
    }
    let fewest = few.first().map(|(batch, _)| *batch).or(of_multiples.map(|(batch, _)| batch)).unwrap_or(own.0);
    let of_few = few.iter().rev().find(|(_, bytes)| *bytes <= capacity).map_or(0, |(batch, _)| *batch);
    let samples = of_multiples.map_or(0, |(multiple, [once, thrice])| {
        let of = |count: u32| count.checked_mul(multiple).and_then(known).unwrap_or(u64::MAX);
        let beside = if own.0 == 1 { (2, of(2)) } else { (1, once) };
        let points = if multiple == 1 { [own, beside] } else { [(1, once), (3, thrice)] };
        multiple * most(capacity, points, MOST / multiple, of)
    });
    Some(LargestBatch { samples: samples.max(of_few), fewest })
}

/// The largest number up to `most` of which `bytes` does not exceed `capacity`; `points` are two that are known.
fn most(capacity: u64, mut points: [(u32, u64); 2], most: u32, bytes: impl Fn(u32) -> u64) -> u32 {
    let (mut low, mut high) = (0, most + 1);
    for (count, total) in points {
        if total <= capacity { low = low.max(count) } else { high = high.min(count) }
    }
    for guesses in 0.. {
        if high - low <= 1 || low == most {
            break;
        }
        let slope = (points[1].1 as f64 - points[0].1 as f64) / (f64::from(points[1].0) - f64::from(points[0].0));
        let on_line = f64::from(points[1].0) + (capacity as f64 - points[1].1 as f64) / slope;
        let middle = low + (high - low) / 2;
        let guess = if guesses < GUESSES && on_line.is_finite() { on_line.floor() as u32 } else { middle };
        // Neither end of the interval again.
        let guess = guess.clamp(low + 1, high - 1);
        let point = (guess, bytes(guess));
        if point.1 <= capacity {
            low = guess;
        } else {
            high = guess;
        }
        points = [points[1], point];
    }
    low
}

#[cfg(test)]
mod tests {
    use lockstep_experiment::Experiment;

    use crate::setup::Setup;
    use crate::site::Site;

    /// The row of a small decoder whose samples are split among two ranks, and what is said below it.
    fn row(batch: u32, explain: bool) -> (lockstep_report::PredictedRow, Vec<String>) {
        let text = format!(
            "name = \"e\"\nmodel = \"gpt2:layers=2\"\ncluster = \"dgx-h100\"\nmesh = \"tensor=2\"\n\
             strategy = \"sequence-parallel\"\nbatch_per_rank = {batch}\n"
        );
        let experiment = Experiment::parse("e.toml", &text).unwrap();
        let site = Site::open(&experiment, None).unwrap();
        let setup = Setup { explain, ..Setup::of(&experiment, &site, Default::default()).unwrap() };
        let (mut rows, notes) = crate::rows::rows(&experiment, &site, &setup, |_, _| {}).unwrap();
        (rows.remove(0), notes)
    }

    #[test]
    fn a_batch_that_ranks_cannot_divide_refuses_no_prediction_and_the_largest_is_a_multiple() {
        let (small, _) = row(2, true);
        let largest = small.explanation.unwrap().memory.largest_batch_per_rank.unwrap();
        assert!(largest > 2 && largest.is_multiple_of(2), "{largest}");
        assert_eq!(row(largest, false).0.fits_memory, Some(true));
        let (beyond, notes) = row(largest + 2, false);
        assert_eq!(beyond.fits_memory, Some(false));
        let said = format!("; {largest} samples per rank fit");
        assert!(notes.iter().any(|note| note.contains(&said)), "{notes:?}");
    }
}
