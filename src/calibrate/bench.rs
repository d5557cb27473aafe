//! Repeats single operations on one core or on all at once, with the caches in the state that a step leaves.
//!
//! A loop over one layer would find everything in the nearest cache and promise too much: in a step, other layers run in
//! between. So the operations of a model take turns, in another random order each time, and every one is timed by itself.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lockstep_models::median;
use lockstep_sim::Interval;

use super::interval::interval;

/// Memory that belongs to nobody; walking over it empties the nearest caches of all else.
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

/// All threads leave together: spinning, so that none wakes late.
pub(super) struct Gate {
    arrived: AtomicUsize,
    threads: usize,
}

impl Gate {
    pub(super) fn new(threads: usize) -> Gate {
        Gate { arrived: AtomicUsize::new(0), threads }
    }

    pub(super) fn pass(&self) {
        let ticket = self.arrived.fetch_add(1, Ordering::AcqRel);
        let full = (ticket / self.threads + 1) * self.threads;
        while self.arrived.load(Ordering::Acquire) < full {
            std::hint::spin_loop();
        }
    }
}

/// What an operation takes alone, and how many times longer when every core does it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    pub(super) seconds: Interval,
    pub(super) slowdown: f64,
}

/// Passes on one core, and as many on all.
const PASSES: usize = 4;

/// Times `operations` numbered tasks on 1 and on `cores` threads, `repetitions` times in each of several passes. `make` builds a thread's own state; `prepare` brings the
/// caches into place, `run` is what is timed.
pub(super) fn measure<S>(
    cores: usize,
    operations: usize,
    repetitions: usize,
    make: impl Fn() -> S + Sync,
    prepare: impl Fn(&mut S, usize) + Sync,
    run: impl Fn(&mut S, usize) + Sync,
) -> Vec<Figure> {
    let on = |threads: usize| -> Vec<Vec<Vec<f64>>> {
        let gate = Gate::new(threads);
        let (gate, make, prepare, run) = (&gate, &make, &prepare, &run);
        std::thread::scope(|scope| {
            let thread = |core: usize| {
                scope.spawn(move || {
                    lockstep_exec::pin(core, 1);
                    let mut state = make();
                    let mut times = vec![Vec::with_capacity(repetitions); operations];
                    for repetition in 0..=repetitions {
                        for operation in shuffled(operations, repetition as u64) {
                            prepare(&mut state, operation);
                            gate.pass();
                            let start = Instant::now();
                            run(&mut state, operation);
                            times[operation].push(start.elapsed().as_secs_f64());
                        }
                    }
                    for times in &mut times {
                        times.remove(0); // the first fills caches and pages
                    }
                    times
                })
            };
            let threads: Vec<_> = (0..threads).map(thread).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    };
    // A machine's speed drifts within seconds: both kinds of passes take turns, so that they see the same of it.
    let mut alone: Vec<Vec<f64>> = vec![Vec::new(); operations];
    let mut together = alone.clone();
    let collect = |into: &mut Vec<Vec<f64>>, threads: usize| {
        for (operation, times) in on(threads).into_iter().flat_map(|thread| thread.into_iter().enumerate()) {
            into[operation].extend(times);
        }
    };
    for _ in 0..PASSES {
        collect(&mut alone, 1);
        collect(&mut together, cores);
    }
    (0..operations)
        .map(|operation| {
            let seconds = interval(alone[operation].clone());
            let all = std::mem::take(&mut together[operation]);
            Figure { seconds, slowdown: (median(all) / seconds.value).max(1.0) }
        })
        .collect()
}

/// The numbers below `count` in an order that `seed` decides (Fisher-Yates over SplitMix64): the same on every thread.
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

    #[test]
    fn an_order_holds_every_operation_once() {
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
        let figures = measure(2, 3, 5, || 0u64, |_, _| (), |state, operation| *state += operation as u64);
        assert_eq!(figures.len(), 3);
        assert!(figures.iter().all(|figure| figure.slowdown >= 1.0 && figure.seconds.low <= figure.seconds.high));
    }
}
