//! `Quiet`: tells a machine that works undisturbed from one whose cores somebody else slows down.
//!
//! On shared machines a neighbour on the same core halves its speed for seconds, and no counter of the system shows it.
//! So a fixed piece of arithmetic is timed on all cores at once, before and after everything that is measured; what ran
//! on a machine slower than it has been before is measured again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockstep_exec::device::cpu::{ChainLayer, Kernel, Mode, Threads};
use lockstep_models::{Dense, Layer, Shape, median};

use crate::host::Cores;

/// A pulse this many times longer than usual is a disturbed one: quiet ones spread less.
const TOLERANCE: f64 = 1.15;
/// How long one may wait for a quiet machine, over a calibration or a comparison.
const PATIENCE: Duration = Duration::from_secs(45);
/// Between two looks at a disturbed machine.
const PAUSE: Duration = Duration::from_millis(100);
/// Pulses that tell whether the machine is as fast as it was.
const LOOKS: usize = 20;
/// Products in a pulse of one core, about half a millisecond.
const PRODUCTS: usize = 3;
/// Pulses whose median counts.
const PULSES: usize = 5;
/// Width of the layer and samples in the batch: weights come from the cache that cores share, where neighbours hurt most.
const SIDE: usize = 768;
const SAMPLES: usize = 16;

/// What pulses of this machine take.
pub struct Quiet {
    cores: Cores,
    /// Seconds of all pulses so far, ascending.
    seen: Vec<f64>,
    /// Of what is being done now, and the median of what was done before.
    now: Vec<f64>,
    earlier: Option<f64>,
    /// What is left of [`PATIENCE`].
    patience: Duration,
}

impl Quiet {
    /// Nothing known yet; `cores` are pulsed at once.
    pub fn new(cores: Cores) -> Quiet {
        Quiet { cores, seen: Vec::new(), now: Vec::new(), earlier: None, patience: PATIENCE }
    }

    /// Those that are pulsed.
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// The median of the pulses so far, if there were any.
    pub fn pulse_s(&self) -> Option<f64> {
        (!self.now.is_empty()).then(|| median(self.now.clone()))
    }

    /// Whether the machine runs as fast as when a pulse took `then_s`: its quieter moments count, for disturbances only add.
    pub fn keeps(&mut self, then_s: f64) -> bool {
        (0..LOOKS).for_each(|_| {
            self.pulse();
        });
        let ratio = self.usual() / then_s;
        (1.0 / TOLERANCE..=TOLERANCE).contains(&ratio)
    }

    /// Begins something new that is held against what was done when a pulse took `then_s`.
    pub fn since(self, then_s: f64) -> Quiet {
        Quiet { earlier: Some(then_s), ..self.renewed() }
    }

    /// Begins something new, with all patience: what pulses take is known already.
    pub fn renewed(self) -> Quiet {
        let earlier = (!self.now.is_empty()).then(|| median(self.now));
        Quiet { patience: PATIENCE, now: Vec::new(), earlier, ..self }
    }

    /// How many times longer pulses take than they did before [`Quiet::renewed`]; `None` where nothing came before.
    pub fn drift(&self) -> Option<f64> {
        let earlier = self.earlier.filter(|_| !self.now.is_empty())?;
        Some(median(self.now.clone()) / earlier)
    }

    /// Waits for a quiet machine and calls `measure`, anew if it is quiet no longer, at most `trials` times; the result of
    /// the least disturbed call, with how many times longer than usual its longer pulse took.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn measure<T, E>(&mut self, trials: usize, mut measure: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
        let mut best = None;
        for _ in 0..trials.max(1) {
            let before = self.settle();
            let value = measure()?;
            let slower = before.max(self.pulse()) / self.usual();
            if best.as_ref().is_none_or(|(_, least)| slower < *least) {
                best = Some((value, slower));
            }
            if slower <= TOLERANCE {
                break;
            }
        }
        Ok(best.expect("there was a trial"))
    }

    /// Whether `slower`, as [`Quiet::measure`] returns it, tells of a disturbance.
    pub fn disturbed(slower: f64) -> bool {
        slower > TOLERANCE
    }

    /// The pulse of a machine that is quiet, or that there is no patience left to wait for.
    fn settle(&mut self) -> f64 {
        loop {
            let pulse = self.pulse();
            if pulse <= TOLERANCE * self.usual() || self.patience.is_zero() {
                return pulse;
            }
            std::thread::sleep(PAUSE);
            self.patience = self.patience.saturating_sub(PAUSE);
        }
    }

    /// What a pulse takes on the machine when it is quiet: the lower quartile, since disturbances only add.
    fn usual(&self) -> f64 {
        self.seen[self.seen.len() / 4]
    }

    /// Seconds of a pulse now.
    fn pulse(&mut self) -> f64 {
        let pulse = pulse(&self.cores);
        let at = self.seen.partition_point(|seen| *seen < pulse);
        self.seen.insert(at, pulse);
        self.now.push(pulse);
        pulse
    }
}

/// Median seconds of a few pulses, each that of the slowest core.
fn pulse(on: &Cores) -> f64 {
    let cores = on.count();
    let arrived = AtomicUsize::new(0);
    let pins = on.pins(cores);
    let (arrived, pins) = (&arrived, &pins);
    let beat = move |core: usize| {
        let _bound = pins.bind(core);
        let layer = Layer::Dense(Dense { out_features: SIDE as u32, bias: false });
        let shape = [Shape { channels: SIDE as u32, height: 1, width: 1 }];
        let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shape }], SAMPLES, &Threads::one());
        let (x, w) = (vec![0.5; SIDE * SAMPLES], vec![0.25; SIDE * SIDE]);
        let mut y = vec![0.0; SIDE * SAMPLES];
        (0..=PULSES)
            .map(|round| {
                arrived.fetch_add(1, Ordering::AcqRel);
                while arrived.load(Ordering::Acquire) < (round + 1) * cores {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                (0..PRODUCTS).for_each(|_| kernel.forward(Mode::Evaluate, &[&x], &w, &mut [], &mut y));
                start.elapsed().as_secs_f64()
            })
            .collect::<Vec<f64>>()
    };
    let beats: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || beat(core))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    // The first one warms up.
    median((1..=PULSES).map(|round| beats.iter().map(|beat| beat[round]).fold(0.0, f64::max)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_disturbed_trial_counts() {
        // Pulses take what they take; only the bookkeeping is certain.
        let mut quiet = Quiet::new(Cores::of(1));
        let mut calls = 0;
        let measured: Result<(u32, f64), ()> = quiet.measure(3, || {
            calls += 1;
            Ok(calls)
        });
        let (call, slower) = measured.expect("no trial fails");
        assert!((1..=calls).contains(&call) && slower > 0.0);
        assert!(calls == 1 || calls <= 3 && call <= calls);
        assert_eq!(quiet.measure(2, || Err::<(), _>("broken")), Err("broken"));
        assert!(quiet.seen.is_sorted() && quiet.drift().is_none());
        let mut quiet = quiet.renewed();
        assert_eq!(quiet.measure(1, || Ok::<_, ()>(7)).map(|(value, _)| value), Ok(7));
        assert!(quiet.drift().is_some_and(|drift| drift > 0.0));
        // The same machine, and one that was a thousand times as fast.
        let pulse = quiet.pulse_s().expect("there were pulses");
        assert!(!quiet.keeps(pulse / 1e3) && !quiet.keeps(pulse * 1e3));
        let mut quiet = quiet.since(pulse / 2.0);
        assert!(quiet.drift().is_none() && quiet.measure(1, || Ok::<_, ()>(())).is_ok());
        assert!(quiet.drift().is_some_and(|drift| drift > 0.0));
    }
}
