//! Copies tensors that are not aligned as cuDNN's kernels require: weights are packed one after the other, whatever
//! their sizes.

use lockstep_exec::device::DeviceError;

use super::stream::GpuStream;
use crate::command::{Convolution, ConvolutionPass, Convolve};
use lockstep_models::Precision;

/// The required alignment of a tensor: kernels read four floats at once.
pub(super) const ALIGNMENT: u64 = 16;
/// The alignment of the copies, that of device allocations.
const PLACE: u64 = 256;

/// A pass with all tensors aligned, and the copies that this takes.
#[derive(Debug)]
pub(super) struct Staged {
    /// The pass, on copies.
    pub(super) of: Convolve,
    before: Vec<Copied>,
    after: Option<Copied>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copied {
    to: u64,
    from: u64,
    bytes: u64,
}

/// Bytes that the copies take after a workspace.
pub(super) fn bytes(of: &Convolve) -> u64 {
    let all = tensors(of).into_iter().filter(|(address, _)| address % ALIGNMENT != 0);
    all.map(|(_, bytes)| bytes.next_multiple_of(PLACE)).sum()
}

/// The first place for copies after a workspace of `bytes` bytes.
pub(super) fn behind(bytes: u64) -> u64 {
    bytes.next_multiple_of(PLACE)
}

impl Staged {
    /// A pass with its copies from `place` on, a multiple of 256.
    pub(super) fn new(of: &Convolve, place: u64) -> Staged {
        let (mut next, mut staged) = (place, Staged { of: *of, before: Vec::new(), after: None });
        let operands = [&mut staged.of.left, &mut staged.of.right, &mut staged.of.result];
        for (number, (operand, (from, bytes))) in operands.into_iter().zip(tensors(of)).enumerate() {
            if from % ALIGNMENT == 0 {
                continue;
            }
            let (to, is_result) = (next, number == 2);
            (*operand, next) = (to, next + bytes.next_multiple_of(PLACE));
            if !is_result || of.accumulate {
                staged.before.push(Copied { to, from, bytes });
            }
            if is_result {
                staged.after = Some(Copied { to: from, from: to, bytes });
            }
        }
        staged
    }

    /// Copies what the pass reads.
    ///
    /// # Safety
    /// The pass's addresses are those of its tensors, and there is space for the copies.
    pub(super) unsafe fn begin(&self, stream: &GpuStream) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        self.before.iter().try_for_each(|copy| unsafe { stream.copy(copy.to, copy.from, copy.bytes) })
    }

    /// Copies what the pass has written.
    ///
    /// # Safety
    /// As [`Staged::begin`].
    pub(super) unsafe fn end(&self, stream: &GpuStream) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        self.after.iter().try_for_each(|copy| unsafe { stream.copy(copy.to, copy.from, copy.bytes) })
    }
}

/// Address and bytes of a pass's operands and of its result.
fn tensors(of: &Convolve) -> [(u64, u64); 3] {
    let Convolution { samples, input, output, kernel, groups, precision, .. } = of.of;
    let element = if precision == Precision::Bf16 { 2 } else { 4 };
    let filters = [output.channels, input.channels / groups.max(1), kernel.0, kernel.1];
    let x = element * u64::from(samples) * input.elements();
    let w = element * filters.iter().map(|size| u64::from(*size)).product::<u64>();
    let y = element * u64::from(samples) * output.elements();
    let bytes = match of.pass {
        ConvolutionPass::Forward => [x, w, y],
        ConvolutionPass::BackwardData => [y, w, x],
        ConvolutionPass::BackwardWeight => [x, y, w],
    };
    [(of.left, bytes[0]), (of.right, bytes[1]), (of.result, bytes[2])]
}

#[cfg(test)]
mod tests {
    use lockstep_models::ImageShape;

    use super::*;

    /// Weights of 9 floats and their gradient at unaligned addresses, by hand.
    #[test]
    fn only_misaligned_tensors_are_copied() {
        let shape = ImageShape { channels: 1, height: 10, width: 10 };
        let (one, pass) = ((1, 1), ConvolutionPass::Forward);
        let of = Convolution {
            samples: 2,
            input: shape,
            output: shape,
            kernel: (3, 3),
            stride: one,
            padding: one,
            dilation: one,
            groups: 1,
            precision: Precision::F32,
            channels_last: false,
        };
        let (left, right, result) = (0x1000, 0x2004, 0x3000);
        let forward = Convolve { of, pass, left, right, result, bias: None, rectified: false, accumulate: false };
        assert_eq!(bytes(&forward), 256);
        let staged = Staged::new(&forward, 0x8000);
        assert_eq!(staged.of, Convolve { right: 0x8000, ..forward });
        assert_eq!((staged.before, staged.after), (vec![Copied { to: 0x8000, from: 0x2004, bytes: 36 }], None));

        let pass = ConvolutionPass::BackwardWeight;
        let weight = Convolve { pass, left: 0x1008, right: 0x3000, result: 0x2004, accumulate: true, ..forward };
        // The input has 800 bytes, which take 1,024.
        assert_eq!(bytes(&weight), 1024 + 256);
        let staged = Staged::new(&weight, 0x8000);
        assert_eq!(staged.of, Convolve { left: 0x8000, result: 0x8400, ..weight });
        let read = [Copied { to: 0x8000, from: 0x1008, bytes: 800 }, Copied { to: 0x8400, from: 0x2004, bytes: 36 }];
        assert_eq!(staged.before, read);
        assert_eq!(staged.after, Some(Copied { to: 0x2004, from: 0x8400, bytes: 36 }));

        let well = Convolve { right: 0x2010, ..forward };
        assert_eq!((bytes(&well), Staged::new(&well, 0).of), (0, well));
    }
}
