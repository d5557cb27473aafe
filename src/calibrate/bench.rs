//! Repeats one operation on one core or on all at once, with the caches in the state that a step leaves.
//!
//! Between two runs of a task a step touches the rest of the model; a loop over one task would find everything in the
//! nearest cache and promise too much. So each repetition is preceded by a walk over as much other memory.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lockstep_models::median;
use lockstep_sim::Interval;

use super::interval::interval;

/// Memory that belongs to nobody; walking over it leaves the caches as a step does.
pub(super) struct Elsewhere {
    cells: Vec<f32>,
}

impl Elsewhere {
    pub(super) fn new(bytes: usize) -> Elsewhere {
        Elsewhere { cells: vec![1.0; bytes / 4] }
    }

    /// Reads and writes every cache line of the first `bytes`.
    pub(super) fn walk(&mut self, bytes: usize) {
        let end = (bytes / 4).min(self.cells.len());
        for cell in self.cells[..end].iter_mut().step_by(16) {
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

/// Times `operations` numbered tasks on 1 and on `cores` threads. `make` builds a thread's own state; `prepare` brings the
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
                    // Round-robin over operations: a disturbance of some milliseconds hits a few of each.
                    for _ in 0..=repetitions {
                        for (operation, times) in times.iter_mut().enumerate() {
                            prepare(&mut state, operation);
                            gate.pass();
                            let start = Instant::now();
                            run(&mut state, operation);
                            times.push(start.elapsed().as_secs_f64());
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
    let alone = on(1);
    let together = if cores > 1 { on(cores) } else { alone.clone() };
    (0..operations)
        .map(|operation| {
            let seconds = interval(alone[0][operation].clone());
            let all: Vec<f64> = together.iter().flat_map(|thread| thread[operation].iter().copied()).collect();
            Figure { seconds, slowdown: (median(all) / seconds.value).max(1.0) }
        })
        .collect()
}
