//! Implements a device that computes nothing: a run on it shows what remains of a step when arithmetic takes no time.
//!
//! Samples are still drawn, messages sent and summed, and states saved, so its timeline is that of the executor and the
//! exchanges alone. Losses and gradients are 0, and parameters keep their values.

use std::ops::Range;

use lockstep_data::Untransformed;
use lockstep_models::memory::BufferAddresses;
use lockstep_models::{BoundFormula, Buffer, Copy, Program};

use crate::arena::Arena;

use super::{
    Backward, Blueprint, Buffers, Clock, Compute, DeviceError, Forward, Groups, InputMemory, Loss, Spot, Staging,
    Storage, TensorAddress, Values, declared_arenas,
};

/// One rank's memory, without arithmetic on it.
pub struct Null {
    buffers: Buffers,
    input: InputMemory,
    samples: usize,
    /// By chain: whether it ends in a loss.
    losses: Vec<bool>,
}

impl Null {
    /// The device of a rank.
    pub fn new(of: Blueprint<'_>) -> Null {
        let declared = declared_arenas(of.declared_numbers());
        let is_loss = |chain: usize| of.members(chain)[0].layer.is_loss();
        Null {
            input: InputMemory::new(of.input_elements(), of.program.model.sample().dtype),
            samples: 0,
            losses: (0..of.chains.len()).map(is_loss).collect(),
            buffers: Buffers::of_worker(of.program, (of.parameters, of.statistics), declared, of.places),
        }
    }

    /// The device of a dedicated server, with buffers at `places` and those that its program declares.
    pub(crate) fn of_server(program: &Program, places: BufferAddresses, declared: Vec<Arena>) -> Null {
        Null {
            buffers: Buffers::of_server(program, places, declared),
            input: InputMemory::default(),
            samples: 0,
            losses: Vec::new(),
        }
    }

    /// The place of elements `range` of a buffer.
    pub(crate) fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.buffers.place(buffer, range)
    }
}

impl Compute for Null {
    fn input(&mut self) -> Result<&mut [u8], DeviceError> {
        Ok(self.input.bytes_mut())
    }

    fn load(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn transform(&mut self, _: &Untransformed<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn turn_to(&mut self, _: &[u32], places: &[u64]) -> Result<(), DeviceError> {
        self.samples = places.len();
        Ok(())
    }

    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError> {
        Ok(self.losses[pass.chain].then(Loss::default))
    }

    fn backward(&mut self, _: &Backward<'_>) -> Result<Option<Loss>, DeviceError> {
        Ok(None)
    }

    fn evaluate(&mut self, _: usize, _: &TensorAddress, _: usize) -> Result<Loss, DeviceError> {
        Ok(Loss::default())
    }

    fn losses(&mut self, _: usize) -> Result<Vec<f64>, DeviceError> {
        Ok(vec![0.0; self.samples])
    }

    fn apply(&mut self, _: Range<usize>, _: &BoundFormula) -> Result<(), DeviceError> {
        Ok(())
    }

    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError> {
        if let (Spot::Buffer(from), Spot::Buffer(to)) = (from, to) {
            self.buffers.copy(of, *from, *to);
        }
        Ok(())
    }
}

impl Storage for Null {
    fn turn_to_context(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError> {
        Ok(self.buffers.read(values))
    }

    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError> {
        self.buffers.write(values, content);
        Ok(())
    }

    fn write_bytes(&mut self, buffer: Buffer, content: &[u8]) -> Result<(), DeviceError> {
        self.buffers.write_bytes(buffer, content);
        Ok(())
    }

    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError> {
        self.buffers.assign(to, from);
        Ok(())
    }

    fn tensor(&mut self, _: &TensorAddress) -> Result<Vec<f32>, DeviceError> {
        Ok(Vec::new())
    }

    fn forget(&mut self, _: &[Range<usize>]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn release(&mut self) {}
}

impl Staging for Null {
    fn host(&mut self, buffer: Buffer) -> Result<&Arena, DeviceError> {
        Ok(self.buffers.arena(buffer))
    }
}

impl Groups for Null {}

impl Clock for Null {}
