//! `Learners`: defines the number of learners that share a device: fixed, found by the auto-tuner, or growing after
//! some epochs (Koliousis et al. 2019, §3.4).

use std::str::FromStr;

use lockstep_topology::{Algorithm, Cluster, ErrorPlace, InputError, library_of_gpus};

use crate::batch::Batch;
use crate::configuration::Configuration;
use crate::experiment::{Experiment, Length};
use crate::form::{Form, Style};
use crate::growth::Growth;

/// Learners on each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learners {
    /// A fixed number; with one, ranks and devices are the same.
    Each(u32),
    /// As many as each raise throughput by more than the threshold of [`Experiment::tuner_threshold`].
    Auto,
}

/// A number, or `auto`.
pub(crate) const FORM: Form<Learners> = Form {
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

/// Fixed numbers of learners.
pub(crate) const NUMBER: Form<u32> = Form {
    text: |text| match text.parse::<Learners>()? {
        Learners::Each(each) => Ok(each),
        Learners::Auto => Err("a sweep needs to know each configuration: write numbers, e.g. 1,2,4".to_owned()),
    },
    entry: |entry| match entry.text() {
        Ok(_) => Err(entry.error("a sweep needs to know each configuration: write numbers")),
        Err(_) => Ok(entry.whole(1..=1024)? as u32),
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
            _ => Err(format!("{text:?} is not a number of learners: write auto, or 1 to 1024")),
        }
    }
}

impl Experiment {
    /// Sets a number, or has it tuned.
    pub fn set_learners(&mut self, learners: Learners) {
        (self.learners, self.tunes) = match learners {
            Learners::Each(each) => (each, false),
            Learners::Auto => (1, true),
        };
    }

    /// The algorithms of the allreduce: those that the experiment names, else the default.
    pub fn methods(&self, learners: u32) -> Vec<Algorithm> {
        if self.algorithms.is_empty() { vec![self.default_method(learners)] } else { self.algorithms.clone() }
    }

    /// Looks up the library between the GPUs of its cluster. A cluster that cannot be read is refused where it is needed.
    pub fn find_library(&mut self) {
        let known = if self.on_this_machine() { None } else { Cluster::load(&self.cluster).ok() };
        self.library = known.as_ref().and_then(library_of_gpus);
    }

    /// The library between the GPUs of its cluster, where it serves the experiment: each rank has a GPU of its own, and
    /// nothing is stated that only lockstep's own algorithms read.
    pub(crate) fn serving_library(&self, learners: u32) -> Option<&Algorithm> {
        let serves = learners == 1 && self.chunk.is_none() && self.concurrent_exchanges == 1;
        self.library.as_ref().filter(|_| serves)
    }

    /// That library, else [`default_method`].
    fn default_method(&self, learners: u32) -> Algorithm {
        self.serving_library(learners).cloned().unwrap_or_else(|| default_method(learners))
    }

    /// Numbers of learners on each device with the epochs that end each, from the beginning of a run of `epochs`.
    pub fn stages(&self, epochs: u32) -> Vec<(u32, u32)> {
        let learners = std::iter::once(self.learners).chain(self.growth.iter().map(|stage| stage.learners));
        let ends = self.growth.iter().map(|stage| stage.epoch).chain([epochs]);
        learners.zip(ends).collect()
    }

    /// Refuses to add learners where ranks do not train models of their own, or where the time of growth is unknown.
    ///
    /// # Errors
    /// Each with its cure.
    pub(crate) fn check_growth(&self) -> Result<(), InputError> {
        let Some(last) = self.growth.last() else { return Ok(()) };
        let ascending = self.growth.windows(2).all(|pair| pair[0].epoch < pair[1].epoch);
        let message = match (self.length, &self.optimizer.decay) {
            _ if self.strategy.averaging(1, 1).is_none() => "learners are those of sma and ea-sgd: use such a strategy",
            _ if self.tunes => "learners = \"auto\" finds their number: give the one to begin with",
            _ if !ascending => "epochs must ascend",
            (_, decay) if decay.counts_steps() => {
                "a rate that falls towards the run's end or by steps needs one program from its beginning: use steps by epochs, \
                 or a constant"
            }
            (Length::Steps(_), _) => "is by epochs: give epochs instead of steps",
            (Length::Epochs(epochs), _) if last.epoch >= epochs => "begins after the last epoch: use more epochs",
            _ => return Ok(()),
        };
        Err(self.locate(InputError::flag("growth", self.growth_text(), message)))
    }

    /// Refuses to add learners where a row has one number of them: `who` has such rows.
    ///
    /// # Errors
    /// Growth.
    pub fn refuse_growth(&self, who: &str) -> Result<(), InputError> {
        if self.growth.is_empty() {
            return Ok(());
        }
        let message = format!("{who} is of one number of learners: leave growth out, and give learners");
        Err(self.locate(InputError::flag("growth", self.growth_text(), message)))
    }

    /// `2@3 4@6`.
    pub fn growth_text(&self) -> String {
        self.growth.iter().map(Growth::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Refuses to tune where ranks do not train models of their own, or where batches would change with the number
    /// of learners.
    ///
    /// # Errors
    /// Both, with the cure.
    pub(crate) fn check_tuning(&self) -> Result<(), InputError> {
        let error = |message| Err(self.locate(InputError::flag("learners", "auto", message)));
        if self.tunes && self.strategy.averaging(1, 1).is_none() {
            return error("learners share a device only where each has its own model: use the strategy sma or ea-sgd");
        }
        if self.tunes && !matches!(self.batch, Batch::PerRank(_)) {
            return error("each learner has its own batch: give the batch per rank");
        }
        Ok(())
    }

    /// Refuses to tune, or to add learners, where `who` needs each configuration beforehand.
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

    /// `configuration` with this number of learners on each device; its algorithm becomes the default of several
    /// learners.
    ///
    /// # Errors
    /// Ranks that do not divide among nodes as the experiment asks.
    pub fn with_learners(&self, configuration: &Configuration, learners: u32) -> Result<Configuration, InputError> {
        let mut other = configuration.clone();
        other.job.workers = configuration.devices().saturating_mul(learners);
        (other.learners, other.job.unequal_learners) = (learners, None);
        if self.algorithms.is_empty() {
            other.job.algorithm = self.default_method(learners);
        }
        other.job.node_sizes = Some(self.nodes_here(other.job.ranks())?);
        other.group_by_device();
        Ok(other)
    }

    /// The same with a number for each device.
    ///
    /// # Errors
    /// As there.
    pub fn with_learners_of(&self, configuration: &Configuration, each: &[u32]) -> Result<Configuration, InputError> {
        let most = each.iter().copied().max().unwrap_or(1);
        let mut other = self.with_learners(configuration, most)?;
        if each.iter().any(|learners| *learners != most) {
            other.job.workers = each.iter().sum();
            other.job.unequal_learners = Some(each.into());
            other.group_by_device();
        }
        Ok(other)
    }

    /// Whether devices may have unequal numbers of learners; with a reference model on each device they may not, since
    /// one α serves all devices.
    pub fn tunes_devices_apart(&self) -> bool {
        self.strategy.averaging(4, 2).is_some_and(|averaging| averaging.reference_alpha.is_none())
    }
}

/// A ring, which is hierarchical across devices with several learners (Koliousis et al. 2019, §4.2).
pub fn default_method(learners: u32) -> Algorithm {
    match learners {
        1 => Algorithm::ring(),
        _ => Algorithm::hierarchical(Algorithm::ring()),
    }
}

/// The note on a library that is the default; `setting` is the place that names another algorithm.
pub fn default_note(library: &Algorithm, setting: &ErrorPlace) -> String {
    format!(
        "no algorithm is named: {library}, the library that frameworks use between these GPUs ({setting} names another)"
    )
}
