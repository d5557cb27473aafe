//! Fuses an addition into the last launch of the batch normalisation before it, so that the normalised batch need not
//! be stored.

use super::kernel::ChainKernel;
use super::pass::ForwardPass;
use super::script::Script;
use crate::table::BatchNormForward;
use crate::{Activation, Command, KernelLaunch, View, ViewMut};

/// The last launch of a batch normalisation, not yet issued.
#[derive(Debug, Clone, Copy)]
pub struct Pending<A>(BatchNormForward<A>);

impl<A: Activation> Pending<A> {
    /// Issues it unchanged.
    pub fn finish(self, into: &mut Vec<Command>) {
        into.push(Command::Launch(self.0.call()));
    }
}

impl<A: Activation> ChainKernel<A> {
    /// As [`ChainKernel::forward`], for a chain whose output is read by a single addition: returns the last launch of a
    /// batch normalisation without a ReLU instead of issuing it.
    pub fn begin_forward(&self, of: &ForwardPass<'_, A>, scratch: u64, into: &mut Vec<Command>) -> Option<Pending<A>> {
        let mut script = Script::new(into, scratch);
        let samples = self.batch(of.output.elements());
        let pending = if self.transposition.is_none() { self.head.begin(of, samples, &mut script) } else { None };
        if pending.is_none() {
            self.forward(of, scratch, into);
        }
        pending.map(Pending)
    }

    /// As [`ChainKernel::forward`], for an addition of two inputs of which `pending` is one: in one launch, if possible.
    pub fn join_forward(&self, pending: &Pending<A>, of: &ForwardPass<'_, A>, into: &mut Vec<Command>) -> bool {
        let (Some(rectified), [left, right], true) =
            (self.head.rectified_sum(), of.inputs, self.transposition.is_none())
        else {
            return false;
        };
        let normalised = pending.0.y.view();
        let addend = match [*left == normalised, *right == normalised] {
            [true, false] => *right,
            [false, true] => *left,
            _ => return false,
        };
        // Each element is read before it is written, which is safe only if tensors coincide exactly or do not overlap.
        let whole = |tensor: View<A>| tensor == of.output.view() || are_apart(tensor, of.output);
        let possible = whole(pending.0.x) && whole(addend);
        if possible {
            let (addend, y) = (Some(addend), of.output);
            into.push(Command::Launch(BatchNormForward { addend, y, rectified, ..pending.0 }.call()));
        }
        possible
    }
}

/// Whether two tensors are disjoint.
fn are_apart<A: Activation>(one: View<A>, other: ViewMut<A>) -> bool {
    let end = |address: u64, elements: u64| address + A::SCALAR.dtype().bytes(elements);
    end(one.address(), one.elements()) <= other.address() || end(other.address(), other.elements()) <= one.address()
}
