//! Says against which model a learner is corrected: the average one, or its device's reference model (Koliousis et al. 2019 §3.3).

use crate::{Averaging, Axis, Buffer, Program};

impl Program {
    /// Which of the reference models `rank` has beside the average one, as the number of its device; the first device has none.
    pub fn reference_of(&self, rank: u32) -> Option<u32> {
        self.averaging?.reference_alpha?;
        Some(self.mesh.coordinate(Axis::Device, rank)).filter(|device| *device > 0 && rank < self.workers())
    }

    /// Whether `rank` is the first learner of its device, which hands on the reference model.
    pub fn tells_reference(&self, rank: u32) -> bool {
        self.reference_of(rank).is_some() && self.mesh.coordinate(Axis::Learner, rank) == 0
    }

    /// The model that a learner is corrected against: its device's reference, or the average model.
    pub fn consensus(&self, learner: u32) -> Buffer {
        if self.reference_of(learner).is_some() { Averaging::REFERENCE } else { Averaging::AVERAGE }
    }
}
