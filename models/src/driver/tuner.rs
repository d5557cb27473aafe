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

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// Gains of throughput below this share count as none (τ; the paper gives no figure).
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// What was observed with this many learners on each device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Learners by device.
    pub learners: Vec<u32>,
    /// Images per second by device; a single figure where devices do not differ and are tuned together.
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
    /// Whether it would have tried more than memory allows.
    is_full: bool,
    /// Learners and throughput of the observation before.
    before: Option<(u32, f64)>,
    now: Verdict,
}

impl Climb {
    fn observe(&mut self, throughput: f64) {
        let Verdict::Try(learners) = self.now else { return };
        // A device that did nothing has no throughput, whatever the division gave.
        let throughput = if throughput.is_finite() { throughput.max(0.0) } else { 0.0 };
        let gains = self.before.is_none_or(|(_, best)| throughput - best > self.threshold * best);
        self.is_full = gains && learners >= self.most;
        self.now = match self.before {
            Some((fewer, _)) if !gains => Verdict::Stay(fewer),
            _ if self.is_full => Verdict::Stay(learners),
            _ => Verdict::Try(learners + 1),
        };
        self.before = Some((learners, throughput));
    }
}

/// Whether devices are tuned together, which the first observation decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Devices {
    Unobserved,
    /// One figure, of all of them.
    Together,
    /// A figure for each.
    Apart,
}

/// The tuner of all devices.
///
/// ```
/// # use lockstep_models::Tuner;
/// // Throughput peaks at three learners.
/// let curve = [100.0, 150.0, 170.0, 160.0];
/// let mut tuner = Tuner::new(&[8], 0.05);
/// while !tuner.converged() {
///     let learners = tuner.learners()[0];
///     tuner.observe(&[curve[learners as usize - 1]]);
/// }
/// assert_eq!(tuner.learners(), [3]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Tuner {
    each: Vec<Climb>,
    devices: Devices,
    trials: Vec<Trial>,
}

impl Tuner {
    /// More learners than are useful on any device.
    pub const MOST: u32 = 64;

    /// A tuner that begins with one learner on each device. `most`: how many fit in each device's memory, at least one.
    /// `threshold`: the share by which throughput must grow.
    pub fn new(most: &[u32], threshold: f64) -> Tuner {
        let climb = |most: &u32| {
            let most = (*most).max(1);
            Climb { threshold, most, is_full: false, before: None, now: Verdict::Try(1) }
        };
        Tuner { each: most.iter().map(climb).collect(), devices: Devices::Unobserved, trials: Vec::new() }
    }

    /// Learners by device, now.
    pub fn learners(&self) -> Vec<u32> {
        self.each.iter().map(|device| device.now.learners()).collect()
    }

    /// Whether nothing will change any more.
    pub fn converged(&self) -> bool {
        self.each.iter().all(|device| matches!(device.now, Verdict::Stay(_)))
    }

    /// Takes the images per second of each device since the last barrier, and returns the learners of each for what
    /// follows. The first observation decides whether devices are tuned together: "on a server with homogeneous GPUs,
    /// the auto-tuner may measure only the throughput of a single GPU to adapt the number of learners for all GPUs"
    /// (§4.4), so a single figure represents all of them. Once converged it always returns the same.
    pub fn observe(&mut self, throughput: &[f64]) -> Vec<u32> {
        if self.converged() {
            return self.learners();
        }
        assert!(self.takes(throughput), "a figure for each device, or one for all, as in the first observation");
        if self.devices == Devices::Unobserved {
            self.devices = if throughput.len() == 1 { Devices::Together } else { Devices::Apart };
        }
        if self.devices == Devices::Together {
            let least = self.each.iter().map(|device| device.most).min().unwrap_or(1);
            self.each.iter_mut().for_each(|device| device.most = least);
        }
        self.trials.push(Trial { learners: self.learners(), throughput: throughput.to_vec() });
        for (index, device) in self.each.iter_mut().enumerate() {
            device.observe(throughput[if throughput.len() == 1 { 0 } else { index }]);
        }
        self.learners()
    }

    /// Whether these are figures of as many devices as it observes.
    fn takes(&self, throughput: &[f64]) -> bool {
        let (one, each) = (throughput.len() == 1, throughput.len() == self.each.len());
        match self.devices {
            Devices::Unobserved => one || each,
            Devices::Together => one,
            Devices::Apart => each,
        }
    }

    /// Whether devices are tuned together; `None` before the first observation.
    pub fn together(&self) -> Option<bool> {
        (self.devices != Devices::Unobserved).then_some(self.devices == Devices::Together)
    }

    /// Whether `trial` may be the next one of this tuner.
    pub fn follows(&self, trial: &Trial) -> bool {
        !self.converged() && trial.learners == self.learners() && self.takes(&trial.throughput)
    }

    /// The most learners of each device.
    pub fn most(&self) -> Vec<u32> {
        self.each.iter().map(|device| device.most).collect()
    }

    /// All observations, in order: the log of its decisions, since equal observations give equal answers.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// A summary for people of what it observed and what it chose: `learners per device and images/s of each device:
    /// 1: 100.0, 2: 150.0; settled at 2 (threshold 5 %, at most 8 fit)`. Devices that are tuned separately have a
    /// figure each: `1+1: 100.0+40.0`. It says so where only memory kept a device from trying more.
    pub fn trail(&self) -> String {
        let apart = self.devices == Devices::Apart;
        let list = |all: &[u32]| if apart { joined(all, u32::to_string) } else { all[0].to_string() };
        let figures = |all: &[f64]| joined(all, |figure| format!("{figure:.1}"));
        let trial = |trial: &Trial| format!("{}: {}", list(&trial.learners), figures(&trial.throughput));
        let trials: Vec<String> = self.trials.iter().map(trial).collect();
        format!(
            "{}learners per device and images/s of each device: {}; settled at {} (threshold {} %, at most {} fit{})",
            if apart { "devices differ and are tuned separately: " } else { "" },
            trials.join(", "),
            list(&self.learners()),
            self.each[0].threshold * 100.0,
            list(&self.most()),
            if self.each.iter().any(|device| device.is_full) { ", so more were not tried" } else { "" }
        )
    }

    /// Replays the observations of a log, as far as it was made under the same conditions.
    ///
    /// # Errors
    /// The number of the first trial whose learners this tuner would not have tried.
    pub fn replay(&mut self, log: &[Trial]) -> Result<(), usize> {
        for (number, trial) in log.iter().enumerate() {
            if !self.follows(trial) {
                return Err(number);
            }
            self.observe(&trial.throughput);
        }
        Ok(())
    }
}

/// A list as `2+1`; equal neighbours from three on as `1 x 8`.
fn joined<T: PartialEq>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let run = |run: &[T]| match run {
        [first, _, _, ..] => vec![format!("{} x {}", text(first), run.len())],
        few => few.iter().map(&text).collect(),
    };
    all.chunk_by(|a, b| a == b).flat_map(run).collect::<Vec<_>>().join("+")
}
