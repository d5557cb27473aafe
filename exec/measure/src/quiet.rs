//! `Quiet`: detects when the cores of this machine change their speed, and repeats disturbed measurements.
//!
//! On shared machines a neighbour on the same core halves its speed for seconds, and a hypervisor maps several cores to
//! one for a while; no system counter shows either. So a reference benchmark is timed on all cores at once (a pulse)
//! before and after each measurement, and a measurement at another speed than the calibration is repeated.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockstep_exec::device::cpu::{ChainLayer, Kernel, Mode, Threads};
use lockstep_models::{Dense, Layer, Shape, median};
use lockstep_report::failure::Failure;

use crate::host::Cores;
use crate::launch::Launch;

/// A pulse this many times longer than usual indicates a disturbance: those of a quiet machine spread less.
const TOLERANCE: f64 = 1.15;
/// Total time to wait for a quiet machine, over a calibration or a comparison.
const PATIENCE: Duration = Duration::from_secs(45);
/// Interval between checks of a disturbed machine.
const PAUSE: Duration = Duration::from_millis(100);
/// Pulses for checking whether the machine is as fast as it was.
const LOOKS: usize = 20;
/// Products in a pulse of one core, about half a millisecond.
const PRODUCTS: usize = 3;
/// Rounds of which a pulse is the median.
const PULSES: usize = 5;
/// Width of the layer and samples in the batch: weights come from the shared cache, where neighbours disturb most.
const SIDE: usize = 768;
const SAMPLES: usize = 16;

/// The ratio of two times, the longer to the shorter.
fn apart(one: f64, other: f64) -> f64 {
    (one / other).max(other / one)
}

/// The pulses of this machine.
pub struct Quiet {
    cores: Cores,
    /// Seconds of all pulses so far, ascending.
    seen: Vec<f64>,
    /// Pulses since [`Quiet::renewed`].
    now: Vec<f64>,
    /// The pulse at the measurement with which this one is compared.
    earlier: Option<f64>,
    /// The rest of [`PATIENCE`].
    patience: Duration,
}

impl Quiet {
    /// Without any pulse yet; `cores` are pulsed at once.
    pub fn new(cores: Cores) -> Quiet {
        Quiet { cores, seen: Vec::new(), now: Vec::new(), earlier: None, patience: PATIENCE }
    }

    /// The cores that are pulsed.
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// The median of the pulses so far, if there were any.
    pub fn pulse_s(&self) -> Option<f64> {
        (!self.now.is_empty()).then(|| median(self.now.clone()))
    }

    /// Whether the machine is as fast as when a pulse took `then_s`, by its quietest moments, since disturbances only
    /// add time.
    pub fn keeps(&mut self, then_s: f64) -> bool {
        (0..LOOKS).for_each(|_| {
            self.pulse();
        });
        apart(self.usual(), then_s) <= TOLERANCE
    }

    /// Starts a new measurement at the speed at which a pulse took `then_s`.
    pub fn since(self, then_s: f64) -> Quiet {
        Quiet { patience: PATIENCE, now: Vec::new(), earlier: Some(then_s), ..self }
    }

    /// Starts a new measurement at the speed of this one, with the full patience; earlier pulses stay known.
    pub fn renewed(self) -> Quiet {
        let earlier = self.pulse_s();
        Quiet { patience: PATIENCE, now: Vec::new(), earlier, ..self }
    }

    /// The slowdown of pulses since [`Quiet::renewed`]; `None` where there were none before.
    pub fn drift(&self) -> Option<f64> {
        Some(self.pulse_s()? / self.earlier?)
    }

    /// Waits for the machine's usual speed and calls `measure`, again if it was disturbed, at most `trials` times.
    /// Returns the result of the least disturbed call, with its factor from the usual speed.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn measure<T, E>(&mut self, trials: usize, mut measure: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
        least_disturbed(trials, || {
            let before = self.settle();
            let value = measure()?;
            let off = self.off_since(before);
            Ok((value, off, Quiet::disturbed(off)))
        })
    }

    /// As [`Quiet::measure`], of work that all processes of a job do together. Each calls it with a `Quiet` of its own,
    /// and that of rank 0's process decides while the others sleep.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn measure_together<T>(
        &mut self,
        trials: usize,
        launch: &mut Launch,
        mut measure: impl FnMut(&mut Launch) -> Result<T, Failure>,
    ) -> Result<(T, f64), Failure> {
        least_disturbed(trials, || {
            let before = launch.first(|| Ok(self.settle()))?;
            let value = measure(launch)?;
            let off = launch.first(|| Ok(before.map_or(1.0, |before| self.off_since(before))))?.unwrap_or(1.0);
            Ok((value, off, launch.maximum(u32::from(Quiet::disturbed(off))) != 0))
        })
    }

    /// Whether `off`, as returned by [`Quiet::measure`], indicates a disturbance.
    pub fn disturbed(off: f64) -> bool {
        off > TOLERANCE
    }

    /// Waits for the usual speed until patience runs out; returns the last pulse.
    fn settle(&mut self) -> f64 {
        loop {
            let pulse = self.pulse();
            if !Quiet::disturbed(self.off(pulse)) || self.patience.is_zero() {
                return pulse;
            }
            std::thread::sleep(PAUSE);
            self.patience = self.patience.saturating_sub(PAUSE);
        }
    }

    /// The factor of a pulse from the speed of the earlier measurement, or from the usual one.
    fn off(&self, pulse: f64) -> f64 {
        self.earlier.map_or_else(|| pulse / self.usual(), |earlier| apart(pulse, earlier))
    }

    /// The larger factor of a pulse before a measurement and of one now.
    fn off_since(&mut self, before: f64) -> f64 {
        let after = self.pulse();
        self.off(before).max(self.off(after))
    }

    /// The pulse of the quiet machine: the lower quartile, since disturbances only add time.
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

/// Calls `trial` until it asks for no other, at most `trials` times; returns the result with the least factor.
fn least_disturbed<T, E>(trials: usize, mut trial: impl FnMut() -> Result<(T, f64, bool), E>) -> Result<(T, f64), E> {
    let mut best = None;
    for _ in 0..trials.max(1) {
        let (value, off, again) = trial()?;
        if best.as_ref().is_none_or(|(_, least)| off < *least) {
            best = Some((value, off));
        }
        if !again {
            break;
        }
    }
    Ok(best.expect("there was a trial"))
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
    fn the_least_disturbed_trial_is_used() {
        // Times of pulses vary; only the bookkeeping can be tested.
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

    #[test]
    fn a_faster_or_slower_machine_is_a_disturbance() {
        let off = |earlier: f64| {
            let mut quiet = Quiet::new(Cores::of(1)).since(earlier);
            quiet.patience = Duration::ZERO;
            let before = quiet.settle();
            quiet.off_since(before)
        };
        assert!(Quiet::disturbed(off(1e3)) && Quiet::disturbed(off(1e-9)));
    }
}
