//! The judge: what the accuracy of a run so far has as its consequence.
//!
//! Koliousis et al. 2019, §3.2: "the accuracy may not necessarily improve each time the learning rate changes. When detecting
//! such a situation, we therefore restart SMA: Alg. 1 is executed again with the latest version of the central average model
//! z as the new initial model". And line 3: the algorithm ends when the target accuracy is reached.

/// What follows from an accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing.
    GoOn,
    /// Learners begin again at the average model.
    Restart,
    /// The target is reached.
    Stop,
}

/// Sees the accuracies of a run in their order.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Judge {
    target: Option<f64>,
    /// The accuracy at the last change of the rate.
    before: Option<f64>,
}

impl Judge {
    /// One that ends the run at `target`, if there is one; 0 to 1.
    pub fn new(target: Option<f64>) -> Judge {
        Judge { target, before: None }
    }

    /// The same, where `before` was the accuracy at the last change of the rate.
    pub fn recalling(self, before: Option<f64>) -> Judge {
        Judge { before, ..self }
    }

    /// The accuracy at the last change of the rate.
    pub fn before(&self) -> Option<f64> {
        self.before
    }

    /// The same, with another target.
    pub fn aiming(self, target: Option<f64>) -> Judge {
        Judge { target, ..self }
    }

    /// What follows from `accuracy`, which is that of the moment before the rate falls where `rate_falls`; the first time there
    /// is nothing that it could have improved on.
    pub fn judge(&mut self, accuracy: f64, rate_falls: bool) -> Judgement {
        if self.target.is_some_and(|target| accuracy >= target) {
            return Judgement::Stop;
        }
        if !rate_falls {
            return Judgement::GoOn;
        }
        match self.before.replace(accuracy) {
            Some(before) if accuracy <= before => Judgement::Restart,
            _ => Judgement::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_only_without_improvement_since_the_last_rate_step() {
        let mut judge = Judge::new(Some(0.9));
        let seen = [
            (0.5, false, Judgement::GoOn),
            (0.6, true, Judgement::GoOn), // nothing to compare with
            (0.4, false, Judgement::GoOn),
            (0.7, true, Judgement::GoOn),
            (0.8, false, Judgement::GoOn), // between rate steps nothing counts
            (0.7, true, Judgement::Restart),
            (0.65, true, Judgement::Restart),
            (0.7, true, Judgement::GoOn),
            (0.9, true, Judgement::Stop),
        ];
        for (accuracy, rate_falls, expected) in seen {
            assert_eq!(judge.judge(accuracy, rate_falls), expected, "{accuracy}");
        }
        assert_eq!(Judge::new(None).judge(1.0, false), Judgement::GoOn);
    }
}
