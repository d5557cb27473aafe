//! Adds learners during a run: few learners find the neighbourhood of a solution quickly, more of them explore it
//! (Koliousis et al. 2019, §3.4).

use std::fmt;
use std::str::FromStr;

/// The number of learners of each device from an epoch on.
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
