//! What moves a rank's buffers, as commands: steps on parameters, and rows from one place to another.

use std::ops::Range;

use lockstep_exec::device::Step;
use lockstep_models::{Averaging, Buffer, Copy, SgdStep};

use super::Rank;
use crate::kernel::Launch;
use crate::table::{Average, Correct, Descend, MoveReference, MoveRows, SgdUpdate};
use crate::{Activation, Command, View, ViewMut};

impl<A: Activation> Rank<A> {
    /// The launch that moves a range of the parameters.
    pub(super) fn move_of(&self, range: Range<usize>, step: &Step) -> Command {
        let write = |buffer| self.held(buffer).view_mut(&range);
        let read = |buffer| self.held(buffer).view(&range);
        let (first, elements) = (range.start as u64, range.len() as u64);
        let call = match *step {
            Step::Sgd(step) => {
                let SgdStep { rate, gradient: part, keep, momentum, absorbed, nesterov, weight_decay, .. } = step;
                let (weights, gradient) = (write(Buffer::Parameters), read(Buffer::Gradients));
                let (velocity, mask) = (self.velocity.view_mut(&self.updated.place(&range)), self.mask(&step));
                SgdUpdate {
                    weights,
                    velocity,
                    gradient,
                    mask,
                    first,
                    elements,
                    rate,
                    part,
                    keep,
                    momentum,
                    weight_decay,
                    absorbed,
                    nesterov,
                }
                .call()
            }
            Step::Descend(step) => {
                let SgdStep { rate, weight_decay, .. } = step;
                let (weights, gradient) = (write(Buffer::Parameters), read(Buffer::Gradients));
                let mask = self.mask(&step);
                Descend { weights, gradient, mask, first, elements, rate, weight_decay }.call()
            }
            Step::Correct { step, alpha, consensus, learned } => {
                let SgdStep { rate, weight_decay, .. } = step;
                let gradient = learned.then(|| read(Buffer::Gradients));
                let (weights, average) = (write(Buffer::Parameters), read(consensus));
                let (difference, mask) = (write(Averaging::DIFFERENCES), self.mask(&step));
                Correct { weights, gradient, average, difference, mask, first, elements, rate, weight_decay, alpha }
                    .call()
            }
            Step::MoveReference { alpha } => {
                let (reference, average) = (write(Averaging::REFERENCE), read(Averaging::AVERAGE));
                let difference = write(Averaging::DIFFERENCES);
                MoveReference { reference, average, difference, elements, alpha }.call()
            }
            Step::Average { momentum } => {
                let (average, previous) = (write(Averaging::AVERAGE), write(Averaging::PREVIOUS));
                let sum = read(Averaging::DIFFERENCES);
                let (plain, momentum) = (momentum.is_none(), momentum.unwrap_or(0.0));
                Average { average, sum, previous, elements, momentum, plain }.call()
            }
        };
        Command::Launch(call)
    }
}

/// Puts the commands that do what a copy says behind those of `into`.
pub(super) fn copy<F: Activation, T: Activation>(of: &Copy, from: View<F>, to: ViewMut<T>, into: &mut Vec<Command>) {
    if of.clear {
        into.push(Command::Zero { address: to.address(), bytes: to.elements() * T::SCALAR.bytes() });
    }
    for rows in of.rows.iter().filter(|rows| rows.count > 0 && rows.length > 0) {
        let launch = MoveRows {
            from,
            from_first: rows.from.0,
            from_stride: rows.from.1,
            to,
            to_first: rows.to.0,
            to_stride: rows.to.1,
            rows: rows.count as u32,
            length: rows.length as u32,
            accumulate: of.add,
        };
        into.push(Command::Launch(launch.call()));
    }
}
