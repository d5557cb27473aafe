//! Times single tasks of a replica on its device, outside of any run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_data::Dataset;
use lockstep_models::{
    Area, Buffer, Copy, Elementwise, LayerId, Op, Phase, Program, Rows, SgdStep, SquareSum, Squares, Turns,
};
use lockstep_topology::Dtype;

use super::{Making, Replica};
use crate::device::cpu::Threads;
use crate::device::{DeviceError, Devices, IterationResults, Mode};
use crate::error::ExecError;
use crate::input::Decoders;
use crate::number::bytes_of_mut;
use crate::{Arenas, init};

/// After this long without a response a device counts as dead.
const PATIENCE: Duration = Duration::from_secs(600);

impl Replica {
    /// The replica of a program's first role on the device that `rank` of a run would have, its parameters drawn with `seed`.
    ///
    /// # Errors
    /// Device errors: its memory is too small for the plan.
    pub fn of_rank(devices: &dyn Devices, rank: u32, program: &Program, seed: u64) -> Result<Replica, DeviceError> {
        let (arenas, threads) = (Arenas::default(), Threads::one());
        let parameters = init::parameters(&program.model, seed);
        let (declared, decoders) = (Vec::new(), &Arc::new(Decoders::new()));
        let making = Making { devices, rank, arenas: &arenas, declared, seed, threads: &threads, decoders };
        Replica::with_parameters(program, &program.roles[0], parameters, making)
    }

    /// Runs one task of a worker's step by itself: a load of the first samples of `indices`, a pass, or an update with
    /// a rate so small that the weights keep their values however often it is timed. Ignores other tasks.
    ///
    /// # Errors
    /// Device errors.
    pub fn alone(&mut self, op: &Op, data: &Dataset, indices: &[u32]) -> Result<(), ExecError> {
        match op {
            Op::Load { samples: 0, .. } | Op::Compute { samples: 0, .. } => Ok(()),
            Op::Load { samples, into: None, .. } => self.load(data, first(indices, *samples), 0),
            Op::Load { samples, .. } => {
                // Samples for another buffer are drawn into their own memory first.
                let indices = first(indices, *samples);
                let bytes = indices.len() as u64 * data.sample().bytes();
                let mut samples = vec![0.0f32; bytes.div_ceil(Dtype::F32.bytes(1)) as usize];
                let mut labels = vec![0; indices.len() * data.labels_each()];
                data.draw(indices, self.seed, 0, &mut bytes_of_mut(&mut samples)[..bytes as usize], &mut labels)?;
                std::hint::black_box(samples.clone());
                Ok(())
            }
            Op::Compute { chain, phase: Phase::Recompute, .. } => {
                Ok(self.forward(*chain, Mode::Recompute).map(drop)?)
            }
            Op::Compute { chain, phase: Phase::Evaluate, samples, .. } => {
                Ok(self.judge(*chain, *samples as usize).map(drop)?)
            }
            Op::Compute { chain, phase: Phase::Forward, .. } => Ok(self.forward(*chain, Mode::Train).map(drop)?),
            Op::Compute { chain, phase, samples, .. } => {
                Ok(self.backward(*chain, *phase, 1.0 / *samples as f32, false).map(drop)?)
            }
            Op::Elementwise(Elementwise { range, formula, .. }) if op.update().is_some() => {
                let own = self.places.of(Buffer::State(0)).within(range.start as usize..range.end as usize);
                let formula = formula.replacing(Buffer::SUMS, Buffer::Gradients);
                Ok(self.evaluate_formula(own, &formula, &SgdStep::plain(1e-9, 0.9).into())?)
            }
            Op::Squares(Squares { range, buffer, .. }) => {
                let buffer = if *buffer == Buffer::SUMS { Buffer::Gradients } else { *buffer };
                let own = self.places.of(buffer).within(range.start as usize..range.end as usize);
                let mut sum = SquareSum::zero();
                self.add_squares(buffer, &own, &mut sum)?;
                std::hint::black_box(sum);
                Ok(())
            }
            Op::Elementwise(_)
            | Op::Repeat { .. }
            | Op::Schedule(_)
            | Op::Exchange(_)
            | Op::Copy(_)
            | Op::Labels { .. }
            | Op::Read { .. }
            | Op::Decode { .. }
            | Op::Upload { .. }
            | Op::Samples { .. }
            | Op::Save { .. }
            | Op::Host { .. } => Ok(()),
        }
    }

    /// Prepares a task to run alone: labels for as many samples as a pass takes (possibly those of several workers),
    /// and instead of other ranks' data that a copy would have brought, this rank's own, repeated.
    ///
    /// # Errors
    /// Device errors.
    pub fn ready(&mut self, op: &Op, data: &Dataset, indices: &[u32]) -> Result<(), DeviceError> {
        match op {
            Op::Compute { samples, .. }
                if *samples > 0 && *samples as usize * data.labels_each() != self.labels.len() =>
            {
                self.labels = data.labels_of(first(indices, *samples));
                self.device.turn_to(&self.labels, &(0..u64::from(*samples)).collect::<Vec<u64>>())
            }
            Op::Copy(copies) => match copies.first().to {
                Area::Activation(to) => match self.model.node(to).inputs.first() {
                    Some(from) if self.model.node(to).layer.is_relayout() => self.repeat(*from, to),
                    _ => Ok(()),
                },
                Area::Gradient(to) => {
                    let is_relayout = |id: &&LayerId| self.model.node(**id).layer.is_relayout();
                    match self.model.consumers(to).iter().find(is_relayout) {
                        Some(from) => self.cut(*from, to),
                        None => Ok(()),
                    }
                }
                Area::Buffer(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Fills the output of `to` with that of `from`, which has fewer features or fewer samples.
    fn repeat(&mut self, from: LayerId, to: LayerId) -> Result<(), DeviceError> {
        let [(own, samples), (whole, all)] = [from, to].map(|id| {
            let each = self.model.node(id).output.elements();
            let elements = self.plan.outputs[id.index()]
                .as_ref()
                .map_or(self.samples as u64 * each, |range| self.plan.elements(range));
            (each, elements / each.max(1))
        });
        let rows = if own == whole {
            let block = |first: u64| Rows::one(samples.min(all - first) * own, 0, first * own);
            (0..all).step_by(samples.max(1) as usize).map(block).collect()
        } else {
            let block = |first: u64| Rows {
                count: samples.min(all),
                length: own.min(whole - first),
                from: (0, own),
                to: (first, whole),
            };
            (0..whole).step_by(own.max(1) as usize).map(block).collect()
        };
        let (from, to) = (Area::Activation(from), Area::Activation(to));
        self.copy(&Copy { from, to, rows, add: false, clear: false, turns: Turns::ONE })
    }

    /// Fills the gradient of `to` with the beginning of the gradient of `from`, which comes later in the model and is
    /// larger.
    fn cut(&mut self, from: LayerId, to: LayerId) -> Result<(), DeviceError> {
        let elements = |id: LayerId| self.plan.gradients[id.index()].as_ref().map(|range| self.plan.elements(range));
        let (Some(given), Some(taken)) = (elements(from), elements(to)) else { return Ok(()) };
        let [whole, own] = [from, to].map(|id| self.model.node(id).output.elements());
        let count = (given / whole.max(1)).min(taken / own.max(1));
        let rows = vec![Rows { count, length: own.min(whole), from: (0, whole), to: (0, own) }];
        let (from, to) = (Area::Gradient(from), Area::Gradient(to));
        self.copy(&Copy { from, to, rows, add: false, clear: false, turns: Turns::ONE })
    }

    /// Records when the device has done all work submitted so far; the n-th mark of an iteration is the n-th of its
    /// times.
    ///
    /// # Errors
    /// Device errors.
    pub fn mark(&mut self) -> Result<(), DeviceError> {
        self.device.mark().map(drop)
    }

    /// Keeps the device busy, so that work submitted next is queued before the device gets to it: its times are then
    /// the device's own and not those of the host that submits it.
    ///
    /// # Errors
    /// Device errors.
    pub fn delay(&mut self, times: u32) -> Result<(), DeviceError> {
        self.device.delay(times)
    }

    /// Ends an iteration; [`Replica::wait_for_iteration`] returns its times.
    ///
    /// # Errors
    /// Device errors.
    pub fn end_iteration(&mut self) -> Result<(), DeviceError> {
        self.device.end_iteration()
    }

    /// The results of the oldest ended iteration, once it is done.
    ///
    /// # Errors
    /// Device errors; not done after ten minutes.
    pub fn wait_for_iteration(&mut self) -> Result<IterationResults, DeviceError> {
        let began = Instant::now();
        loop {
            if let Some(results) = self.device.finished_iteration()? {
                return Ok(results);
            }
            if began.elapsed() > PATIENCE {
                let reason = format!("that a step is not done after {} s", PATIENCE.as_secs());
                return Err(DeviceError::Lost { call: "the wait for a step".to_owned(), reason });
            }
            std::thread::yield_now();
        }
    }
}

/// The first `samples` indices, or all there are.
fn first(indices: &[u32], samples: u32) -> &[u32] {
    &indices[..indices.len().min(samples as usize)]
}
