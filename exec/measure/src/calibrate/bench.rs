//! Times single operations on one core and on all cores at once, with caches in the state that a training step leaves.
//!
//! A loop over one layer would find everything in the nearest cache and be too optimistic: in a step, other layers run
//! in between. So the operations of a model are interleaved, in a new random order each time, and each is timed alone.
//! The reference benchmark runs between them, so that each time has the speed of the machine beside it.

use std::convert::Infallible;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use super::samples::{self, Evaluation, FEWEST, Log, Pair, Sample};
use crate::host::Cores;
use crate::quiet::Quiet;
use crate::stopwatch::{Reference, Stopwatch};

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

/// How long a set of operations is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Undisturbed passes on one core, and as many on all.
    pub(super) passes: usize,
    /// For sets with long passes: as many passes as fit into this time, but no fewer than [`FEWEST`].
    pub(super) budget: Duration,
}

impl Effort {
    /// Of layers.
    pub(super) const USUAL: Effort = Effort { passes: 30, budget: Duration::from_secs(10) };
}

/// Where passes are disturbed, more of them, up to this many times the passes and the time.
const MORE: u32 = 3;
/// Attempts at a disturbed pass.
const TRIALS: usize = 4;
/// Work between two runs of the reference benchmark.
const REFERENCE_EVERY_S: f64 = 2e-3;

/// One pass on the given number of threads, with the reference before every n-th operation; returns each thread's
/// log.
type Pass<'a> = dyn Fn(&Cores, usize, usize) -> Vec<Log> + 'a;

/// Numbered operations to interleave, on several threads at once.
pub(super) struct Interleaving<'a> {
    operations: usize,
    pass: Box<Pass<'a>>,
}

impl<'a> Interleaving<'a> {
    /// `operations` tasks, each `repetitions` times in a pass. `make` builds a thread's own state; `prepare` sets the
    /// caches' contents; `run` is timed. A panic in any of them is propagated to the caller, and there is no figure
    /// then.
    pub(super) fn new<S>(
        operations: usize,
        repetitions: usize,
        make: impl Fn() -> S + Sync + 'a,
        prepare: impl Fn(&mut S, usize) + Sync + 'a,
        run: impl Fn(&mut S, usize) + Sync + 'a,
    ) -> Interleaving<'a> {
        let pass = move |cores: &Cores, threads: usize, every: usize| -> Vec<Log> {
            let (gate, pins, begun) = (Gate::new(threads), cores.pins(threads), Instant::now());
            let (pins, gate, make, prepare, run) = (&pins, &gate, &make, &prepare, &run);
            std::thread::scope(|scope| {
                let thread = |core: usize| {
                    scope.spawn(move || {
                        let (_bound, _breaks) = (pins.bind(core), Breaks(gate));
                        let (mut state, mut reference) = (make(), Reference::new());
                        let mut log = Log::new();
                        let timed = |log: &mut Log, operation: usize, work: &mut dyn FnMut()| {
                            gate.pass();
                            let watch = Stopwatch::start();
                            let began_s = watch.began.duration_since(begun).as_secs_f64();
                            work();
                            log.push(Sample { operation, began_s, lap: watch.stop() });
                        };
                        for repetition in 0..=repetitions {
                            if repetition == 1 {
                                log.clear(); // the first round fills caches and pages
                            }
                            for (number, operation) in shuffled(operations, repetition as u64).into_iter().enumerate() {
                                if number % every == 0 {
                                    timed(&mut log, operations, &mut || reference.run());
                                }
                                prepare(&mut state, operation);
                                timed(&mut log, operation, &mut || run(&mut state, operation));
                            }
                        }
                        timed(&mut log, operations, &mut || reference.run());
                        log
                    })
                };
                let threads: Vec<_> = (0..threads).map(thread).collect();
                let join =
                    |thread: ScopedJoinHandle<'_, Log>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                threads.into_iter().map(join).collect()
            })
        };
        Interleaving { operations, pass: Box::new(pass) }
    }
}

#[cfg(test)]
impl Interleaving<'_> {
    /// Number of operations.
    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    /// Runs one pass on one core; returns how many operations were timed.
    pub(super) fn once(&self, cores: &Cores) -> usize {
        let log = &(self.pass)(cores, 1, 1)[0];
        let all: std::collections::BTreeSet<usize> = log.iter().map(|sample| sample.operation).collect();
        all.len() - 1
    }
}

/// The passes of a set of operations so far.
struct Passes<'s, 'a> {
    set: &'s Interleaving<'a>,
    pairs: Vec<Pair>,
    spent: Duration,
    /// Operations between two runs of the reference.
    every: usize,
    /// Whether time is left for more passes because of disturbed ones.
    may_repeat: bool,
    effort: Effort,
}

impl Passes<'_, '_> {
    /// One pass on one core and one on all, waiting for a quiet machine if `waits`.
    fn add(&mut self, cores: &Cores, quiet: &mut Quiet, waits: bool) {
        let (begun, more) = (Instant::now(), self.has_usual());
        let both = || {
            Ok::<_, Infallible>([
                (self.set.pass)(cores, 1, self.every),
                (self.set.pass)(cores, cores.count(), self.every),
            ])
        };
        let Ok((pair, _)) = if waits { quiet.measure(TRIALS, both) } else { quiet.measure_marked(TRIALS, both) };
        if self.pairs.is_empty() {
            self.every = references_every(&pair[0][0]);
        }
        self.pairs.push(pair);
        self.spent += begun.elapsed();
        self.may_repeat = !more || quiet.spend(begun.elapsed());
    }

    /// Whether there are enough passes, or no more may be tried.
    fn is_done(&self) -> bool {
        let quiet = || samples::quiet_pairs(&self.pairs, self.set.operations);
        let budget = self.effort.budget;
        let most = || self.enough(self.pairs.len() / MORE as usize, MORE * budget);
        self.has_usual() && (self.enough(quiet(), budget) || most() || !self.may_repeat)
    }

    /// Whether there are as many passes as a quiet machine needs.
    fn has_usual(&self) -> bool {
        self.enough(self.pairs.len(), self.effort.budget)
    }

    fn enough(&self, passes: usize, budget: Duration) -> bool {
        passes >= self.effort.passes || passes >= FEWEST && self.spent > budget
    }
}

/// The number of operations of a log that take [`REFERENCE_EVERY_S`], on average.
fn references_every(log: &Log) -> usize {
    let mean = log.iter().map(|sample| sample.lap.seconds).sum::<f64>() / log.len().max(1) as f64;
    (REFERENCE_EVERY_S / mean.max(1e-9)).clamp(1.0, log.len().max(1) as f64) as usize
}

/// Measures each of `sets` on one and on all of the cores of `quiet`, with the noise observed.
///
/// A machine's speed drifts within seconds, so the passes of all sets alternate: all see the same drift. Each pass on one
/// core has one on all cores beside it, with which it is compared.
pub(super) fn measure(sets: &[Interleaving], effort: Effort, quiet: &mut Quiet) -> Vec<Evaluation> {
    let cores = *quiet.cores();
    let passes = |set| Passes { set, pairs: Vec::new(), spent: Duration::ZERO, every: 1, may_repeat: true, effort };
    let mut all: Vec<Passes<'_, '_>> = sets.iter().map(passes).collect();
    while all.iter().any(|passes| !passes.is_done()) {
        for passes in all.iter_mut().filter(|passes| !passes.is_done()) {
            // Operations longer than a time slice are always interrupted where cores are shared.
            let waits = passes.pairs.len() >= FEWEST && samples::quiet_pairs(&passes.pairs, passes.set.operations) == 0;
            passes.add(&cores, quiet, waits);
        }
    }
    all.iter().map(|passes| samples::evaluate(passes.set.operations, &passes.pairs)).collect()
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
    use crate::quiet::PATIENCE;

    /// An operation that panics, on one thread or on all, leaves neither figures nor waiting threads.
    #[test]
    fn a_panic_gives_no_figure() {
        for all in [false, true] {
            let first = AtomicBool::new(true);
            let run = |(): &mut (), _| assert!(!all && !first.swap(false, Ordering::AcqRel), "a fault");
            let turns = Interleaving::new(2, 1, || (), |(), _| {}, run);
            let cores = Cores::of(2);
            let pass = std::panic::AssertUnwindSafe(|| (turns.pass)(&cores, 2, 1));
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
    fn every_operation_is_timed_alone_and_together() {
        let spin = |state: &mut u64, operation: usize| {
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < samples::SLICE_S * (1 + operation) as f64 {
                *state += 1;
            }
        };
        let turns = Interleaving::new(3, 2, || 0u64, |_, _| (), spin);
        let Evaluation { figures, noise, .. } =
            measure(&[turns], Effort::USUAL, &mut Quiet::new(Cores::of(2), PATIENCE)).remove(0);
        assert_eq!((figures.len(), noise.together.len(), noise.fault()), (3, 2, None));
        assert!(figures.iter().all(|figure| figure.slowdown >= 1.0 && figure.seconds.low <= figure.seconds.high));
    }
}
