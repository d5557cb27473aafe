//! Decides from the accuracies of a run whether it continues, restarts its averaging, or ends.
//!
//! Koliousis et al. 2019, §3.2: "the accuracy may not necessarily improve each time the learning rate changes. When
//! detecting such a situation, we therefore restart SMA: Alg. 1 is executed again with the latest version of the
//! central average model z as the new initial model". And line 3: the algorithm ends when the target accuracy is
//! reached, which §5.1 looks for in the median of the last five epochs, so that one lucky evaluation is no result.

/// What a run does after an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunControl {
    /// It continues.
    Continue,
    /// Learners restart from the average model.
    Restart,
    /// The target is reached.
    Stop,
}

/// The accuracy at which a training is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Share of the held-out samples that are classified correctly, 0 to 1; `None`: the run has its full length.
    pub accuracy: Option<f64>,
    /// The median over this many last epochs must reach `accuracy`.
    pub epochs: u32,
}

impl Default for Target {
    /// No accuracy; if one is set, the last epoch alone must reach it.
    fn default() -> Target {
        Target { accuracy: None, epochs: 1 }
    }
}

/// Collects the accuracies of a run in their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccuracyMonitor {
    target: Target,
    /// The accuracy at the last change of the rate.
    before: Option<f64>,
    /// The accuracies after the last epochs, at most as many as the target needs.
    recent: Vec<f64>,
}

impl AccuracyMonitor {
    /// Ends the run at `target`.
    pub fn new(target: Target) -> AccuracyMonitor {
        AccuracyMonitor { target, before: None, recent: Vec::new() }
    }

    /// The same, where `before` was the accuracy at the last change of the rate, and `recent` those after the
    /// last epochs.
    pub fn resuming(self, before: Option<f64>, recent: Vec<f64>) -> AccuracyMonitor {
        AccuracyMonitor { before, recent, ..self }
    }

    /// The accuracy at the last change of the rate.
    pub fn before(&self) -> Option<f64> {
        self.before
    }

    /// The accuracies after the last epochs, at most as many as the target needs.
    pub fn recent(&self) -> &[f64] {
        &self.recent
    }

    /// The same, with another target.
    pub fn with_target(&self, target: Target) -> AccuracyMonitor {
        let mut monitor = AccuracyMonitor { target, ..self.clone() };
        monitor.forget();
        monitor
    }

    /// Whether the median accuracy of the last epochs is the target's or higher.
    pub fn is_reached(&self) -> bool {
        let mut sorted = self.recent.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let enough = count > 0 && count >= self.target.epochs as usize;
        let median = |sorted: &[f64]| (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        self.target.accuracy.is_some_and(|target| enough && median(&sorted) >= target)
    }

    /// Decides after an evaluation: `accuracy` is that after an epoch where `epoch_ends`, and that of the moment before
    /// the rate falls where `rate_falls`; the first time there is no earlier one to improve on.
    pub fn decide(&mut self, accuracy: f64, epoch_ends: bool, rate_falls: bool) -> RunControl {
        if epoch_ends && self.target.accuracy.is_some() {
            self.recent.push(accuracy);
            self.forget();
            if self.is_reached() {
                return RunControl::Stop;
            }
        }
        if !rate_falls {
            return RunControl::Continue;
        }
        match self.before.replace(accuracy) {
            Some(before) if accuracy <= before => RunControl::Restart,
            _ => RunControl::Continue,
        }
    }

    /// Drops the accuracies that the target no longer needs.
    fn forget(&mut self) {
        let more = self.recent.len().saturating_sub(self.target.epochs as usize);
        self.recent.drain(..more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(accuracy: f64, epochs: u32) -> Target {
        Target { accuracy: Some(accuracy), epochs }
    }

    #[test]
    fn restarts_only_without_improvement_since_the_last_rate_step() {
        let mut monitor = AccuracyMonitor::new(at(0.9, 1));
        let seen = [
            (0.5, false, RunControl::Continue),
            (0.6, true, RunControl::Continue), // nothing to compare with
            (0.4, false, RunControl::Continue),
            (0.7, true, RunControl::Continue),
            (0.8, false, RunControl::Continue), // between rate steps nothing counts
            (0.7, true, RunControl::Restart),
            (0.65, true, RunControl::Restart),
            (0.7, true, RunControl::Continue),
            (0.9, true, RunControl::Stop),
        ];
        for (accuracy, rate_falls, expected) in seen {
            assert_eq!(monitor.decide(accuracy, true, rate_falls), expected, "{accuracy}");
        }
        assert_eq!(AccuracyMonitor::default().decide(1.0, true, false), RunControl::Continue);
        // Between the ends of epochs the target is not checked.
        assert_eq!(AccuracyMonitor::new(at(0.9, 1)).decide(1.0, false, true), RunControl::Continue);
    }

    /// Of 0.5, 0.9, 0.4 and 0.8 the last three have the median 0.8, the three before 0.5.
    #[test]
    fn the_target_is_the_median_of_the_last_epochs() {
        let mut monitor = AccuracyMonitor::new(at(0.8, 3));
        let seen = [0.5, 0.9, 0.4, 0.8].map(|accuracy| monitor.decide(accuracy, true, false));
        assert_eq!(seen, [RunControl::Continue, RunControl::Continue, RunControl::Continue, RunControl::Stop]);
        assert_eq!(monitor.recent(), [0.9, 0.4, 0.8]);
        // Two in the middle: (0.4 + 0.8) / 2 of the last two, (0.8 + 0.7) / 2 with one more.
        let mut two = monitor.with_target(at(0.75, 2));
        assert_eq!((two.recent(), two.is_reached()), (&[0.4, 0.8][..], false));
        assert_eq!(two.decide(0.7, true, false), RunControl::Stop);
        // Fewer epochs than are asked for have no such median, however accurate they are.
        let mut young = AccuracyMonitor::new(at(0.8, 2));
        assert_eq!(young.decide(1.0, true, false), RunControl::Continue);
    }
}
