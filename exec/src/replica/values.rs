//! Reads and replaces a replica's parameters, gradients, optimizer state and statistics as a whole.

use std::ops::Range;

use lockstep_models::memory::ElementAddresses;
use lockstep_models::{BoundFormula, Buffer, SquareSum};

use super::Replica;
use crate::device::{DeviceError, Values};

impl Replica {
    /// Learnable parameters.
    ///
    /// # Errors
    /// Device errors.
    pub fn parameters(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.values_of(Buffer::Parameters)
    }

    /// Replaces the learnable parameters.
    ///
    /// # Errors
    /// Device errors.
    pub fn set_parameters(&mut self, parameters: &[f32]) -> Result<(), DeviceError> {
        self.set_values_of(Buffer::Parameters, parameters)
    }

    /// The parameters' gradients, summed over the micro-batches of a step. Where buckets share memory, the latest
    /// contents.
    ///
    /// # Errors
    /// Device errors.
    pub fn gradients(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.values_of(Buffer::Gradients)
    }

    /// Replaces the gradients, which share no memory, by a sum made elsewhere.
    ///
    /// # Errors
    /// Device errors.
    pub fn set_gradients(&mut self, gradients: &[f32]) -> Result<(), DeviceError> {
        self.set_values_of(Buffer::Gradients, gradients)
    }

    /// The elements of a buffer, in order.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn values_of(&mut self, buffer: Buffer) -> Result<Vec<f32>, DeviceError> {
        let (places, values) = (self.places.of(buffer), Values::Buffer(buffer));
        if let Some(memory) = self.device.lent(values) {
            return Ok(places.gather(memory));
        }
        let memory = self.device.read(values)?;
        Ok(if is_whole(places, &memory) { memory } else { places.gather(&memory) })
    }

    /// The same without a copy, where host memory holds all elements in order; called between tasks, when nothing is in
    /// flight.
    pub(crate) fn lent_values_of(&self, buffer: Buffer) -> Option<&[f32]> {
        self.device.lent(Values::Buffer(buffer)).filter(|memory| is_whole(self.places.of(buffer), memory))
    }

    /// Replaces the elements of a buffer.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn set_values_of(&mut self, buffer: Buffer, values: &[f32]) -> Result<(), DeviceError> {
        self.device.write(Values::Buffer(buffer), &self.places.of(buffer).spread(values))
    }

    /// The place of elements `range` of a buffer.
    pub(crate) fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.places.place(buffer, range)
    }

    /// Evaluates a formula on a range of its buffers, piece by piece where the range is not contiguous in memory.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn apply(&mut self, range: Range<usize>, formula: &BoundFormula) -> Result<(), DeviceError> {
        let buffers: Vec<Buffer> = formula.buffers.iter().map(|of| of.buffer).collect();
        let pieces = self.places.pieces(&buffers, &range);
        // In a padded bucket the last ranks may have no part.
        pieces.into_iter().filter(|piece| !piece.is_empty()).try_for_each(|piece| self.device.apply(piece, formula))
    }

    /// Adds the squares of the elements `range` of a buffer to a sum.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn add_squares(
        &mut self,
        buffer: Buffer,
        range: &Range<usize>,
        sum: &mut SquareSum,
    ) -> Result<(), DeviceError> {
        let pieces = self.places.pieces(&[buffer], range);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let place = self.places.place(buffer, piece);
            match self.device.lent(Values::Buffer(buffer)) {
                Some(memory) => sum.add(&memory[place]),
                None => sum.add(&self.device.read_part(buffer, place)?),
            }
        }
        Ok(())
    }

    /// Reads the gradients of a range as messages would, as [`Replica::warm_inputs`] does for a chain.
    pub fn warm_gradients(&mut self, range: Range<usize>) {
        let Ok(host) = self.device.host(Buffer::Gradients) else { return };
        for piece in self.places.pieces(&[Buffer::Gradients], &range).into_iter().filter(|piece| !piece.is_empty()) {
            // SAFETY: between tasks no message is in flight and nothing writes.
            let gradients = unsafe { host.bytes(self.places.place(Buffer::Gradients, &piece)) };
            std::hint::black_box(gradients.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
        }
    }

    /// What the optimizer keeps, state by state and by parameter: zero for parameters that this rank does not update.
    ///
    /// # Errors
    /// Device errors.
    pub fn states(&mut self) -> Result<Vec<Vec<f32>>, DeviceError> {
        self.places.states().map(|state| self.values_of(state)).collect()
    }

    /// As [`Replica::states`], after the last step: each state's memory is free once it is read, and so is that of gradients.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn take_states(&mut self) -> Result<Vec<Vec<f32>>, DeviceError> {
        self.device.free(Buffer::Gradients);
        let states = self.places.states();
        let take = |state: Buffer| {
            let values = self.values_of(state)?;
            self.device.free(state);
            Ok(values)
        };
        states.map(take).collect()
    }

    /// Replaces the states by those of all parameters in an earlier run.
    ///
    /// # Errors
    /// Device errors.
    pub fn set_states<V: AsRef<[f32]>>(&mut self, states: impl IntoIterator<Item = V>) -> Result<(), DeviceError> {
        self.places.states().zip(states).try_for_each(|(state, values)| self.set_values_of(state, values.as_ref()))
    }

    /// Running statistics of batch normalisation.
    ///
    /// # Errors
    /// Device errors.
    pub fn statistics(&mut self) -> Result<Vec<f32>, DeviceError> {
        self.device.read(Values::Statistics)
    }

    /// Replaces the running statistics, for example by their mean over ranks.
    ///
    /// # Errors
    /// Device errors.
    pub fn set_statistics(&mut self, statistics: &[f32]) -> Result<(), DeviceError> {
        self.device.write(Values::Statistics, statistics)
    }
}

/// Whether `memory` is all elements of a buffer, in order.
fn is_whole(places: &ElementAddresses, memory: &[f32]) -> bool {
    places.is_in_order() && memory.len() == places.elements()
}
