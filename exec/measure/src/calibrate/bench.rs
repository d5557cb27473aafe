//! Times single operations on one core and on all cores at once, with caches in the state that a training step leaves.
//!
//! A loop over one layer would find everything in the nearest cache and be too optimistic: in a step, other layers run
//! in between. So the operations of a model are interleaved, in a new random order each time, and each is timed alone.

use std::convert::Infallible;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use lockstep_models::median;
use lockstep_models::profile::{Interval, NoiseTrace};

use super::interval::interval;
use crate::host::Cores;
use crate::quiet::Quiet;

/// Unrelated memory; walking over it evicts everything else from the nearest caches.
pub(super) struct Elsewhere {
    cells: Vec<f32>,
}

impl Elsewhere {
    pub(super) fn new(bytes: usize) -> Elsewhere {
        Elsewhere { cells: vec![1.0; bytes / 4] }
    }

    /// Reads and writes every cache line.
    pub(super) fn walk(&mut self) {
        for cell in self.cells.iter_mut().step_by(16) {
            *cell *= 1.000_001;
        }
        black_box(&self.cells);
    }
}

/// Results of `work` on each of `parts`, in a thread each at the same time.
pub(super) fn at_once<P: Send, T: Send>(parts: Vec<P>, work: impl Fn(P) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// A spinning barrier: all threads leave together, without wake-up delays.
pub(super) struct Gate {
    arrived: AtomicUsize,
    threads: usize,
    /// Whether a thread has panicked, so that others would wait for ever.
    broken: AtomicBool,
}

impl Gate {
    pub(super) fn new(threads: usize) -> Gate {
        Gate { arrived: AtomicUsize::new(0), threads, broken: AtomicBool::new(false) }
    }

    /// Waits for the other threads.
    ///
    /// # Panics
    /// When one of them has panicked.
    pub(super) fn pass(&self) {
        let ticket = self.arrived.fetch_add(1, Ordering::AcqRel);
        let full = (ticket / self.threads + 1) * self.threads;
        while self.arrived.load(Ordering::Acquire) < full {
            assert!(!self.broken.load(Ordering::Acquire), "another thread that is measured has panicked");
            std::hint::spin_loop();
        }
    }
}

/// Releases the other threads when this one panics.
struct Breaks<'g>(&'g Gate);

impl Drop for Breaks<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Release);
        }
    }
}

/// The time of an operation alone, and its slowdown when every core runs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    pub(super) seconds: Interval,
    pub(super) slowdown: f64,
}

/// Passes on one core, and as many on all.
const PASSES: usize = 30;
/// For sets with long passes: as many passes as fit into this time, but no fewer than `FEWEST`.
const BUDGET: Duration = Duration::from_secs(20);
const FEWEST: usize = 6;
/// Attempts at a disturbed pass.
const TRIALS: usize = 4;
/// Seconds of work in a slice of the noise trace: a fraction of a small step.
const SLICE_S: f64 = 250e-6;

/// The operations of one thread in order, each with its seconds.
type Log = Vec<(usize, f64)>;

/// One pass on the given number of threads; returns each thread's log.
type Pass<'a> = dyn Fn(&Cores, usize) -> Vec<Log> + 'a;

/// Numbered operations to interleave, on several threads at once.
pub(super) struct Turns<'a> {
    operations: usize,
    pass: Box<Pass<'a>>,
}

impl<'a> Turns<'a> {
    /// `operations` tasks, each `repetitions` times in a pass. `make` builds a thread's own state; `prepare` sets the
    /// caches' contents; `run` is timed. A panic in any of them is propagated to the caller, and there is no figure
    /// then.
    pub(super) fn new<S>(
        operations: usize,
        repetitions: usize,
        make: impl Fn() -> S + Sync + 'a,
        prepare: impl Fn(&mut S, usize) + Sync + 'a,
        run: impl Fn(&mut S, usize) + Sync + 'a,
    ) -> Turns<'a> {
        let pass = move |cores: &Cores, threads: usize| -> Vec<Log> {
            let (gate, pins) = (Gate::new(threads), cores.pins(threads));
            let (pins, gate, make, prepare, run) = (&pins, &gate, &make, &prepare, &run);
            std::thread::scope(|scope| {
                let thread = |core: usize| {
                    scope.spawn(move || {
                        let (_bound, _breaks) = (pins.bind(core), Breaks(gate));
                        let mut state = make();
                        let mut log = Log::with_capacity((repetitions + 1) * operations);
                        for repetition in 0..=repetitions {
                            for operation in shuffled(operations, repetition as u64) {
                                prepare(&mut state, operation);
                                gate.pass();
                                let start = Instant::now();
                                run(&mut state, operation);
                                log.push((operation, start.elapsed().as_secs_f64()));
                            }
                        }
                        log.drain(..operations); // the first round fills caches and pages
                        log
                    })
                };
                let threads: Vec<_> = (0..threads).map(thread).collect();
                let join =
                    |thread: ScopedJoinHandle<'_, Log>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                threads.into_iter().map(join).collect()
            })
        };
        Turns { operations, pass: Box::new(pass) }
    }
}

#[cfg(test)]
impl Turns<'_> {
    /// Number of operations.
    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    /// Runs one pass on one core; returns how many operations were timed.
    pub(super) fn once(&self, cores: &Cores) -> usize {
        let log: std::collections::BTreeSet<usize> = (self.pass)(cores, 1)[0].iter().map(|(of, _)| *of).collect();
        log.len()
    }
}

/// Measures each of `sets` on one and on all of the cores of `quiet`, with the noise observed.
///
/// A machine's speed drifts within seconds, so the passes of all sets alternate: all see the same drift.
pub(super) fn measure(sets: &[Turns], quiet: &mut Quiet) -> Vec<(Vec<Figure>, NoiseTrace)> {
    let cores = *quiet.cores();
    let all = cores.count();
    let mut logs: Vec<[Vec<Log>; 2]> = sets.iter().map(|_| [vec![Log::new()], vec![Log::new(); all]]).collect();
    let mut spent = vec![Duration::ZERO; sets.len()];
    for pass in 0..PASSES {
        for ((set, logs), spent) in sets.iter().zip(&mut logs).zip(&mut spent) {
            if pass >= FEWEST && *spent > BUDGET {
                continue;
            }
            let begun = Instant::now();
            let both = || Ok::<_, Infallible>([(set.pass)(&cores, 1), (set.pass)(&cores, all)]);
            let Ok((passes, _)) = quiet.measure(TRIALS, both);
            for (all, log) in logs.iter_mut().flatten().zip(passes.into_iter().flatten()) {
                all.extend(log);
            }
            *spent += begun.elapsed();
        }
    }
    sets.iter().zip(&logs).map(|(set, [alone, together])| evaluate(set.operations, alone, together)).collect()
}

/// The figures of the operations, and the noise, from the logs of one thread and of all.
fn evaluate(operations: usize, alone: &[Log], together: &[Log]) -> (Vec<Figure>, NoiseTrace) {
    let times = |logs: &[Log], operation: usize| -> Vec<f64> {
        logs.iter().flatten().filter(|(other, _)| *other == operation).map(|(_, seconds)| *seconds).collect()
    };
    let intervals: Vec<Interval> = (0..operations).map(|operation| interval(times(alone, operation))).collect();
    let medians: Vec<f64> = (0..operations).map(|operation| median(times(together, operation))).collect();
    let figure = |(seconds, together): (&Interval, &f64)| Figure {
        seconds: *seconds,
        slowdown: (together / seconds.value).max(1.0),
    };
    let values: Vec<f64> = intervals.iter().map(|interval| interval.value).collect();
    let noise = NoiseTrace {
        slice_s: SLICE_S,
        alone: slices(&alone[0], &values),
        together: together.iter().map(|log| slices(log, &medians)).collect(),
    };
    (intervals.iter().zip(&medians).map(figure).collect(), noise)
}

/// The slowdown of a log's work relative to its medians (one per operation), in slices of equal median time; an
/// incomplete last slice is dropped.
fn slices(log: &Log, medians: &[f64]) -> Vec<f32> {
    let mut slices = Vec::new();
    let (mut work, mut taken) = (0.0, 0.0);
    for (operation, seconds) in log {
        let (mut left, factor) = (medians[*operation], seconds / medians[*operation]);
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

/// The numbers below `count`, shuffled by `seed` (Fisher-Yates over SplitMix64): the same on every thread.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (random() % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation that panics, on one thread or on all, leaves neither figures nor waiting threads.
    #[test]
    fn a_panic_gives_no_figure() {
        for all in [false, true] {
            let first = AtomicBool::new(true);
            let run = |(): &mut (), _| assert!(!all && !first.swap(false, Ordering::AcqRel), "a fault");
            let turns = Turns::new(2, 1, || (), |(), _| {}, run);
            let cores = Cores::of(2);
            let pass = std::panic::AssertUnwindSafe(|| (turns.pass)(&cores, 2));
            assert!(std::panic::catch_unwind(pass).is_err());
        }
    }

    #[test]
    fn an_order_has_every_operation_once() {
        for seed in 0..50 {
            let mut order = shuffled(7, seed);
            assert_ne!(order, shuffled(7, seed + 1));
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4, 5, 6]);
        }
        assert!(shuffled(0, 1).is_empty());
    }

    #[test]
    fn slices_by_hand() {
        // Operations of a half and of two slices: 0.5 at factor 2 and 0.5 of the 2 at 1, then 1 at 1, then 0.5 left
        // over.
        let medians = [0.5 * SLICE_S, 2.0 * SLICE_S];
        let log = vec![(0, 1.0 * SLICE_S), (1, 2.0 * SLICE_S)];
        assert_eq!(slices(&log, &medians), [1.5, 1.0]);
    }

    #[test]
    fn every_operation_is_timed_alone_and_together() {
        let spin = |state: &mut u64, operation: usize| {
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < SLICE_S * (1 + operation) as f64 {
                *state += 1;
            }
        };
        let turns = Turns::new(3, 2, || 0u64, |_, _| (), spin);
        let (figures, noise) = measure(&[turns], &mut Quiet::new(Cores::of(2))).remove(0);
        assert_eq!((figures.len(), noise.together.len(), noise.fault()), (3, 2, None));
        assert!(figures.iter().all(|figure| figure.slowdown >= 1.0 && figure.seconds.low <= figure.seconds.high));
    }
}
