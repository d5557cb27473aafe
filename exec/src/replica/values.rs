//! What a replica's training has made so far, read and replaced as a whole; and where buffers lie.

use std::ops::Range;

use lockstep_models::{BoundFormula, Buffer};

use super::Replica;
use crate::device::{DeviceError, Values};

impl Replica {
    /// Learnable parameters.
    ///
    /// # Errors
    /// The device's.
    pub fn parameters(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.values_of(Buffer::Parameters)
    }

    /// Replaces the learnable parameters.
    ///
    /// # Errors
    /// The device's.
    pub fn set_parameters(&mut self, parameters: &[f32]) -> Result<(), DeviceError> {
        self.set_values_of(Buffer::Parameters, parameters)
    }

    /// The parameters' gradients, summed over the micro-batches of a step: what lies there now where buckets share places.
    ///
    /// # Errors
    /// The device's.
    pub fn gradients(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.values_of(Buffer::Gradients)
    }

    /// Replaces the gradients, which share no places, by a sum made elsewhere.
    ///
    /// # Errors
    /// The device's.
    pub fn set_gradients(&mut self, gradients: &[f32]) -> Result<(), DeviceError> {
        self.set_values_of(Buffer::Gradients, gradients)
    }

    /// The elements of a buffer in their order.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn values_of(&mut self, buffer: Buffer) -> Result<Vec<f32>, DeviceError> {
        Ok(self.places.of(buffer).gather(&self.device.read(Values::Buffer(buffer))?))
    }

    /// Replaces the elements of a buffer.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn set_values_of(&mut self, buffer: Buffer, values: &[f32]) -> Result<(), DeviceError> {
        self.device.write(Values::Buffer(buffer), &self.places.of(buffer).spread(values))
    }

    /// Where elements `range` of a buffer lie.
    pub(crate) fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.places.place(buffer, range)
    }

    /// Does to a range of its buffers what a formula says, piece by piece where parts of it lie apart.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn apply(&mut self, range: Range<usize>, formula: &BoundFormula) -> Result<(), DeviceError> {
        let buffers: Vec<Buffer> = formula.buffers.iter().map(|of| of.buffer).collect();
        let pieces = self.places.pieces(&buffers, &range);
        // Of a padded bucket the last ranks may have no part.
        pieces.into_iter().filter(|piece| !piece.is_empty()).try_for_each(|piece| self.device.apply(piece, formula))
    }

    /// Reads the gradients of a range where messages would, as [`Replica::warm_inputs`] does for a chain.
    pub fn warm_gradients(&mut self, range: Range<usize>) {
        let Ok(host) = self.device.host(Buffer::Gradients) else { return };
        for piece in self.places.pieces(&[Buffer::Gradients], &range).into_iter().filter(|piece| !piece.is_empty()) {
            // SAFETY: between tasks no message is in flight and nothing writes.
            let gradients = unsafe { host.slice(self.places.place(Buffer::Gradients, &piece)) };
            std::hint::black_box(gradients.iter().step_by(16).sum::<f32>());
        }
    }

    /// The optimizer's momentum buffer, by parameter: zero for those that this rank does not update.
    ///
    /// # Errors
    /// The device's.
    pub fn velocity(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.values_of(Buffer::Momentum)
    }

    /// Replaces the momentum buffer, by that of all parameters in an earlier run.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn set_velocity(&mut self, velocity: &[f32]) -> Result<(), DeviceError> {
        self.set_values_of(Buffer::Momentum, velocity)
    }

    /// Running statistics of batch normalisation.
    ///
    /// # Errors
    /// The device's.
    pub fn statistics(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.device.read(Values::Statistics)
    }

    /// Replaces the running statistics, e.g. by their mean over ranks.
    ///
    /// # Errors
    /// The device's.
    pub fn set_statistics(&mut self, statistics: &[f32]) -> Result<(), DeviceError> {
        self.device.write(Values::Statistics, statistics)
    }
}
