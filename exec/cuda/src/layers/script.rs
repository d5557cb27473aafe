//! Collects the commands of a pass, and allocates its scratch.

use crate::table::{MoveRows, Permute, ReluBackward};
use crate::{Activation, Command, Convolve, KernelLaunch, Multiply, View, ViewMut};

/// Alignment of our tensors.
pub(super) const ALIGNMENT: u64 = 256;

/// A pass's commands.
pub(super) struct Script<'a> {
    into: &'a mut Vec<Command>,
    scratch: u64,
    taken: u64,
}

impl Script<'_> {
    /// A pass whose commands are appended to `into`, with scratch from address `scratch` on.
    pub(super) fn new(into: &mut Vec<Command>, scratch: u64) -> Script<'_> {
        Script { into, scratch, taken: 0 }
    }

    /// Bytes of scratch that the pass has taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Allocates a tensor for this pass alone, with arbitrary content.
    pub(super) fn take<T>(&mut self, elements: u64) -> ViewMut<T> {
        let tensor = ViewMut::new(self.scratch + self.taken, elements);
        self.taken += (elements * size_of::<T>() as u64).next_multiple_of(ALIGNMENT);
        tensor
    }

    /// Allocates a tensor of the size and misalignment of `target`, so that cuBLASLt, which considers alignment,
    /// chooses the same algorithm.
    pub(super) fn take_like<T>(&mut self, target: ViewMut<f32>) -> ViewMut<T> {
        let shift = target.address() % ALIGNMENT / size_of::<T>() as u64;
        self.take(shift + target.elements()).part(shift..shift + target.elements())
    }

    pub(super) fn launch(&mut self, kernel: &impl KernelLaunch) {
        self.into.push(Command::Launch(kernel.call()));
    }

    pub(super) fn convolve(&mut self, convolve: Convolve) {
        self.into.push(Command::Convolve(convolve));
    }

    pub(super) fn multiply(&mut self, multiply: Multiply) {
        self.into.push(Command::Multiply(multiply));
    }

    /// `to ← from`, or `to ← to + from`, rounded once.
    pub(super) fn merge<F: Activation, T: Activation>(&mut self, from: View<F>, to: ViewMut<T>, accumulate: bool) {
        let elements = to.elements();
        self.rows((from, 0, elements), (to, 0, elements), (1, count(elements)), accumulate);
    }

    /// Copies rows from one tensor to another, each with its first element and row stride.
    pub(super) fn rows<F: Activation, T: Activation>(
        &mut self,
        (from, from_first, from_stride): (View<F>, u64, u64),
        (to, to_first, to_stride): (ViewMut<T>, u64, u64),
        (rows, length): (u32, u32),
        accumulate: bool,
    ) {
        self.launch(&MoveRows { from, from_first, from_stride, to, to_first, to_stride, rows, length, accumulate });
    }

    /// `d_y` where `y` is above 0, in scratch.
    pub(super) fn before_relu<A: Activation>(&mut self, d_y: View<A>, y: View<A>) -> ViewMut<A> {
        let (d_x, elements) = (self.take(d_y.elements()), count(d_y.elements()));
        let (d_other, accumulate, accumulate_other) = (None, false, false);
        self.launch(&ReluBackward { d_y, y, d_x, d_other, elements, accumulate, accumulate_other });
        d_x
    }

    /// Transposes `[samples, rows, columns]` at `from` to `[samples, columns, rows]` at `to`, replacing existing values
    /// or adding to them.
    pub(super) fn turn<F: Activation, T: Activation>(
        &mut self,
        from: View<F>,
        to: ViewMut<T>,
        (samples, rows, columns): (u32, u32, u32),
        accumulate: bool,
    ) {
        self.launch(&Permute { from, to, samples, rows, columns, accumulate });
    }
}

/// Number of elements of a tensor, as kernels count them.
pub(super) fn count(elements: u64) -> u32 {
    u32::try_from(elements).expect("`Kernel::fits` has looked at the sizes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_consecutive_and_aligned_as_its_model() {
        let mut commands = Vec::new();
        let mut script = Script::new(&mut commands, 0x1000);
        assert_eq!(script.take::<u16>(129).address(), 0x1000); // 258 bytes, of which two begin a new line
        let like = script.take_like::<f32>(ViewMut::new(0x50fc, 3));
        assert_eq!((like.address(), like.elements()), (0x1200 + 0xfc, 3)); // up to 0x1308
        assert_eq!((script.take::<f64>(1).address(), script.taken()), (0x1400, 0x500));
    }
}
