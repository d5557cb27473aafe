//! How many learners share a device: a number, or as many as the auto-tuner finds (Koliousis et al. 2019, §3.4).

use std::str::FromStr;

use lockstep_topology::{Algorithm, InputError};

use super::form::Form;
use super::setting::Style;
use super::{Batch, Configuration, Experiment};

/// Learners on each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learners {
    /// So many; with one, ranks and devices are the same.
    Each(u32),
    /// As many as throughput grows with, by more than the threshold of [`Experiment::tuner_threshold`] each.
    Auto,
}

/// A number, or `auto`.
pub(super) const FORM: Form<Learners> = Form {
    text: |text| text.parse(),
    entry: |entry| {
        if entry.is("auto") {
            Ok(Learners::Auto)
        } else {
            entry.whole(1..=1024).map(|each| Learners::Each(each as u32))
        }
    },
    style: Style::One,
    is_number: true,
};

impl FromStr for Learners {
    type Err = String;

    fn from_str(text: &str) -> Result<Learners, String> {
        match (text.trim(), text.trim().parse::<u32>()) {
            ("auto", _) => Ok(Learners::Auto),
            (_, Ok(each @ 1..=1024)) => Ok(Learners::Each(each)),
            _ => Err(format!("{text:?} is no number of learners: write auto, or 1 to 1024")),
        }
    }
}

impl Experiment {
    /// Takes a number, or tunes it.
    pub fn set_learners(&mut self, learners: Learners) {
        (self.learners, self.tunes) = match learners {
            Learners::Each(each) => (each, false),
            Learners::Auto => (1, true),
        };
    }

    /// The methods of the allreduce: those that it names, else one by the number of learners on a device.
    pub fn methods(&self, learners: u32) -> Vec<Algorithm> {
        if self.algorithms.is_empty() { vec![default_method(learners)] } else { self.algorithms.clone() }
    }

    /// Refuses to tune where ranks do not train models of their own, or batches would change with their number.
    ///
    /// # Errors
    /// Both, with the cure.
    pub(super) fn check_tuning(&self) -> Result<(), InputError> {
        let error = |message| Err(self.locate(InputError::flag("learners", "auto", message)));
        if self.tunes && self.strategy.averaging(1, 1).is_none() {
            return error(
                "learners share a device only where each has a model of its own: take --strategy sma or ea-sgd",
            );
        }
        if self.tunes && matches!(self.batch, Batch::Global(_)) {
            return error("each learner has a batch of its own, whatever their number: give --batch-per-rank");
        }
        Ok(())
    }

    /// Refuses to tune, or to add learners, where each configuration must be known beforehand: `who` wants that.
    ///
    /// # Errors
    /// `learners = "auto"`, or growth.
    pub fn refuse_tuning(&self, who: &str) -> Result<(), InputError> {
        self.refuse_growth(who)?;
        if !self.tunes {
            return Ok(());
        }
        let message = format!("{who} needs to know each configuration: give a number, e.g. what sim predict finds");
        Err(self.locate(InputError::flag("learners", "auto", message)))
    }

    /// `configuration`, of one learner on each device, with so many; its method becomes what several have by default.
    ///
    /// # Errors
    /// Ranks that do not divide among nodes as the experiment asks.
    pub fn with_learners(&self, configuration: &Configuration, learners: u32) -> Result<Configuration, InputError> {
        let mut other = configuration.clone();
        other.job.workers = configuration.job.workers / configuration.learners.max(1) * learners;
        other.learners = learners;
        if self.algorithms.is_empty() {
            other.job.algorithm = default_method(learners);
        }
        other.job.node_sizes = Some(self.nodes_here(other.job.ranks())?);
        other.lie_on_devices();
        Ok(other)
    }
}

/// A ring, which goes across devices where those have several learners (Koliousis et al. 2019, §4.2).
pub fn default_method(learners: u32) -> Algorithm {
    match learners {
        1 => Algorithm::ring(),
        _ => Algorithm::hierarchical(Algorithm::ring()),
    }
}
