//! Tests an addition that is fused into the launch of the batch normalisation before it.

use lockstep_cuda::layers::{ChainKernel, ForwardPass, TensorForm};
use lockstep_cuda::{Scalar, View};
use lockstep_exec::device::ChainLayer;
use lockstep_exec::device::cpu::Mode;
use lockstep_models::{BatchNorm, Layer, Shape};

use super::{Own, libraries};
use crate::emulator::Emulator;
use crate::memory::{Memory, Real};
use crate::{near_within, same, size};

/// The destination of the sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    Own,
    Normalised,
    Addend,
    /// The normalisation's input, which is not needed any more in inference.
    Input,
}

/// The operands of the addition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    pub(crate) samples: u32,
    pub(crate) shape: Shape,
    pub(crate) relu: bool,
    pub(crate) place: Target,
    /// Whether the normalised batch is the addition's second input.
    pub(crate) second: bool,
    pub(crate) mode: Mode,
    pub(crate) form: TensorForm,
}

impl Joined {
    /// The sum equals that of two passes, to the bit except for one rounding where activations are bf16.
    pub(crate) fn agrees<A: Real>(&self, emulator: &mut Emulator, memory: &mut Memory) {
        let Joined { samples, relu, mode, form, .. } = *self;
        let norm = Layer::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: 0.9 });
        let (one, two) = ([self.shape], [self.shape; 2]);
        let add = [ChainLayer { layer: &Layer::Add, inputs: &two }, ChainLayer { layer: &Layer::Relu, inputs: &one }];
        let norm = ChainKernel::<A>::new(&[ChainLayer { layer: &norm, inputs: &one }], samples, form, &mut Own(memory));
        let add = ChainKernel::<A>::new(&add[..1 + usize::from(relu)], samples, form, &mut Own(memory));
        let (elements, channels) = (samples as usize * size(self.shape), self.shape.features() as usize);
        let [values, addend] = [0, 1].map(|_| memory.reals::<A>(elements));
        let (parameters, statistics) = (memory.values(2 * channels), vec![0.5; 2 * channels]);
        let scratch = memory.room(norm.scratch_bytes());
        // The same place for both: the order of its sums depends on its alignment.
        let x = memory.hold::<A>(&values);
        let mut play = |memory: &mut Memory, joins: bool, place: Target| {
            let (other, t) = (memory.hold::<A>(&addend), memory.space::<A>(elements));
            let (weights, running) = (memory.put(&parameters), memory.put(&statistics));
            let output = match place {
                Target::Own => memory.space::<A>(elements),
                Target::Normalised => t,
                Target::Addend => other,
                Target::Input => x,
            };
            let (parameters, statistics) = (weights.read(), running.write());
            let first = ForwardPass { mode, inputs: &[x.read()], parameters, statistics, output: t.write() };
            let mut both: [View<A>; 2] = [t.read(), other.read()];
            if self.second {
                both.reverse();
            }
            let sum = ForwardPass { mode, inputs: &both, parameters, statistics, output: output.write() };
            let mut commands = Vec::new();
            if joins {
                let pending = norm.begin_forward(&first, scratch, &mut commands).expect("a plain normalisation");
                assert!(add.join_forward(&pending, &sum, &mut commands), "{self:?}");
            } else {
                norm.forward(&first, scratch, &mut commands);
                add.forward(&sum, scratch, &mut commands);
            }
            memory.poison(scratch);
            libraries::play(&commands, form.precision, emulator, memory);
            (memory.wide(output), memory.get(running), commands.len())
        };
        let (apart, running, launches) = play(memory, false, Target::Own);
        let (joined, moved, fewer) = play(memory, true, self.place);
        assert_eq!(fewer + 1, launches);
        same(&moved, &running, "running statistics");
        if A::SCALAR == Scalar::F32 {
            same(&joined, &apart, "the sum");
        } else {
            near_within(1.0 / 200.0, &joined, &apart, &[&values[..], &addend, &apart].concat(), "the sum");
        }
    }

    /// Where an element might be written before it is read, or the normalised batch is not an operand, nothing is
    /// fused.
    pub(crate) fn is_refused<A: Real>(&self, memory: &mut Memory) {
        let norm = Layer::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: 0.9 });
        let (one, two) = ([self.shape], [self.shape; 2]);
        let form = self.form;
        let norm = [ChainLayer { layer: &norm, inputs: &one }, ChainLayer { layer: &Layer::Relu, inputs: &one }];
        let plain = ChainKernel::<A>::new(&norm[..1], self.samples, form, &mut Own(memory));
        let rectified = ChainKernel::<A>::new(&norm, self.samples, form, &mut Own(memory));
        let add = [ChainLayer { layer: &Layer::Add, inputs: &two }];
        let add = ChainKernel::<A>::new(&add, self.samples, form, &mut Own(memory));
        let elements = self.samples as usize * size(self.shape);
        let [x, t, other] = [0, 1, 2].map(|_| memory.space::<A>(elements + 1));
        let [parameters, statistics] = [0, 1].map(|_| memory.space::<f32>(2 * self.shape.features() as usize));
        let (parameters, statistics, mode) = (parameters.read(), statistics.write(), self.mode);
        let (scratch, mut commands) = (memory.room(plain.scratch_bytes()), Vec::new());
        let (start, shifted) = (0..elements, 1..elements + 1);
        let [x_at, t_at, other_at] = [x, t, other].map(|tensor| tensor.part(start.clone()));
        let first = ForwardPass { mode, inputs: &[x_at.read()], parameters, statistics, output: t_at.write() };
        assert!(rectified.begin_forward(&first, scratch, &mut commands).is_none());
        let pending = plain.begin_forward(&first, scratch, &mut commands).expect("a plain normalisation");
        let own = memory.space::<A>(elements);
        for (inputs, output) in [
            ([t_at, other_at], x.part(shifted.clone())),
            ([t_at, other_at], other.part(shifted)),
            ([t_at, t_at], own),
            ([other_at, other_at], own),
        ] {
            let inputs = inputs.map(|input| input.read());
            let sum = ForwardPass { mode, inputs: &inputs, parameters, statistics, output: output.write() };
            assert!(!add.join_forward(&pending, &sum, &mut Vec::new()), "{self:?}");
        }
    }
}
