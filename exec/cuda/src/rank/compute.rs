//! Implements samples, passes and formulas of a rank, as commands and as work on its streams.

use std::ops::Range;
use std::sync::Arc;

use lockstep_data::Untransformed;
use lockstep_exec::Arena;
use lockstep_exec::BatchMemory;
use lockstep_exec::device::{Backward, Compute, DeviceError, Forward, Loss, Spot, TensorAddress};
use lockstep_models::{BoundBuffer, BoundFormula, Buffer, Copy};

use super::numbers::numbers;
use super::streams::StreamRole;
use super::{Located, Rank, Work, moves};
use crate::driver::PinnedMemory;
use crate::layers::{self, PassGradients};
use crate::{Activation, View, ViewMut};

impl<A: Activation> Compute for Rank<A> {
    fn input(&mut self) -> Result<&mut [u8], DeviceError> {
        self.gpu.context.bind()?;
        self.samples.next_buffer()
    }

    fn load(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        self.samples.take(&mut self.streams)?;
        self.samples.arrange::<A>(&mut self.gathered);
        Ok(())
    }

    fn batch_memory(&self, bytes: usize) -> Result<BatchMemory, DeviceError> {
        let pinned = PinnedMemory::new(&self.gpu.context, bytes as u64)?;
        // SAFETY: it has that many bytes, zeros, does not move, and is used through the arena alone.
        Ok(BatchMemory::new(unsafe { Arena::over(pinned.start(), bytes, Box::new(pinned)) }))
    }

    fn load_from(&mut self, memory: &Arc<BatchMemory>) -> Result<(), DeviceError> {
        self.gpu.context.bind()?;
        self.flush()?;
        self.samples.take_from(memory, &mut self.streams)?;
        self.samples.arrange::<A>(&mut self.gathered);
        Ok(())
    }

    fn transform(&mut self, samples: &Untransformed<'_>) -> Result<(), DeviceError> {
        self.gpu.context.bind()?;
        self.flush()?;
        self.samples.take_pictures(samples, &mut self.streams, &mut self.gathered)?;
        self.samples.arrange::<A>(&mut self.gathered);
        Ok(())
    }

    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError> {
        self.flush()?;
        self.samples.note(labels, places, &mut self.streams)
    }

    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError> {
        if !self.averages {
            self.wait_for(&[StreamRole::In])?;
        }
        let output = self.view(&pass.output, ViewMut::new(0, 0))?;
        let inputs = pass.inputs.iter().map(|place| Ok(self.view(place, output)?.view()));
        let inputs: Vec<View<A>> = inputs.collect::<Result<_, DeviceError>>()?;
        let is_last = pass.chain + 1 == self.at_hand().chains.len();
        let pending = self.pending.take();
        let of = &mut self.in_flight[self.at].chains[pass.chain];
        match &mut of.work {
            Work::Elsewhere => {}
            Work::Loss(loss, _) => {
                pending.into_iter().for_each(|pending| pending.finish(&mut self.gathered));
                loss.forward(inputs[0], self.samples.labels(), &mut self.gathered);
                if is_last {
                    self.flush()?;
                    if let Work::Loss(loss, _) = &self.in_flight[self.at].chains[pass.chain].work {
                        self.outstanding.copy_loss(loss, &mut self.streams)?;
                    }
                }
            }
            Work::Kernel(kernel) => {
                let places = self.samples.places();
                let skipped = u64::from(pass.draw.skipped).min(places.elements());
                kernel.draw(pass.draw, places.part(skipped..places.elements()));
                let reads = pass.inputs.contains(&TensorAddress::Input);
                if let Some(integers) = self.samples.integers().filter(|_| reads) {
                    kernel.take_integers(integers);
                }
                let layer_weights = if self.gathers { &self.weights } else { &self.parameters };
                let parameters = layer_weights.view(&of.parameters);
                let statistics = self.statistics.view_mut(&of.statistics);
                let forward = layers::ForwardPass { mode: pass.mode, inputs: &inputs, parameters, statistics, output };
                if let Some(pending) = pending {
                    if kernel.join_forward(&pending, &forward, &mut self.gathered) {
                        return Ok(None);
                    }
                    pending.finish(&mut self.gathered);
                }
                let (scratch, into) = (self.scratch.address(), &mut self.gathered);
                if of.feeds_one {
                    self.pending = kernel.begin_forward(&forward, scratch, into);
                } else {
                    kernel.forward(&forward, scratch, into);
                }
            }
        }
        Ok(None)
    }

    fn backward(&mut self, pass: &Backward<'_>) -> Result<Option<Loss>, DeviceError> {
        self.gather();
        let none = ViewMut::new(0, 0);
        let output = self.view(&pass.output, none)?.view();
        let d_output = self.view(&pass.d_output, none)?.view();
        let inputs = pass.inputs.iter().map(|place| Ok(self.view(place, none)?.view()));
        let inputs: Vec<View<A>> = inputs.collect::<Result<_, DeviceError>>()?;
        let mut d_inputs = Vec::new();
        for wanted in pass.d_inputs {
            d_inputs.push(match wanted {
                Some((place, adds)) => Some((self.view(place, none)?, *adds)),
                None => None,
            });
        }
        let of = &self.in_flight[self.at].chains[pass.chain];
        match &of.work {
            Work::Elsewhere => {}
            Work::Loss(loss, weight) => {
                if let Some(Some((d_logits, adds))) = d_inputs.first() {
                    loss.backward(pass.scale * *weight, *d_logits, *adds, &mut self.gathered);
                }
            }
            Work::Kernel(kernel) => {
                let layer_weights = if self.gathers { &self.weights } else { &self.parameters };
                let own = |adds| (self.gradients.view_mut(&of.gradients), adds);
                let gradients = PassGradients {
                    inputs: &inputs,
                    output,
                    parameters: layer_weights.view(&of.parameters),
                    d_output,
                    d_inputs: &d_inputs,
                    d_parameters: pass.d_parameters.filter(|_| !of.parameters.is_empty()).map(own),
                };
                kernel.backward(&gradients, self.scratch.address(), &mut self.gathered);
            }
        }
        Ok(None)
    }

    fn evaluate(&mut self, chain: usize, logits: &TensorAddress, samples: usize) -> Result<Loss, DeviceError> {
        self.gather();
        let logits = self.view(logits, ViewMut::new(0, 0))?.view();
        let (labels, all) = (self.samples.labels(), self.samples.count().max(1));
        let Work::Loss(loss, _) = &mut self.in_flight[self.at].chains[chain].work else { return Ok(Loss::default()) };
        let (samples, each, own) = (samples as u64, logits.elements() / all, labels.elements() / all);
        loss.forward(logits.part(0..samples * each), labels.part(0..samples * own), &mut self.gathered);
        let (totals, counts) = (loss.totals(), loss.counts());
        let (sum, correct) = (self.fetch(totals)?, self.fetch(counts)?);
        let correct = numbers(&correct, u32::from_le_bytes).first().copied().unwrap_or(0);
        let sum = numbers(&sum, f64::from_le_bytes).first().copied().unwrap_or(0.0);
        Ok(Loss { sum: sum / own.max(1) as f64, correct: correct as usize })
    }

    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError> {
        let Work::Loss(loss, _) = &self.at_hand().chains[chain].work else { return Ok(Vec::new()) };
        let (losses, each) = (loss.losses(), loss.labels_each() as usize);
        let of_labels = numbers(&self.fetch(losses)?, f64::from_le_bytes);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / each as f64;
        Ok(if each == 1 { of_labels } else { of_labels.chunks_exact(each).map(mean).collect() })
    }

    fn apply(&mut self, range: Range<usize>, formula: &BoundFormula) -> Result<(), DeviceError> {
        let buffers = &formula.buffers;
        let shared = |of: &BoundBuffer| matches!(of.buffer, Buffer::Declared(_));
        // A formula on buffers that passes do not use runs concurrently with them.
        let beside = buffers.iter().all(shared);
        let role = if beside { StreamRole::Average } else { StreamRole::Compute };
        let command = self.evaluation_of(range, formula);
        self.flush()?;
        match role {
            // A learner's own update needs no data from other ranks.
            StreamRole::Compute if self.averages && !buffers.iter().any(shared) => {}
            StreamRole::Compute => self.streams.order(role, &[StreamRole::In, StreamRole::Average])?,
            _ => self.streams.order(role, &[StreamRole::In])?,
        }
        self.play(role, &[command])?;
        if !beside && buffers.iter().any(|of| of.written && shared(of)) {
            // The average model of a single learner has no exchange to wait for.
            self.streams.order(StreamRole::Average, &[StreamRole::Compute])?;
        }
        Ok(())
    }

    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError> {
        self.gather();
        self.wait_for(&[StreamRole::In, StreamRole::Average])?;
        let (from, to, into) = (self.spot(from)?, self.spot(to)?, &mut self.gathered);
        match (from, to) {
            (Located::Buffer(from), Located::Buffer(to)) => moves::copy(of, from.view(), to, into),
            (Located::Buffer(from), Located::Tensor(to)) => moves::copy(of, from.view(), to, into),
            (Located::Tensor(from), Located::Buffer(to)) => moves::copy(of, from.view(), to, into),
            (Located::Tensor(from), Located::Tensor(to)) => moves::copy(of, from.view(), to, into),
        }
        Ok(())
    }
}
