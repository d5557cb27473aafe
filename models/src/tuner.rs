//! Auto-tunes how many learners share a device, from throughputs alone (Koliousis et al. 2019, §3.4, Alg. 2).
//!
//! A pure state machine that simulator and executor feed at barriers between iterations. Alg. 2 as printed adds a
//! learner while throughput grows by more than a threshold, takes one away when it falls, and compares with the last
//! figure only. So it may go down to no learner at all; where throughput has a peak it oscillates around it for ever;
//! and where throughput is flat it keeps a learner that has gained nothing. The paper describes its tuner differently:
//! it adds learners "until there is no increase", and "then uses the number of learners that resulted in peak
//! throughput" (§1); on eight GPUs that is two, beyond which throughput "remains relatively constant" (§5.4). So here a
//! device that has gained no more than the threshold returns to the number before and stays there; one learner is the
//! minimum, and a number that does not fit in memory is never asked for.

use serde::{Deserialize, Serialize};

/// Gains of throughput below this share count as none (τ; the paper gives no figure).
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// What was observed with this many learners on each device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Learners by device.
    pub learners: Vec<u32>,
    /// Images per second by device; where all devices are equal only the first is measured.
    pub throughput: Vec<f64>,
}

/// The next number of learners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Another number of learners, to be observed.
    Try(u32),
    /// This number from now on.
    Stay(u32),
}

impl Verdict {
    /// The number of learners.
    pub fn learners(self) -> u32 {
        match self {
            Verdict::Try(learners) | Verdict::Stay(learners) => learners,
        }
    }
}

/// The tuner of one device.
#[derive(Debug, Clone, PartialEq)]
struct Climb {
    threshold: f64,
    /// The most that memory allows.
    most: u32,
    /// Learners and throughput of the observation before.
    before: Option<(u32, f64)>,
    now: Verdict,
}

impl Climb {
    fn observe(&mut self, throughput: f64) {
        let Verdict::Try(learners) = self.now else { return };
        // A device that did nothing has no throughput, whatever the division gave.
        let throughput = if throughput.is_finite() { throughput.max(0.0) } else { 0.0 };
        self.now = match self.before {
            Some((fewer, best)) if throughput - best <= self.threshold * best => Verdict::Stay(fewer),
            _ if learners >= self.most => Verdict::Stay(learners),
            _ => Verdict::Try(learners + 1),
        };
        self.before = Some((learners, throughput));
    }
}

/// The tuner of all devices.
///
/// ```
/// # use lockstep_models::Tuner;
/// // Throughput peaks at three learners.
/// let curve = [100.0, 150.0, 170.0, 160.0];
/// let mut tuner = Tuner::new(&[8], false, 0.05);
/// while !tuner.converged() {
///     let learners = tuner.learners()[0];
///     tuner.observe(&[curve[learners as usize - 1]]);
/// }
/// assert_eq!(tuner.learners(), [3]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Tuner {
    devices: Vec<Climb>,
    alike: bool,
    trials: Vec<Trial>,
}

impl Tuner {
    /// More learners than are useful on any device.
    pub const MOST: u32 = 64;

    /// A tuner that begins with one learner on each device. `most`: how many fit in each device's memory, at least one.
    /// Where all devices are `alike` it measures the first and sets all (§4.4). `threshold`: the share by which
    /// throughput must grow.
    pub fn new(most: &[u32], alike: bool, threshold: f64) -> Tuner {
        let least = most.iter().copied().min().unwrap_or(1);
        let device = |most: &u32| {
            let most = if alike { least } else { *most }.max(1);
            Climb { threshold, most, before: None, now: Verdict::Try(1) }
        };
        Tuner { devices: most.iter().map(device).collect(), alike, trials: Vec::new() }
    }

    /// Learners by device, now.
    pub fn learners(&self) -> Vec<u32> {
        self.devices.iter().map(|device| device.now.learners()).collect()
    }

    /// Whether nothing will change any more.
    pub fn converged(&self) -> bool {
        self.devices.iter().all(|device| matches!(device.now, Verdict::Stay(_)))
    }

    /// Takes the images per second of each device since the last barrier (of the first one where all are equal), and
    /// returns the learners of each for what follows. Once converged it always returns the same.
    pub fn observe(&mut self, throughput: &[f64]) -> Vec<u32> {
        if !self.converged() {
            let measured = if self.alike { 1 } else { self.devices.len() };
            assert_eq!(throughput.len(), measured, "a figure for each device that is measured");
            self.trials.push(Trial { learners: self.learners(), throughput: throughput.to_vec() });
            for (index, device) in self.devices.iter_mut().enumerate() {
                device.observe(throughput[if self.alike { 0 } else { index }]);
            }
        }
        self.learners()
    }

    /// All observations, in order: the log of its decisions, since equal observations give equal answers.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// A summary for people of what it observed of its first device and what it chose: `learners per device and
    /// images/s of each device: 1: 100.0, 2: 150.0; settled at 2 (threshold 5 %, at most 8 fit)`.
    pub fn trail(&self) -> String {
        let trial = |trial: &Trial| format!("{}: {:.1}", trial.learners[0], trial.throughput[0]);
        let trials: Vec<String> = self.trials.iter().map(trial).collect();
        let Climb { threshold, most, now, .. } = &self.devices[0];
        format!(
            "learners per device and images/s of each device: {}; settled at {} (threshold {} %, at most {most} fit)",
            trials.join(", "),
            now.learners(),
            threshold * 100.0
        )
    }

    /// Replays the observations of a log, as far as it was made under the same conditions.
    ///
    /// # Errors
    /// The number of the first trial whose learners this tuner would not have tried.
    pub fn replay(&mut self, log: &[Trial]) -> Result<(), usize> {
        for (number, trial) in log.iter().enumerate() {
            if self.converged() || trial.learners != self.learners() {
                return Err(number);
            }
            self.observe(&trial.throughput);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs until it converges; `curve[m − 1]` is observed with m learners.
    fn run_until_converged(tuner: &mut Tuner, curve: &[f64]) -> u32 {
        for _ in 0..=curve.len() {
            if tuner.converged() {
                break;
            }
            let learners = tuner.learners()[0];
            tuner.observe(&[curve[learners as usize - 1]]);
        }
        assert!(tuner.converged(), "it has seen every number once and does not converge: {:?}", tuner.trials());
        tuner.learners()[0]
    }

    /// Rises by these factors up to the peak, falls by those after it.
    fn unimodal() -> impl Strategy<Value = (Vec<f64>, usize)> {
        let side = || prop::collection::vec(1.001f64..2.0, 0..12);
        (1.0f64..1e6, side(), side()).prop_map(|(start, up, down)| {
            let mut curve = vec![start];
            for factor in &up {
                curve.push(curve[curve.len() - 1] * factor);
            }
            for factor in &down {
                curve.push(curve[curve.len() - 1] / factor);
            }
            (curve, up.len() + 1)
        })
    }

    proptest! {
        #[test]
        fn the_tuner_ends_at_the_peak((curve, peak) in unimodal()) {
            let mut tuner = Tuner::new(&[curve.len() as u32], true, 0.0);
            prop_assert_eq!(run_until_converged(&mut tuner, &curve) as usize, peak);
        }

        #[test]
        fn every_learner_has_gained_more_than_the_threshold((curve, peak) in unimodal(), threshold in 0.0f64..0.5) {
            let mut tuner = Tuner::new(&[curve.len() as u32], true, threshold);
            let found = run_until_converged(&mut tuner, &curve) as usize;
            prop_assert!(found <= peak);
            let at = |learners: usize| curve[learners - 1];
            let worth = |from: usize| at(from + 1) - at(from) > threshold * at(from);
            prop_assert!((1..found).all(worth), "{curve:?}: {found}");
            prop_assert!(found == curve.len() || !worth(found), "{curve:?}: {found}");
        }

        #[test]
        fn memory_limits_are_never_exceeded(
            curves in prop::collection::vec(prop::collection::vec(0.0f64..1e3, 40), 1..5),
            most in prop::collection::vec(0u32..9, 5),
            alike: bool,
        ) {
            let most = &most[..curves.len()];
            let mut tuner = Tuner::new(most, alike, 0.05);
            let allowed = |device: usize| if alike { most.iter().copied().min().unwrap() } else { most[device] }.max(1);
            for _ in 0..50 {
                let learners = tuner.learners();
                for (device, learners) in learners.iter().enumerate() {
                    prop_assert!((1..=allowed(device)).contains(learners));
                }
                let seen = |device: usize| curves[device][learners[device] as usize];
                let measured = if alike { 1 } else { curves.len() };
                tuner.observe(&(0..measured).map(seen).collect::<Vec<f64>>());
            }
            // Each barrier asks for one more or ends a device's search, so it converges after as many as memory allows.
            prop_assert!(tuner.converged() && tuner.trials().len() <= 9);
            let mut again = Tuner::new(most, alike, 0.05);
            prop_assert_eq!(again.replay(tuner.trials()), Ok(()));
            prop_assert_eq!(again, tuner);
        }
    }

    #[test]
    fn unequal_devices_are_tuned_separately() {
        let mut tuner = Tuner::new(&[4, 4], false, 0.05);
        // The first gains up to three learners, the second loses with two.
        let first = [10.0, 20.0, 30.0, 31.0];
        let second = [10.0, 9.0];
        let mut trail = vec![tuner.learners()];
        while !tuner.converged() {
            let now = tuner.learners();
            trail.push(tuner.observe(&[first[now[0] as usize - 1], second[now[1] as usize - 1]]));
        }
        // 31 is no gain of 5 % on 30, and no loss either: as printed, the fourth would stay.
        assert_eq!(trail, [[1, 1], [2, 2], [3, 1], [4, 1], [3, 1]]);
    }

    #[test]
    fn the_published_algorithm_falls_below_one_and_this_one_does_not() {
        // A device that slows down by itself: as printed, l falls with every observation, to 0.
        let (mut printed, mut earlier) = (1u32, 0.0);
        let mut tuner = Tuner::new(&[9], true, 0.0);
        for t in [9.0, 8.0, 7.0, 6.0] {
            if t > earlier {
                printed += 1;
            } else if t < earlier && printed > 0 {
                printed -= 1;
            }
            earlier = t;
            tuner.observe(&[t]);
        }
        assert_eq!((printed, tuner.learners()[0]), (0, 1));
    }

    #[test]
    fn invalid_figures_count_as_zero() {
        for figure in [f64::NAN, f64::INFINITY, -1.0] {
            let mut tuner = Tuner::new(&[9], true, 0.05);
            tuner.observe(&[1.0]);
            assert_eq!(tuner.observe(&[figure]), [1], "{figure}");
        }
    }

    #[test]
    fn a_log_of_other_conditions_is_refused() {
        let log =
            [Trial { learners: vec![1], throughput: vec![1.0] }, Trial { learners: vec![2], throughput: vec![2.0] }];
        assert_eq!(Tuner::new(&[9], true, 0.05).replay(&log), Ok(()));
        assert_eq!(Tuner::new(&[1], true, 0.05).replay(&log), Err(1));
    }
}
