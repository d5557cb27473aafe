//! Names the models that learners share besides their own: the average model, and reference models of devices
//! (Koliousis et al. 2019 §3.3).

use crate::{Averaging, Axis, Buffer, Program};

/// The buffers in which a learner keeps the models that it shares; each has as many elements as the model
/// has parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedModels {
    /// The average model. It is initialized with the parameters that all learners start with.
    pub average: Buffer,
    /// The average model one synchronisation earlier; there is none before the first.
    pub previous: Buffer,
    /// The model that the learner is corrected against: its device's reference model, or the average model.
    pub consensus: Buffer,
}

impl SharedModels {
    /// The device's reference model, where it is not the average model.
    pub fn reference(&self) -> Option<Buffer> {
        Some(self.consensus).filter(|consensus| *consensus != self.average)
    }
}

impl Program {
    /// Whether workers are learners: each trains a model of its own, and a run yields their average.
    pub fn averages(&self) -> bool {
        self.averaging.is_some()
    }

    /// The models that `rank` shares with other learners; `None` where all workers train one model.
    pub fn shared_models(&self, rank: u32) -> Option<SharedModels> {
        self.averaging?;
        let consensus = if self.reference_of(rank).is_some() { Averaging::REFERENCE } else { Averaging::AVERAGE };
        Some(SharedModels { average: Averaging::AVERAGE, previous: Averaging::PREVIOUS, consensus })
    }

    /// The number of the device whose reference model `rank` has besides the average one; the first device has none.
    pub fn reference_of(&self, rank: u32) -> Option<u32> {
        self.averaging?.reference_alpha?;
        Some(self.mesh.coordinate(Axis::Device, rank)).filter(|device| *device > 0 && rank < self.workers())
    }

    /// Whether `rank` is the first learner of its device, which sends the reference model.
    pub fn sends_reference(&self, rank: u32) -> bool {
        self.reference_of(rank).is_some() && self.mesh.coordinate(Axis::Learner, rank) == 0
    }
}
