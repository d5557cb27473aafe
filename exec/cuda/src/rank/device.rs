//! What a rank is told, as work on its streams.

use std::ops::Range;

use lockstep_exec::Arena;
use lockstep_exec::device::{
    Arrival, Backward, Device, DeviceError, Forward, GroupId, Loss, Mark, Place, Settled, Spot, Step, Values,
};
use lockstep_exec::transport::RegionMut;
use lockstep_models::{Buffer, Copy};

use super::lanes::Lane;
use super::numbers::{activations, floats, numbers};
use super::{ELEMENT, Lying, Rank, Work, moves};
use crate::driver::{Communicator, DeviceMemory, Fill};
use crate::layers::{self, Gradients};
use crate::{Activation, View, ViewMut};

/// Bytes of a fill that delays a device: more than its caches hold, so that one takes tens of microseconds.
const BALLAST: u64 = 64 << 20;

impl<A: Activation> Device for Rank<A> {
    fn host(&mut self, buffer: Buffer) -> Result<&Arena, DeviceError> {
        self.held_mut(buffer).host()
    }

    fn bring_out(&mut self, buffer: Buffer, range: Range<usize>) -> Result<Option<Arrival>, DeviceError> {
        self.flush()?;
        self.lanes.order(Lane::Out, &[Lane::Compute, Lane::Average, Lane::In])?;
        let event = self.event()?;
        let (device, host, bytes) = self.held_mut(buffer).both(&range)?;
        let stream = self.lanes.give(Lane::Out);
        // SAFETY: both are this rank's, with as many bytes; messages read the host's when the event has passed.
        unsafe { stream.download(host, device, bytes) }?;
        self.leave_behind(event).map(Some)
    }

    fn expose(&mut self) -> Result<Option<Arrival>, DeviceError> {
        self.flush()?;
        self.lanes.order(Lane::Out, &[Lane::Compute, Lane::Average, Lane::In])?;
        let event = self.event()?;
        self.leave_behind(event).map(Some)
    }

    fn region(&self, buffer: Buffer, range: Range<usize>) -> Option<RegionMut> {
        let view = self.held(buffer).view_mut(&range);
        // SAFETY: the memory and the port are this rank's, whose device outlives its end of the wires.
        Some(unsafe { RegionMut::on(self.port(), view.address(), range.len()) })
    }

    fn landing(&mut self, elements: usize) -> Result<RegionMut, DeviceError> {
        let bytes = elements as u64 * ELEMENT;
        let memory = DeviceMemory::new(&self.gpu.context, "parts of sums that arrive", bytes, Fill::Poison)?;
        let address = memory.address();
        self.landings.push(memory);
        // SAFETY: as above, and nobody else knows of it.
        Ok(unsafe { RegionMut::on(self.port(), address, elements) })
    }

    fn arrived(&mut self, arrival: Arrival) -> Result<bool, DeviceError> {
        self.gpu.context.bind()?;
        let Some(index) = self.leaving.iter().position(|(number, _)| *number == arrival.0) else { return Ok(true) };
        if !self.leaving[index].1.finished()? {
            return Ok(false);
        }
        let (_, event) = self.leaving.swap_remove(index);
        self.spare.push(event);
        Ok(true)
    }

    fn bring_in(&mut self, buffer: Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        self.gpu.context.bind()?;
        let (device, host, bytes) = self.held_mut(buffer).both(&range)?;
        let stream = self.lanes.give(Lane::In);
        // SAFETY: as above; the next exchange of the range begins with a copy that comes after this one.
        unsafe { stream.upload(device, host, bytes) }
    }

    fn new_group(&mut self) -> Result<GroupId, DeviceError> {
        Communicator::id(&self.gpu.context)
    }

    fn join(&mut self, group: usize, id: &GroupId, member: u32, members: u32) -> Result<(), DeviceError> {
        self.groups.join(group, &self.gpu.context, (id, member, members))
    }

    fn sum(&mut self, group: usize, buffer: Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        self.flush()?;
        let address = self.held(buffer).memory().address();
        self.groups.sum(group, address, &range, &mut self.lanes)
    }

    fn leave(&mut self, group: usize) -> Result<(), DeviceError> {
        self.groups.leave(group)
    }

    fn is_ready(&mut self, group: usize) -> Result<bool, DeviceError> {
        self.gpu.context.bind()?;
        self.groups.is_ready(group, &mut self.lanes)
    }

    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError> {
        self.quiesce()?;
        let all = self.values(values).all().view();
        Ok(floats(&self.fetch(all)?))
    }

    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError> {
        self.quiesce()?;
        let content: Vec<u8> = content.iter().flat_map(|value| value.to_le_bytes()).collect();
        let held = self.values(values);
        self.lanes.stream(Lane::Compute).write(held.memory(), 0, &content)?;
        Ok(())
    }

    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError> {
        self.quiesce()?;
        let (to, from) = (self.held(to).all(), self.held(from).all());
        let bytes = to.elements().min(from.elements()) * ELEMENT;
        // SAFETY: both are this rank's, with at least as many bytes, and are two buffers.
        unsafe { self.lanes.give(Lane::Compute).copy(to.address(), from.address(), bytes) }
    }

    fn input(&mut self) -> Result<&mut [f32], DeviceError> {
        self.gpu.context.bind()?;
        self.samples.room()
    }

    fn load(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        self.samples.take(&mut self.lanes)?;
        self.samples.arrange::<A>(&mut self.gathered);
        Ok(())
    }

    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError> {
        self.flush()?;
        self.samples.note(labels, places, &mut self.lanes)
    }

    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError> {
        if !self.averages {
            self.wait_for(&[Lane::In])?;
        }
        let output = self.view(&pass.output, ViewMut::new(0, 0))?;
        let inputs = pass.inputs.iter().map(|place| Ok(self.view(place, output)?.view()));
        let inputs: Vec<View<A>> = inputs.collect::<Result<_, DeviceError>>()?;
        let is_last = pass.chain + 1 == self.chains.len();
        let pending = self.pending.take();
        let of = &mut self.chains[pass.chain];
        match &mut of.work {
            Work::Loss(loss, _) => {
                pending.into_iter().for_each(|pending| pending.finish(&mut self.gathered));
                loss.forward(inputs[0], self.samples.labels(), &mut self.gathered);
                if is_last {
                    self.flush()?;
                    if let Work::Loss(loss, _) = &self.chains[pass.chain].work {
                        self.due.bring(loss, &mut self.lanes)?;
                    }
                }
            }
            Work::Kernel(kernel) => {
                kernel.draw(pass.draw, self.samples.places());
                let parameters = self.parameters.view(&of.parameters);
                let statistics = self.statistics.view_mut(&of.statistics);
                let forward = layers::Forward { mode: pass.mode, inputs: &inputs, parameters, statistics, output };
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

    fn backward(&mut self, pass: &Backward<'_>) -> Result<(), DeviceError> {
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
        let of = &self.chains[pass.chain];
        match &of.work {
            Work::Loss(loss, weight) => {
                if let Some(Some((d_logits, adds))) = d_inputs.first() {
                    loss.backward(pass.scale * *weight, *d_logits, *adds, &mut self.gathered);
                }
            }
            Work::Kernel(kernel) => {
                let own = |adds| (self.gradients.view_mut(&of.parameters), adds);
                let gradients = Gradients {
                    inputs: &inputs,
                    output,
                    parameters: self.parameters.view(&of.parameters),
                    d_output,
                    d_inputs: &d_inputs,
                    d_parameters: pass.d_parameters.filter(|_| !of.parameters.is_empty()).map(own),
                };
                kernel.backward(&gradients, self.scratch.address(), &mut self.gathered);
            }
        }
        Ok(())
    }

    fn judge(&mut self, chain: usize, logits: &Place, samples: usize) -> Result<Loss, DeviceError> {
        self.gather();
        let logits = self.view(logits, ViewMut::new(0, 0))?.view();
        let labels = self.samples.labels();
        let Work::Loss(loss, _) = &mut self.chains[chain].work else { return Ok(Loss::default()) };
        let (samples, each) = (samples as u64, logits.elements() / labels.elements().max(1));
        loss.forward(logits.part(0..samples * each), labels.part(0..samples), &mut self.gathered);
        let (totals, counts) = (loss.totals(), loss.counts());
        let (sum, correct) = (self.fetch(totals)?, self.fetch(counts)?);
        let correct = numbers(&correct, u32::from_le_bytes).first().copied().unwrap_or(0);
        let sum = numbers(&sum, f64::from_le_bytes).first().copied().unwrap_or(0.0);
        Ok(Loss { sum, correct: correct as usize })
    }

    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError> {
        let Work::Loss(loss, _) = &self.chains[chain].work else { return Ok(Vec::new()) };
        let losses = loss.losses();
        Ok(numbers(&self.fetch(losses)?, f64::from_le_bytes))
    }

    fn tensor(&mut self, place: &Place) -> Result<Vec<f32>, DeviceError> {
        let view = self.view(place, ViewMut::new(0, 0))?.view();
        Ok(activations(&self.fetch(view)?, A::SCALAR))
    }

    fn step(&mut self, range: Range<usize>, step: &Step) -> Result<(), DeviceError> {
        let lane = match step {
            Step::Sgd(_) | Step::Descend(_) | Step::Correct { .. } => Lane::Compute,
            Step::MoveReference { .. } | Step::Average { .. } => Lane::Average,
        };
        let command = self.move_of(range, step);
        self.flush()?;
        match lane {
            // A learner's own step needs nothing that others have sent.
            Lane::Compute if matches!(step, Step::Descend(_)) => {}
            Lane::Compute => self.lanes.order(lane, &[Lane::In, Lane::Average])?,
            _ => self.lanes.order(lane, &[Lane::In])?,
        }
        self.play(lane, &[command])?;
        if matches!(step, Step::Correct { .. }) {
            // A single learner's average model has no exchange to wait for.
            self.lanes.order(Lane::Average, &[Lane::Compute])?;
        }
        Ok(())
    }

    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError> {
        self.gather();
        self.wait_for(&[Lane::In, Lane::Average])?;
        let (from, to, into) = (self.spot(from)?, self.spot(to)?, &mut self.gathered);
        match (from, to) {
            (Lying::Buffer(from), Lying::Buffer(to)) => moves::copy(of, from.view(), to, into),
            (Lying::Buffer(from), Lying::Tensor(to)) => moves::copy(of, from.view(), to, into),
            (Lying::Tensor(from), Lying::Buffer(to)) => moves::copy(of, from.view(), to, into),
            (Lying::Tensor(from), Lying::Tensor(to)) => moves::copy(of, from.view(), to, into),
        }
        Ok(())
    }

    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError> {
        if !self.poison || self.arena.is_none() {
            return Ok(());
        }
        if ranges.iter().all(Range::is_empty) {
            return Ok(());
        }
        self.flush()?;
        let (each, arena, stream) = (A::SCALAR.bytes(), self.arena()?, self.lanes.give(Lane::Compute));
        for range in ranges {
            // SAFETY: the ranges are the plan's, within the arena, and nobody reads them any more.
            unsafe { stream.fill(arena + range.start as u64 * each, 0xff, range.len() as u64 * each) }?;
        }
        Ok(())
    }

    fn release(&mut self) {
        let Some(lent) = self.arena.take() else { return };
        // Where this fails the device is lost, as the next call says.
        let behind = self.flush().and_then(|()| lent.free.record(self.lanes.stream(Lane::Compute)));
        if behind.is_ok() {
            self.gpu.take_back(lent);
        }
    }

    fn scratch_bytes(&mut self) -> (usize, usize) {
        let executor = self.graphs.executor();
        let scratch = self.scratch.bytes() + self.kept.bytes() + executor.workspace_bytes();
        (self.arena_bytes() as usize, scratch as usize)
    }

    fn defers(&self) -> bool {
        true
    }

    fn delay(&mut self, times: u32) -> Result<(), DeviceError> {
        self.flush()?;
        let memory = match self.ballast.take() {
            Some(memory) => memory,
            None => DeviceMemory::new(&self.gpu.context, "what delays a device", BALLAST, Fill::Poison)?,
        };
        let (address, bytes) = (memory.address(), memory.bytes());
        self.ballast = Some(memory);
        let stream = self.lanes.give(Lane::Compute);
        for _ in 0..times {
            // SAFETY: the memory is this rank's, which nobody reads.
            unsafe { stream.fill(address, 0, bytes) }?;
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<Mark, DeviceError> {
        // What is left undone is the next chain's, marked or not: times are those of a step that nobody marks.
        self.give_gathered()?;
        self.due.mark(&mut self.lanes)
    }

    fn seal(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        self.due.seal(&mut self.lanes)
    }

    fn settled(&mut self) -> Result<Option<Settled>, DeviceError> {
        self.gpu.context.bind()?;
        self.due.settled()
    }
}
