//! Evaluates the times of interleaved operations: which of them were disturbed, the figures of the others, and the noise.
//!
//! A time counts if no thread was preempted meanwhile, if all threads ran it at the same time, and if the reference
//! benchmark, which is timed before and after it, was as fast as usual. So a program that shares the cores, or another
//! virtual machine that slows them down, costs samples and does not change figures.

use lockstep_models::median;
use lockstep_models::profile::{Interval, NoiseTrace};

use super::interval::interval;
use crate::quiet::TOLERANCE;
use crate::stopwatch::Lap;

/// Times of an operation that make a figure, at least; fewer give no 95 % interval.
pub(super) const FEWEST: usize = 6;
/// Pairs of passes, alone and on all cores, that make a slowdown, at least.
const FEWEST_PAIRS: usize = 3;
/// Threads begin an operation together if they begin within this share of its time.
const SPREAD: f64 = 0.1;
/// The same for short operations.
const SPREAD_S: f64 = 2e-6;
/// n cores are no faster than one if the reference takes more than this share of n times as long on all of them.
const NO_FASTER: f64 = 0.85;
/// Pairs of which less is undisturbed show other programs rather than the machine's own noise.
const STEADY: f64 = 0.5;
/// Seconds of work in a slice of the noise trace: a fraction of a small step.
pub(super) const SLICE_S: f64 = 250e-6;

/// One run of an operation, on one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Its number; that of the reference benchmark is the number of operations.
    pub(super) operation: usize,
    /// Seconds from the beginning of the pass to its beginning.
    pub(super) began_s: f64,
    /// Its time.
    pub(super) lap: Lap,
}

/// The runs of one thread in a pass, in order; all threads of a pass run the same.
pub(super) type Log = Vec<Sample>;

/// A pass on one core, and one on all.
pub(super) type Pair = [Vec<Log>; 2];

/// The time of an operation alone, and its slowdown when every core runs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    pub(super) seconds: Interval,
    pub(super) slowdown: f64,
    /// Whether too few times are undisturbed: then the figure is of all, less the time in which other programs ran.
    pub(super) disturbed: bool,
}

/// What pairs of passes show.
pub(super) struct Evaluation {
    /// By operation.
    pub(super) figures: Vec<Figure>,
    /// How durations vary.
    pub(super) noise: NoiseTrace,
    /// Whether all cores together are no faster than one.
    pub(super) no_faster: bool,
}

/// Usual seconds of the reference benchmark, on one core and on all.
type Usual = [f64; 2];

/// The usual reference: the lower quartile of runs without preemption, since disturbances only add time; infinite where
/// none was timed.
fn usual(pairs: &[Pair], operations: usize) -> Usual {
    std::array::from_fn(|side| {
        let mut seconds: Vec<f64> = Vec::new();
        for logs in pairs.iter().map(|pair| &pair[side]) {
            seconds.extend(references(logs, operations).filter(|(_, _, whole)| *whole).map(|(_, seconds, _)| seconds));
        }
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 4).copied().unwrap_or(f64::INFINITY)
    })
}

/// The runs of the reference in a pass: place, seconds on the slowest thread, whether none was interrupted.
fn references(logs: &[Log], operations: usize) -> impl Iterator<Item = (usize, f64, bool)> + '_ {
    let places = (0..logs[0].len()).filter(move |place| logs[0][*place].operation == operations);
    places.map(|place| {
        let laps = || logs.iter().map(|log| log[place].lap);
        (place, laps().map(|lap| lap.seconds).fold(0.0, f64::max), !laps().any(|lap| lap.is_interrupted()))
    })
}

/// For each place in the logs of a pass whether the operation there was undisturbed on all threads.
fn sound(logs: &[Log], operations: usize, usual: f64) -> Vec<bool> {
    // A preempted reference says nothing about the speed.
    let slow: Vec<(usize, bool)> = references(logs, operations)
        .filter(|(_, _, whole)| *whole)
        .map(|(place, seconds, _)| (place, seconds > TOLERANCE * usual))
        .collect();
    let of_place = |place: usize| {
        let next = slow.partition_point(|(other, _)| *other < place);
        let is_slow = |number: Option<usize>| number.and_then(|number| slow.get(number)).is_some_and(|(_, slow)| *slow);
        let whole = logs.iter().all(|log| !log[place].lap.is_interrupted());
        let began = || logs.iter().map(|log| log[place].began_s);
        let spread = began().fold(0.0, f64::max) - began().fold(f64::INFINITY, f64::min);
        let together = spread <= (SPREAD * logs[0][place].lap.seconds).max(SPREAD_S);
        whole && together && !is_slow(Some(next)) && !is_slow(next.checked_sub(1))
    };
    (0..logs[0].len()).map(of_place).collect()
}

/// The number of pairs in which at least half of the runs on each side are undisturbed.
pub(super) fn quiet_pairs(pairs: &[Pair], operations: usize) -> usize {
    let usual = usual(pairs, operations);
    pairs.iter().filter(|pair| sound_share(pair, operations, usual) >= 0.5).count()
}

/// The share of undisturbed runs in a pair, on the side where there are fewer.
fn sound_share(pair: &Pair, operations: usize, usual: Usual) -> f64 {
    let of = |(logs, usual): (&Vec<Log>, f64)| {
        let sound = sound(logs, operations, usual);
        sound.iter().filter(|sound| **sound).count() as f64 / sound.len().max(1) as f64
    };
    pair.iter().zip(usual).map(of).fold(1.0, f64::min)
}

/// The figures of `operations` operations from pairs of passes.
pub(super) fn evaluate(operations: usize, pairs: &[Pair]) -> Evaluation {
    let usual = usual(pairs, operations);
    // For each pair and side the undisturbed times and those of all runs, by operation.
    let times: Vec<[[Vec<Vec<f64>>; 2]; 2]> = pairs
        .iter()
        .map(|pair| std::array::from_fn(|side| by_operation(&pair[side], operations, usual[side])))
        .collect();
    let figures: Vec<Figure> = (0..operations).map(|operation| figure(&times, operation)).collect();
    let alone: Vec<f64> = figures.iter().map(|figure| figure.seconds.value).collect();
    let together: Vec<f64> = figures.iter().map(|figure| figure.seconds.value * figure.slowdown).collect();
    let cores = pairs.first().map_or(1, |pair| pair[1].len());
    // Other programs are no property of the machine; without a pair of which they left most, all that is known is used.
    let mut steady: Vec<&Pair> = pairs.iter().filter(|pair| sound_share(pair, operations, usual) >= STEADY).collect();
    if steady.is_empty() {
        steady = pairs.iter().collect();
    }
    let noise = NoiseTrace {
        slice_s: SLICE_S,
        alone: slices(steady.iter().map(|pair| (&pair[0], 0)), &alone),
        together: (0..cores).map(|core| slices(steady.iter().map(|pair| (&pair[1], core)), &together)).collect(),
    };
    let no_faster = cores > 1 && usual[1] > NO_FASTER * cores as f64 * usual[0];
    Evaluation { figures, noise, no_faster }
}

/// The undisturbed times of each operation in a pass, and of all runs the time in which the thread had its processor.
fn by_operation(logs: &[Log], operations: usize, usual: f64) -> [Vec<Vec<f64>>; 2] {
    let sound = sound(logs, operations, usual);
    let mut times = [vec![Vec::new(); operations], vec![Vec::new(); operations]];
    for log in logs {
        for (Sample { operation, lap, .. }, sound) in log.iter().zip(&sound) {
            if *operation < operations {
                times[1][*operation].push(lap.ran_s());
                if *sound {
                    times[0][*operation].push(lap.seconds);
                }
            }
        }
    }
    times
}

/// The figure of one operation: the median alone, and the median over pairs of how much longer it takes on all cores.
fn figure(times: &[[[Vec<Vec<f64>>; 2]; 2]], operation: usize) -> Figure {
    let of = |which: usize| -> (Vec<f64>, Vec<f64>) {
        let alone = times.iter().flat_map(|[alone, _]| &alone[which][operation]).copied().collect();
        let both = times.iter().map(|[alone, together]| [&alone[which][operation], &together[which][operation]]);
        let both = both.filter(|both| both.iter().all(|times| !times.is_empty()));
        let ratio = |[alone, together]: [&Vec<f64>; 2]| median(together.clone()) / median(alone.clone());
        (alone, both.map(ratio).collect())
    };
    let (quiet, all) = (of(0), of(1));
    let disturbed = quiet.0.len() < FEWEST.min(all.0.len()) || quiet.1.len() < FEWEST_PAIRS.min(all.1.len());
    let (alone, ratios) = if disturbed { all } else { quiet };
    Figure { seconds: interval(alone), slowdown: median(ratios).max(1.0), disturbed }
}

/// The slowdown of a thread's work relative to its medians (one per operation), in slices of equal median time; an
/// incomplete last slice is dropped. `passes` are the logs of a pass and the thread's number in it. Runs during which
/// another program had a processor are left out: they are no property of the machine.
fn slices<'a>(passes: impl Iterator<Item = (&'a Vec<Log>, usize)>, medians: &[f64]) -> Vec<f32> {
    let mut slices = Vec::new();
    let (mut work, mut taken) = (0.0, 0.0);
    let own = |(logs, thread): (&'a Vec<Log>, usize)| {
        let left = |place: &usize| !logs.iter().any(|log| log[*place].lap.is_taken());
        (0..logs[thread].len()).filter(left).map(move |place| &logs[thread][place])
    };
    for Sample { operation, lap, .. } in passes.flat_map(own) {
        let Some(median) = medians.get(*operation) else { continue };
        let (mut left, factor) = (*median, lap.seconds / median);
        while work + left >= SLICE_S {
            let part = SLICE_S - work;
            slices.push(((taken + part * factor) / SLICE_S) as f32);
            left -= part;
            (work, taken) = (0.0, 0.0);
        }
        work += left;
        taken += left * factor;
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(operation: usize, began_s: f64, seconds: f64, away_s: f64) -> Sample {
        Sample { operation, began_s, lap: Lap { seconds, preempted: away_s > 0.0, away_s } }
    }

    /// A pass of two operations of 1 and 2 ms, each after a reference of 0.2 ms, on `threads`; times are multiplied by
    /// `slower`.
    fn pass(threads: usize, slower: f64) -> Vec<Log> {
        let one = [(2, 0.2), (0, 1.0), (2, 0.2), (1, 2.0), (2, 0.2)];
        let mut began = 0.0;
        let log: Log = one
            .iter()
            .map(|(operation, ms)| {
                let seconds = ms * 1e-3 * slower;
                began += seconds;
                sample(*operation, began - seconds, seconds, 0.0)
            })
            .collect();
        vec![log; threads]
    }

    fn close(got: f64, expected: f64) -> bool {
        (got / expected - 1.0).abs() < 1e-9
    }

    #[test]
    fn slices_by_hand() {
        // Operations of a half and of two slices: 0.5 at factor 2 and 0.5 of the 2 at 1, then 1 at 1, then 0.5 left
        // over.
        let medians = [0.5 * SLICE_S, 2.0 * SLICE_S];
        let log = vec![sample(0, 0.0, SLICE_S, 0.0), sample(2, 0.0, 9.0, 0.0), sample(1, 0.0, 2.0 * SLICE_S, 0.0)];
        let slices_of = |logs: Vec<Log>| slices([(&logs, 0)].into_iter(), &medians);
        assert_eq!(slices_of(vec![log.clone()]), [1.5, 1.0]);
        // What ran while another program had one of the cores is left out on both.
        let mut other = log.clone();
        other[0].lap = Lap { seconds: 8e-3, preempted: true, away_s: 7e-3 };
        assert_eq!(slices_of(vec![log.clone(), other.clone()]), [1.0, 1.0]);
        assert_eq!(slices_of(vec![other, log]), [1.0, 1.0]);
    }

    #[test]
    fn disturbed_times_change_no_figure() {
        let quiet: Vec<Pair> = (0..20).map(|_| [pass(1, 1.0), pass(2, 1.5)]).collect();
        let expected = evaluate(2, &quiet);
        let times: Vec<(f64, f64, bool)> =
            expected.figures.iter().map(|of| (of.seconds.value, of.slowdown, of.disturbed)).collect();
        assert!(close(times[0].0, 1e-3) && close(times[1].0, 2e-3) && close(times[1].1, 1.5), "{times:?}");
        assert!(!expected.no_faster && !times[0].2 && quiet_pairs(&quiet, 2) == 20);

        type Disturb = fn(&mut Pair);
        let disturbances: [(&str, Disturb); 4] = [
            ("everything is three times slower, also the reference", |pair| {
                *pair = [pass(1, 3.0), pass(2, 4.5)];
            }),
            ("one of two threads is preempted, so the other is alone", |pair| {
                for place in [1, 3] {
                    pair[1][1][place].lap = Lap { seconds: 9e-3, preempted: true, away_s: 6e-3 };
                    pair[1][0][place].lap.seconds /= 1.5;
                }
            }),
            ("one of two threads begins when the other is done", |pair| {
                for place in [1, 3] {
                    pair[1][0][place].lap.seconds /= 1.5;
                    pair[1][1][place].began_s += pair[1][0][place].lap.seconds;
                }
            }),
            ("the thread that is alone is preempted", |pair| {
                for place in [1, 3] {
                    pair[0][0][place].lap = Lap { seconds: 9e-3, preempted: true, away_s: 6e-3 };
                }
            }),
        ];
        for (name, disturb) in disturbances {
            // In twelve of twenty pairs: medians of all times would follow the disturbance.
            let mut pairs = quiet.clone();
            pairs.iter_mut().take(12).for_each(disturb);
            let got = evaluate(2, &pairs);
            for (got, expected) in got.figures.iter().zip(&expected.figures) {
                assert!(close(got.seconds.value, expected.seconds.value), "{name}: {got:?}");
                assert!(close(got.slowdown, expected.slowdown) && !got.disturbed, "{name}: {got:?}");
            }
            assert_eq!(quiet_pairs(&pairs, 2), if name.starts_with("everything") { 8 } else { 20 }, "{name}");
            // In all of them nothing else is known, and the figures say so, but where even the reference is slower.
            let mut pairs = quiet.clone();
            pairs.iter_mut().for_each(disturb);
            let disturbed = evaluate(2, &pairs).figures.iter().all(|figure| figure.disturbed);
            assert_eq!(disturbed, !name.starts_with("everything"), "{name}");
        }
    }

    /// Two cores on which the reference takes twice as long as on one add nothing.
    #[test]
    fn cores_that_are_no_faster_than_one_are_noticed() {
        let pairs = |slower| -> Vec<Pair> { (0..4).map(|_| [pass(1, 1.0), pass(2, slower)]).collect() };
        assert!(evaluate(2, &pairs(2.0)).no_faster);
        assert!(!evaluate(2, &pairs(1.6)).no_faster);
    }
}
