//! `Quiet`: detects when the cores of this machine change their speed, and repeats disturbed measurements.
//!
//! On shared machines a neighbour on the same core halves its speed for seconds, and a hypervisor maps several cores to
//! one for a while; no system counter shows either. So a reference benchmark is timed on all cores at once (a pulse)
//! before and after each measurement, and a measurement at another speed than the calibration is repeated.
//!
//! Other programs of this machine are told apart from its speed: a pulse's rounds in which a thread was preempted do not
//! count for the speed, and do count for whether work that takes many time slices would be disturbed now.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockstep_models::median;
use lockstep_report::failure::Failure;

use crate::host::Cores;
use crate::launch::Launch;
use crate::stopwatch::{Lap, Reference, Stopwatch};

/// A pulse this many times longer than usual indicates a disturbance: those of a quiet machine spread less.
pub(crate) const TOLERANCE: f64 = 1.15;
/// Total time to wait for a quiet machine and to repeat what was disturbed, over a calibration or a comparison, where none
/// is given.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Interval between checks of a disturbed machine.
const PAUSE: Duration = Duration::from_millis(100);
/// Pulses for checking whether the machine is as fast as it was.
const LOOKS: usize = 20;
/// Products in a pulse of one core, about half a millisecond.
const PRODUCTS: usize = 3;
/// Rounds of which a pulse is the median.
const PULSES: usize = 5;
/// Attempts at a pulse without a preemption.
const ATTEMPTS: usize = 4;

/// The ratio of two times, the longer to the shorter.
fn apart(one: f64, other: f64) -> f64 {
    (one / other).max(other / one)
}

/// The pulses of this machine.
pub struct Quiet {
    cores: Cores,
    /// Seconds of all pulses so far, without preempted rounds, ascending.
    seen: Vec<f64>,
    /// Such pulses since [`Quiet::renewed`].
    now: Vec<f64>,
    /// The pulse at the measurement with which this one is compared.
    earlier: Option<f64>,
    /// Total time that a measurement may wait and repeat.
    patience: Duration,
    /// What is left of it.
    rest: Duration,
}

impl Quiet {
    /// Without any pulse yet; `cores` are pulsed at once. A measurement waits for a quiet machine and repeats what
    /// was disturbed for at most `patience` in total.
    pub fn new(cores: Cores, patience: Duration) -> Quiet {
        Quiet { cores, seen: Vec::new(), now: Vec::new(), earlier: None, patience, rest: patience }
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
        Quiet { rest: self.patience, now: Vec::new(), earlier: Some(then_s), ..self }
    }

    /// Starts a new measurement at the speed of this one, with the full patience; earlier pulses stay known.
    pub fn renewed(self) -> Quiet {
        let earlier = self.pulse_s();
        Quiet { rest: self.patience, now: Vec::new(), earlier, ..self }
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
    pub fn measure<T, E>(&mut self, trials: usize, measure: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
        self.measure_by(Pulse::lasting, trials, measure)
    }

    /// As [`Quiet::measure`], for work that itself leaves out what it did while preempted: other programs that share the
    /// cores are then no reason to wait.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn measure_marked<T, E>(
        &mut self,
        trials: usize,
        measure: impl FnMut() -> Result<T, E>,
    ) -> Result<(T, f64), E> {
        self.measure_by(Pulse::speed, trials, measure)
    }

    fn measure_by<T, E>(
        &mut self,
        of: fn(&Pulse) -> f64,
        trials: usize,
        mut measure: impl FnMut() -> Result<T, E>,
    ) -> Result<(T, f64), E> {
        least_disturbed(trials, || {
            let (before, begun) = (self.settle(of), Instant::now());
            let value = measure()?;
            let off = self.off_since(of, before);
            Ok((value, off, Quiet::disturbed(off) && self.spend(begun.elapsed())))
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
            let before = launch.first(|| Ok(self.settle(Pulse::lasting)))?;
            let begun = Instant::now();
            let value = measure(launch)?;
            let since = |before| self.off_since(Pulse::lasting, before);
            let off = launch.first(|| Ok(before.map_or(1.0, since)))?.unwrap_or(1.0);
            let again = Quiet::disturbed(off) && self.spend(begun.elapsed());
            Ok((value, off, launch.maximum(u32::from(again)) != 0))
        })
    }

    /// Whether `off`, as returned by [`Quiet::measure`], indicates a disturbance.
    pub fn disturbed(off: f64) -> bool {
        off > TOLERANCE
    }

    /// Takes time that was spent in vain from what is left; returns whether any is left.
    pub(crate) fn spend(&mut self, vain: Duration) -> bool {
        self.rest = self.rest.saturating_sub(vain);
        !self.rest.is_zero()
    }

    /// Waits for the usual speed until patience runs out; returns the last pulse.
    fn settle(&mut self, of: fn(&Pulse) -> f64) -> f64 {
        loop {
            let pulse = of(&self.pulse());
            if !Quiet::disturbed(self.off(pulse)) || self.rest.is_zero() {
                return pulse;
            }
            std::thread::sleep(PAUSE);
            self.spend(PAUSE);
        }
    }

    /// The factor of a pulse from the speed of the earlier measurement, or from the usual one.
    fn off(&self, pulse: f64) -> f64 {
        self.earlier.map_or_else(|| pulse / self.usual(), |earlier| apart(pulse, earlier))
    }

    /// The larger factor of a pulse before a measurement and of one now.
    fn off_since(&mut self, of: fn(&Pulse) -> f64, before: f64) -> f64 {
        let after = of(&self.pulse());
        self.off(before).max(self.off(after))
    }

    /// The pulse of the quiet machine: the lower quartile, since disturbances only add time.
    fn usual(&self) -> f64 {
        self.seen[self.seen.len() / 4]
    }

    /// A pulse now.
    fn pulse(&mut self) -> Pulse {
        let pulse = pulse(&self.cores);
        let speed = pulse.speed();
        let at = self.seen.partition_point(|seen| *seen < speed);
        self.seen.insert(at, speed);
        self.now.push(speed);
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

/// Seconds of the reference benchmark, on all cores at once.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pulse {
    /// Median of all rounds.
    lasting: f64,
    /// Median of the rounds in which no thread was preempted.
    speed: f64,
}

impl Pulse {
    fn lasting(&self) -> f64 {
        self.lasting
    }

    fn speed(&self) -> f64 {
        self.speed
    }

    /// Of the rounds' seconds, with whether a thread was preempted; where each was, the shortest is nearest to the speed.
    fn of(rounds: &[(f64, bool)]) -> Pulse {
        let seconds = || rounds.iter().map(|(seconds, _)| *seconds);
        let quiet: Vec<f64> = rounds.iter().filter(|(_, preempted)| !preempted).map(|(seconds, _)| *seconds).collect();
        let shortest = || seconds().fold(f64::INFINITY, f64::min);
        let speed = if quiet.is_empty() { shortest() } else { median(quiet) };
        Pulse { lasting: median(seconds().collect()), speed }
    }
}

/// A pulse, each of whose rounds is that of the slowest core; more rounds where threads are preempted.
fn pulse(on: &Cores) -> Pulse {
    let mut rounds: Vec<(f64, bool)> = Vec::new();
    for _ in 0..ATTEMPTS {
        rounds.extend(beats(on));
        if rounds.iter().filter(|(_, preempted)| !preempted).count() > PULSES / 2 {
            break;
        }
    }
    Pulse::of(&rounds)
}

/// Seconds of [`PULSES`] rounds on the slowest core, and whether a thread was preempted in them.
fn beats(on: &Cores) -> Vec<(f64, bool)> {
    let cores = on.count();
    let arrived = AtomicUsize::new(0);
    let pins = on.pins(cores);
    let (arrived, pins) = (&arrived, &pins);
    let beat = move |core: usize| {
        let _bound = pins.bind(core);
        let mut reference = Reference::new();
        (0..=PULSES)
            .map(|round| {
                arrived.fetch_add(1, Ordering::AcqRel);
                while arrived.load(Ordering::Acquire) < (round + 1) * cores {
                    std::hint::spin_loop();
                }
                let watch = Stopwatch::start();
                (0..PRODUCTS).for_each(|_| reference.run());
                watch.stop()
            })
            .collect::<Vec<Lap>>()
    };
    let beats: Vec<Vec<Lap>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || beat(core))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let slowest = |round: usize| {
        let laps = || beats.iter().map(|beat| beat[round]);
        (laps().map(|lap| lap.seconds).fold(0.0, f64::max), laps().any(|lap| lap.is_interrupted()))
    };
    // The first one warms up.
    (1..=PULSES).map(slowest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_disturbed_trial_is_used() {
        // Times of pulses vary; only the bookkeeping can be tested.
        let mut quiet = Quiet::new(Cores::of(1), Duration::ZERO);
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
            let mut quiet = Quiet::new(Cores::of(1), Duration::ZERO).since(earlier);
            let before = quiet.settle(Pulse::speed);
            quiet.off_since(Pulse::speed, before)
        };
        assert!(Quiet::disturbed(off(1e3)) && Quiet::disturbed(off(1e-9)));
    }

    #[test]
    fn preempted_rounds_do_not_count_for_the_speed() {
        let rounds = [(1.0, false), (9.0, true), (2.0, false), (9.0, true), (3.0, false), (9.0, true), (9.0, true)];
        assert_eq!(Pulse::of(&rounds), Pulse { lasting: 9.0, speed: 2.0 });
        assert_eq!(Pulse::of(&[(4.0, true), (3.0, true), (5.0, true)]), Pulse { lasting: 4.0, speed: 3.0 });
    }
}
