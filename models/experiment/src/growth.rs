//! Learners that join while a run goes on: few find the neighbourhood of a solution quickly, more of them explore it
//! (Koliousis et al. 2019, §3.4).

use std::fmt;
use std::str::FromStr;

use lockstep_models::Decay;
use lockstep_topology::InputError;

use super::{Experiment, Length};

/// From an epoch on each device has so many learners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// On each device.
    pub learners: u32,
    /// Epochs done by then.
    pub epoch: u32,
}

impl FromStr for Growth {
    type Err = String;

    /// Reads `4@6`.
    fn from_str(text: &str) -> Result<Growth, String> {
        let cure = || format!("{text:?}: write it like 4@6, four learners once 6 epochs are done");
        let (learners, epoch) = text.split_once('@').ok_or_else(cure)?;
        match (learners.trim().parse(), epoch.trim().parse()) {
            (Ok(learners @ 1..=1024), Ok(epoch @ 1..)) => Ok(Growth { learners, epoch }),
            _ => Err(cure()),
        }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.learners, self.epoch)
    }
}

impl Experiment {
    /// Learners on each device and the epochs that end with so many, from the beginning of a run of `epochs`.
    pub fn stages(&self, epochs: u32) -> Vec<(u32, u32)> {
        let learners = std::iter::once(self.learners).chain(self.growth.iter().map(|stage| stage.learners));
        let ends = self.growth.iter().map(|stage| stage.epoch).chain([epochs]);
        learners.zip(ends).collect()
    }

    /// Refuses to add learners where ranks do not train models of their own, or where it is not known when.
    ///
    /// # Errors
    /// Each with its cure.
    pub(super) fn check_growth(&self) -> Result<(), InputError> {
        let Some(last) = self.growth.last() else { return Ok(()) };
        let ascending = self.growth.windows(2).all(|pair| pair[0].epoch < pair[1].epoch);
        let message = match (self.length, &self.optimizer.decay) {
            _ if self.strategy.averaging(1, 1).is_none() => {
                "learners are those of sma and ea-sgd: take such a strategy"
            }
            _ if self.tunes => "learners = \"auto\" finds their number: give the one to begin with",
            _ if !ascending => "epochs must ascend",
            (_, Decay::Polynomial { .. } | Decay::Cosine) => {
                "a rate that falls towards the run's end needs one program from its beginning: take steps or a constant"
            }
            (Length::Steps(_), _) => "is by epochs: give epochs in place of steps",
            (Length::Epochs(epochs), _) if last.epoch >= epochs => "begins after the last epoch: take more epochs",
            _ => return Ok(()),
        };
        Err(self.locate(InputError::flag("growth", self.growth_text(), message)))
    }

    /// Refuses to add learners where a row is of one number of them: `who` has such rows.
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
}
