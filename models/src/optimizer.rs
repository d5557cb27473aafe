//! Defines the optimizer: its rule, its learning rate over a run, and one step of it as a formula and in numbers.
//!
//! Pure functions of step and sizes, so that simulator, executor and the one-rank reference apply the same numbers.

mod averaging;
mod decay;
mod no_decay;
mod rules;
mod scaling;
mod square_sum;
mod warm_up;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::{Coefficient, MomentStep, Moments, SgdStep, StepNumbers};

pub use averaging::{Assignment, Averaging};
pub use decay::Decay;
pub use no_decay::NoDecay;
pub use rules::UpdateRule;
pub use scaling::Scaling;
pub use square_sum::SquareSum;
pub use warm_up::WarmUp;

/// What the momentum buffer holds (Goyal et al. 2017, §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MomentumForm {
    /// Eq. 9: `u ← m·u + g`, `w ← w − η·u`. The buffer does not include the rate.
    #[default]
    Separate,
    /// Eq. 10 as written: `v ← m·v + η·g`, `w ← w − v`. Once the rate has changed, it is another method than Eq. 9 for
    /// as long as the buffer remembers the old one (the pitfall of Remark 2). Krizhevsky 2014, §5, and Koliousis et al.
    /// 2019, Eq. 3, write it so.
    Absorbed,
    /// Eq. 10 with its momentum correction: `v ← m·(η/η_before)·v + η·g`, which is Eq. 9 again.
    Corrected,
}

lockstep_topology::named!(MomentumForm, "form of momentum": Separate = "separate", Absorbed = "absorbed", Corrected = "corrected");

/// A rule, its numbers, and its learning rate over a run. What the rule does not read is of no effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    /// How weights and states follow from gradients.
    pub rule: UpdateRule,
    /// η: the rate before scaling.
    pub learning_rate: f64,
    /// How the rate follows the global batch.
    pub scaling: Scaling,
    /// How the first epochs approach it.
    pub warm_up: WarmUp,
    /// How it falls later.
    pub decay: Decay,
    /// m: the factor on the momentum buffer in each step.
    pub momentum: f64,
    /// What the buffer holds.
    pub form: MomentumForm,
    /// Whether a step looks ahead along the buffer (Sutskever et al. 2013, §2, as PyTorch writes it).
    pub nesterov: bool,
    /// β₁: the part of the first moment that a step keeps.
    pub beta1: f64,
    /// β₂: the part of the second moment that a step keeps.
    pub beta2: f64,
    /// The format in which it keeps what it has for each parameter.
    pub moments: Moments,
    /// ε: what is added to the root of the second moment before a division by it.
    pub epsilon: f64,
    /// λ: the part of a weight that is added to its gradient, apart from the loss (Goyal et al. 2017, Eq. 8), or by
    /// which, times the rate, a step shrinks it (AdamW).
    pub weight_decay: f64,
    /// The most that the norm of all gradients together may be: larger ones are scaled down to it. `None`: any.
    pub clip_norm: Option<f64>,
    /// Whether batch norm's γ and β (and a scale's parameters) decay too; not in Goyal et al. 2017, §5.1.
    pub decay_batch_norm: bool,
    /// Parameters that weight decay leaves out all the same.
    pub no_decay: NoDecay,
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer {
            rule: UpdateRule::Sgd,
            learning_rate: 0.02,
            scaling: Scaling::None,
            warm_up: WarmUp::None,
            decay: Decay::Constant,
            momentum: 0.9,
            form: MomentumForm::Separate,
            nesterov: false,
            beta1: 0.9,
            beta2: 0.999,
            moments: Moments::F32,
            epsilon: 1e-8,
            weight_decay: 0.0,
            clip_norm: None,
            decay_batch_norm: false,
            no_decay: NoDecay::default(),
        }
    }
}

/// The sizes of the run that an optimizer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLength {
    /// Samples per step over all ranks: kn, accumulation included.
    pub global_batch: u64,
    /// Steps in an epoch, at least 1.
    pub steps_per_epoch: u64,
    /// Steps of the whole run.
    pub steps: u64,
}

impl Optimizer {
    /// The target rate: η after scaling, before warm-up and decay.
    pub fn target_rate(&self, global_batch: u64) -> f64 {
        self.scaling.rate(self.learning_rate, global_batch)
    }

    /// η of step `step`, counted from 0.
    ///
    /// The decay's epochs are those of the run, the warm-up's among them ("after the warm-up, we go back to the
    /// original learning rate schedule", Goyal et al. 2017, §2.2); continuous decays begin when the warm-up ends.
    ///
    /// ```
    /// # use lockstep_models::{RunLength, Decay, Optimizer, Scaling, WarmUp};
    /// // Goyal et al. 2017, §5.1: 0.1·kn/256, gradual warm-up over 5 epochs, ÷10 at epochs 30, 60, 80.
    /// let optimizer = Optimizer {
    ///     learning_rate: 0.1,
    ///     scaling: Scaling::Linear { batch: 256 },
    ///     warm_up: WarmUp::Gradual { epochs: 5.0, from: None },
    ///     decay: Decay::Steps { factor: 0.1, epochs: vec![30.0, 60.0, 80.0] },
    ///     ..Optimizer::default()
    /// };
    /// let run_length = RunLength { global_batch: 8192, steps_per_epoch: 156, steps: 90 * 156 };
    /// assert_eq!(optimizer.rate(0, &run_length), 0.1);
    /// assert_eq!(optimizer.rate(5 * 156, &run_length), 3.2);
    /// assert!((optimizer.rate(89 * 156, &run_length) - 0.0032).abs() < 1e-12);
    /// ```
    pub fn rate(&self, step: u64, run_length: &RunLength) -> f64 {
        let target = self.target_rate(run_length.global_batch);
        let from = self.warm_up.rate().unwrap_or(self.learning_rate);
        // At batches up to the reference there is no warm-up.
        let warm_steps = if from < target { self.warm_up.steps(run_length) } else { 0 };
        if step < warm_steps {
            return self.warm_up.at(step, warm_steps, from, target);
        }
        target * self.decay.share(step, warm_steps, run_length)
    }

    /// Whether the rate drops at `step`, as `steps` and `every` do: a rate step.
    pub fn falls_at(&self, step: u64, run_length: &RunLength) -> bool {
        let share = |step| self.decay.share(step, 0, run_length);
        self.decay.is_stepwise() && step.checked_sub(1).is_some_and(|before| share(step) < share(before))
    }

    /// The default numbers of a rule.
    pub fn of_rule(rule: UpdateRule) -> Optimizer {
        let (learning_rate, weight_decay) = (rule.learning_rate(), rule.weight_decay());
        Optimizer { rule, learning_rate, weight_decay, ..Optimizer::default() }
    }

    /// The factors of a gradient that is to be scaled; none by 1.
    pub fn scaled(scale: f64) -> Vec<Coefficient> {
        if scale == 1.0 { Vec::new() } else { vec![Coefficient::Constant(scale)] }
    }

    /// All numbers of step `step`, counted from 0, as for the first repetition with a model before it.
    pub fn numbers(&self, step: u64, run_length: &RunLength) -> StepNumbers {
        let moments = MomentStep { step: step + 1, beta1: self.beta1, beta2: self.beta2, epsilon: self.epsilon };
        StepNumbers { moments, ..self.step(step, run_length).into() }
    }

    /// The elements that it keeps for each parameter: none for momentum that is 0.
    pub fn kept_elements(&self) -> u64 {
        match self.rule {
            UpdateRule::Sgd => u64::from(self.momentum != 0.0),
            rule => rule.states().len() as u64,
        }
    }

    /// The numbers of step `step`.
    pub fn step(&self, step: u64, run_length: &RunLength) -> SgdStep {
        let rate = self.rate(step, run_length);
        let correction = match (self.form, step.checked_sub(1).map(|before| self.rate(before, run_length))) {
            // A buffer without a rate has nothing to correct: it is zero.
            (MomentumForm::Corrected, Some(before)) if before > 0.0 => rate / before,
            _ => 1.0,
        };
        SgdStep {
            rate: rate as f32,
            keep: (self.momentum * correction) as f32,
            momentum: self.momentum as f32,
            absorbed: self.form != MomentumForm::Separate,
            nesterov: self.nesterov,
            weight_decay: self.weight_decay as f32,
            decay_batch_norm: self.decay_batch_norm,
        }
    }
}

impl fmt::Display for Optimizer {
    /// `rate 0.1 (linear:256), warm-up gradual:5, decay steps:0.1@30,60,80, momentum 0.9 (nesterov), weight
    /// decay 0.0001 …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate {} (scaling {}), ", self.learning_rate, self.scaling)?;
        write!(f, "warm-up {}, decay {}, ", self.warm_up, self.decay)?;
        write!(f, "{}, ", self.rule.describe(self))?;
        if self.moments != Moments::F32 {
            write!(f, "moments in {}, ", self.moments)?;
        }
        let spared = if self.decay_batch_norm { "batch norm too" } else { "not on batch norm" };
        let left_out = if self.no_decay.is_empty() { String::new() } else { format!(", none on {}", self.no_decay) };
        write!(f, "weight decay {} ({spared}{left_out})", self.weight_decay)?;
        self.clip_norm.map_or(Ok(()), |most| write!(f, ", gradients clipped to the norm {most}"))
    }
}

/// A finite number of at least zero.
fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}
