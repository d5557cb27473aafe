//! Lists the rules by which optimizers step: each says which states it keeps, its formula, and the settings it reads.
//!
//! A new optimizer is one file and one line here; programs, memory, checkpoints and devices follow from its states and
//! its formula.

use super::Optimizer;
use crate::{Buffer, Coefficient, Formula, Operand};

/// The operands of every rule: weights, their gradient, and an intermediate result.
const W: Operand = Operand::Buffer(Buffer::Parameters);
const G: Operand = Operand::Buffer(Buffer::Gradients);
const T: Operand = Operand::Local(0);

/// A rule, as its file defines it.
struct Rule {
    /// What it keeps for each parameter, as tables call it, in the order of [`Buffer::State`]: at least one state, since
    /// a formula that changes one is the optimizer's step. States begin with zeros.
    states: &'static [&'static str],
    /// The formula of a step. The gradient is first multiplied by the factors, in order. `again`: it is not the step's
    /// first update of these parameters.
    update: fn(factors: &[Coefficient], again: bool) -> Formula,
    /// Whether a step may update the same parameters several times.
    updates_again: bool,
    /// η where it is not given.
    learning_rate: f64,
    /// λ where it is not given.
    weight_decay: f64,
    /// The settings that it reads and others do not, by their keys.
    reads: &'static [&'static str],
    /// The values of these settings in words.
    describe: fn(&Optimizer) -> String,
}

/// Makes the rules of their files, each with its name and a description.
macro_rules! rules {
    ($($file:ident: $rule:ident = $name:literal, $about:literal;)*) => {
        $(mod $file;)*

        /// The rule by which an optimizer steps.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum UpdateRule {
            $(
                #[doc = $about]
                $rule,
            )*
        }

        lockstep_topology::named!(UpdateRule, "optimizer": $($rule = $name),*);

        impl UpdateRule {
            fn rule(self) -> &'static Rule {
                match self {
                    $(UpdateRule::$rule => &$file::RULE,)*
                }
            }
        }
    };
}

// `cargo fmt` does not see these files: `bash tests/run format` does.
rules! {
    sgd: Sgd = "sgd", "Momentum SGD (Goyal et al. 2017, §3).";
    adam: Adam = "adam", "Adam (Kingma & Ba 2015, Alg. 1); weight decay is a part of the gradient.";
    adamw: AdamW = "adamw", "AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019, Alg. 2).";
}

impl Default for UpdateRule {
    /// Momentum SGD.
    fn default() -> UpdateRule {
        UpdateRule::Sgd
    }
}

impl UpdateRule {
    /// What it keeps for each parameter, in the order of [`Buffer::State`].
    pub fn states(self) -> &'static [&'static str] {
        self.rule().states
    }

    /// The formula of a step on gradients that are already divided by the samples of the global batch, each first
    /// multiplied by the factors, in order. `again`: it is not the step's first update of these parameters.
    ///
    /// ```
    /// # use lockstep_models::{Buffer, UpdateRule};
    /// // It reads g, w, m and v, and writes w, m and v.
    /// let update = UpdateRule::AdamW.update(&[], false);
    /// let accesses: Vec<u64> = update.accesses().map(|(_, accesses)| accesses).collect();
    /// assert_eq!((accesses.iter().sum::<u64>(), accesses.len()), (7, 2 + UpdateRule::AdamW.states().len()));
    /// assert!(update.writes(Buffer::State(1)) && !update.writes(Buffer::Gradients));
    /// ```
    pub fn update(self, factors: &[Coefficient], again: bool) -> Formula {
        (self.rule().update)(factors, again)
    }

    /// Whether a step may update the same parameters several times, each time with a part of the batch.
    pub fn updates_again(self) -> bool {
        self.rule().updates_again
    }

    /// η where it is not given.
    pub fn learning_rate(self) -> f64 {
        self.rule().learning_rate
    }

    /// λ where it is not given.
    pub fn weight_decay(self) -> f64 {
        self.rule().weight_decay
    }

    /// The settings that it reads and not every rule does, by their keys.
    pub fn reads(self) -> &'static [&'static str] {
        self.rule().reads
    }

    /// The values of these settings in words: `momentum 0.9 (separate)`.
    pub(super) fn describe(self, optimizer: &Optimizer) -> String {
        (self.rule().describe)(optimizer)
    }
}

/// The formula so far, and the operand with the gradient: multiplied by the factors, or as it is.
fn gradient(factors: &[Coefficient]) -> (Formula, Operand) {
    factors.iter().fold((Formula::new("update"), G), |(formula, g), factor| (formula.scale(T, *factor, g), T))
}
