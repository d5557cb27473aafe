//! Names the models that learners share besides their own: the average model of a device, and its reference model
//! (Koliousis et al. 2019 §3.3, §4.2).

use crate::{Averaging, Axis, AxisSet, Buffer, Members, Program};

/// The buffers in which the first learner of a device keeps the models of the device; each has as many elements as the
/// model has parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedModels {
    /// The average model. It is initialized with the parameters that all learners start with.
    pub average: Buffer,
    /// The average model one synchronisation earlier; there is none before the first.
    pub previous: Buffer,
    /// The device's reference model, where it is not the average model.
    pub reference: Option<Buffer>,
}

impl Program {
    /// Whether workers are learners: each trains a model of its own, and a run yields their average.
    pub fn averages(&self) -> bool {
        self.averaging.is_some()
    }

    /// The models that `rank` keeps for the learners of its device; `None` where another learner does, and where all
    /// workers train one model.
    pub fn shared_models(&self, rank: u32) -> Option<SharedModels> {
        self.averaging?;
        let reference = self.reference_of(rank).map(|_| Averaging::REFERENCE);
        let models = SharedModels { average: Averaging::AVERAGE, previous: Averaging::PREVIOUS, reference };
        (self.learners_beside(rank).first() == rank).then_some(models)
    }

    /// Where each learner has, between iterations, the model that it is corrected against next: what the first learner of its
    /// device has delivered. `None` where no learners share a device.
    pub fn delivered(&self) -> Option<Buffer> {
        self.averaging?;
        self.devices.is_some().then_some(Averaging::DIFFERENCES)
    }

    /// The learners of the device of `rank`, itself among them.
    pub fn learners_beside(&self, rank: u32) -> Members {
        match self.devices {
            Some(_) if rank < self.workers() => self.mesh.group_of(AxisSet::of(&[Axis::Learner]), rank),
            _ => Members::range(rank, 1),
        }
    }

    /// The number of the device whose reference model `rank` follows, where that is not the average model: on the first
    /// device it is.
    pub fn reference_of(&self, rank: u32) -> Option<u32> {
        self.averaging?.reference_alpha?;
        Some(self.mesh.coordinate(Axis::Device, rank)).filter(|device| *device > 0 && rank < self.workers())
    }

    /// Whether `rank` is the first learner of a device with a reference model, which it sends.
    pub fn sends_reference(&self, rank: u32) -> bool {
        self.shared_models(rank).is_some_and(|shared| shared.reference.is_some())
    }
}
