//! Runs one chain on both sides: the passes of a training step, and inference.

use lockstep_cuda::layers::{ChainKernel, ForwardPass, PassGradients, TensorForm};
use lockstep_cuda::{Bf16, Scalar, View, ViewMut};
use lockstep_exec::device::cpu::{self, ChainLayer, Draw, Mode, Threads};
use lockstep_models::memory::Reads;
use lockstep_models::{Layer, Phase, Precision, Shape};
use rand::RngExt;

use super::chains::Chain;
use super::laying::{lay, plain};
use super::on_cpu::{Data, Given, backward, forward};
use super::{Own, libraries};
use crate::emulator::Emulator;
use crate::memory::{Held, Memory, Real, rounded};
use crate::{merged, near_within, same, size};

/// A chain, and the way it is run.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) chain: Chain,
    pub(crate) form: TensorForm,
    /// Whether all numbers are −1, 0 and 1.
    pub(crate) whole: bool,
    /// Samples that the kernel was made for in excess of the batch.
    pub(crate) spare: u32,
    /// The input that shares the output's memory, if allowed.
    pub(crate) place: Option<usize>,
    /// Instead of training, the batch for running statistics.
    pub(crate) batch: Option<u32>,
    /// Whether the gradients of all inputs are wanted in each pass, rather than of some.
    pub(crate) all_wanted: bool,
}

/// A kernel that makes commands, and its memory.
struct Side<'a, A> {
    kernel: ChainKernel<A>,
    precision: Precision,
    emulator: &'a mut Emulator,
    memory: &'a mut Memory,
    scratch: u64,
    inputs: Vec<Held<A>>,
    parameters: Held<f32>,
    statistics: Held<f32>,
    output: Held<A>,
    /// The gradient of the output; always in the same place, since the order of sums depends on a tensor's alignment.
    d_output: Option<Held<A>>,
}

impl Case {
    fn samples(&self, elements: usize) -> usize {
        self.chain.samples as usize * elements
    }

    fn numbers(&self, elements: usize, memory: &mut Memory) -> Vec<f32> {
        if self.whole {
            return (0..elements).map(|_| memory.rng.random_range(-1..=1) as f32).collect();
        }
        memory.values(elements)
    }

    /// Shapes of the inputs, and of the output.
    fn shapes(&self) -> (Vec<Shape>, Shape) {
        let shapes = self.chain.shapes().expect("shapes that fit");
        (shapes[0].clone(), shapes[shapes.len() - 1][0])
    }

    fn data<A: Real>(&self, memory: &mut Memory) -> Data {
        let (inputs, output) = self.shapes();
        let activations = |elements: usize, memory: &mut Memory| -> Vec<f32> {
            rounded::<A>(&self.numbers(self.samples(elements), memory))
        };
        let statistics = if self.normalises() { self.chain.parameters() } else { 0 };
        Data {
            inputs: inputs.iter().map(|shape| activations(size(*shape), memory)).collect(),
            parameters: self.numbers(self.chain.parameters(), memory),
            statistics: memory.values(statistics).iter().map(|value| value.abs()).collect(),
            d_output: activations(size(output), memory),
        }
    }

    fn normalises(&self) -> bool {
        self.chain.has(|layer| matches!(layer, Layer::BatchNorm(_)))
    }

    /// Both sides' kernels, made for the largest batch.
    fn kernels<A: Real>(&self, memory: &mut Memory) -> (cpu::Kernel, ChainKernel<A>) {
        let shapes = self.chain.shapes().expect("shapes that fit");
        let members: Vec<ChainLayer<'_>> =
            self.chain.layers.iter().zip(&shapes).map(|(layer, inputs)| ChainLayer { layer, inputs }).collect();
        let samples = self.chain.samples + self.spare;
        assert!(ChainKernel::<A>::fits(&members, samples));
        // 2^32 - 1 samples of one element each can still be indexed.
        let one_each = shapes.iter().flatten().all(|shape| size(*shape) == 1);
        assert!(one_each || !ChainKernel::<A>::fits(&members, u32::MAX));
        let on_cpu = cpu::Kernel::new(&members, samples as usize, &Threads::one());
        (on_cpu, ChainKernel::new(&members, samples, self.form, &mut Own(memory)))
    }

    /// The tensors on the emulator's side.
    fn side<'a, A: Real>(
        &self,
        kernel: ChainKernel<A>,
        data: &Data,
        emulator: &'a mut Emulator,
        memory: &'a mut Memory,
    ) -> Side<'a, A> {
        let scratch = memory.room(kernel.scratch_bytes());
        let (shapes, _) = self.shapes();
        let all = data.inputs.iter().zip(shapes);
        let inputs: Vec<Held<A>> = all.map(|(input, shape)| memory.put(&lay::<A>(self.form, input, shape))).collect();
        let (parameters, statistics) = (memory.put(&data.parameters), memory.put(&data.statistics));
        let output = self.place().map_or_else(|| memory.space(data.d_output.len()), |index| inputs[index]);
        let (precision, d_output) = (self.form.precision, None);
        Side { kernel, precision, emulator, memory, scratch, inputs, parameters, statistics, output, d_output }
    }

    /// The input that shares the output's memory: for a sum of two it may be either.
    fn place(&self) -> Option<usize> {
        let inputs = match self.chain.layers[0] {
            Layer::Add if self.chain.inputs.len() == 2 => 2,
            Layer::Add | Layer::Relu | Layer::Sigmoid | Layer::Tanh | Layer::Dropout(_) => 1,
            Layer::Flatten if self.chain.layers.iter().all(|layer| *layer == Layer::Flatten) => 1,
            _ => 0,
        };
        self.place.filter(|place| *place < inputs)
    }

    /// Within 1e-5 of the magnitude of the terms; exact for whole numbers. A mean that differs in its last bit is 8e-6
    /// of the smallest deviation of numbers below 2, √1e-3. bf16 results are rounded at most twice, each time by 2⁻⁹.
    fn near(&self, got: &[f32], expected: &[f32], terms: &[f32], what: &str) {
        let bound = if self.whole {
            0.0
        } else if Scalar::of(self.form.precision) == Scalar::Bf16 {
            1.0 / 200.0
        } else if self.normalises() {
            2e-5
        } else {
            1e-5
        };
        near_within(bound, got, expected, &[expected, terms].concat(), what);
    }

    /// The factor of an output's gradient where the input's gradient is a small remainder of it.
    fn scaled(&self, d: &[f32], data: &Data) -> Vec<f32> {
        if !self.normalises() {
            return d.to_vec();
        }
        let shape = self.chain.inputs[0];
        let (plane, channels) = (size(shape) / shape.features() as usize, shape.features() as usize);
        let scale = |channel: usize| {
            let xs =
                || data.inputs[0].chunks_exact(plane).skip(channel).step_by(channels).flatten().map(|x| f64::from(*x));
            let count = xs().count() as f64;
            let mean = xs().sum::<f64>() / count;
            let variance = xs().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            (f64::from(data.parameters[channel]) / (variance + 1e-3).sqrt()) as f32
        };
        let scales: Vec<f32> = (0..channels).map(scale).collect();
        d.iter().enumerate().map(|(at, d)| d * scales[at / plane % channels]).collect()
    }

    /// Forward, all kinds of backward passes, and inference.
    pub(crate) fn agrees(&self, emulator: &mut Emulator, memory: &mut Memory) {
        match Scalar::of(self.form.precision) {
            Scalar::F32 => self.agrees_in::<f32>(emulator, memory),
            Scalar::Bf16 => self.agrees_in::<Bf16>(emulator, memory),
        }
    }

    fn agrees_in<A: Real>(&self, emulator: &mut Emulator, memory: &mut Memory) {
        let mut data = self.data::<A>(memory);
        let (mut on_cpu, mut kernel) = self.kernels::<A>(memory);
        let (inputs, shape) = self.shapes();
        let draw = Draw {
            seed: memory.rng.random(),
            layer: 3,
            first: 0,
            offset: memory.rng.random_range(0..40),
            entry: 0,
            row: 0,
            skipped: 0,
        };
        let places: Vec<u64> = (0..self.chain.samples).map(|_| memory.rng.random()).collect();
        on_cpu.draw(draw, &places);
        kernel.draw(draw, memory.put(&places).read());
        let mut side = self.side(kernel, &data, emulator, memory);

        let mode = self.batch.map_or(Mode::Train, |batch| Mode::Statistics { batch });
        let expected = forward(&mut on_cpu, &mut data, mode);
        side.forward(mode);
        let output = plain(self.form, &side.memory.wide(side.output), shape);
        self.near(&output, &expected, &data.inputs.concat(), "forward");
        self.near(&side.memory.get(side.statistics), &data.statistics, &[], "running statistics");

        if mode == Mode::Train {
            // Where rounding has moved an output across 0, a ReLU's derivative differs.
            let apart = output.iter().zip(&expected).map(|(got, expected)| (*got > 0.0) != (*expected > 0.0));
            data.d_output.iter_mut().zip(apart).for_each(|(d, apart)| *d = if apart { 0.0 } else { *d });
            let given = backward(&mut on_cpu, &data, rounded::<A>(&expected));
            let apart = [Phase::BackwardData, Phase::BackwardWeight][side.memory.rng.random_range(0..2)];
            for phase in [Phase::Backward, apart] {
                self.gradients_agree(&mut side, phase, &data, &given, &inputs);
            }
        }
        if self.place().is_none() {
            let expected = forward(&mut on_cpu, &mut data, Mode::Evaluate);
            side.forward(Mode::Evaluate);
            let output = plain(self.form, &side.memory.wide(side.output), shape);
            self.near(&output, &expected, &data.inputs.concat(), "inference");
            self.near(&side.memory.get(side.statistics), &data.statistics, &[], "statistics of inference");
        }
    }

    /// The gradients of a pass, and those of the same pass added to existing values: one rounded addition each.
    fn gradients_agree<A: Real>(
        &self,
        side: &mut Side<'_, A>,
        phase: Phase,
        data: &Data,
        given: &Given,
        shapes: &[Shape],
    ) {
        let wanted: Vec<bool> =
            shapes.iter().map(|_| self.all_wanted || side.memory.rng.random_range(0..4) > 0).collect();
        let (d_inputs, gradient) = side.backward(self, phase, &wanted, data, None);
        let gradients = self.scaled(&data.d_output, data);
        for (got, expected) in d_inputs.iter().zip(&given.d_inputs) {
            let Some(got) = got else { continue };
            self.near(got, expected, &gradients, &format!("{phase:?}: gradient towards an input"));
        }
        if let Some(got) = &gradient {
            self.near(got, &given.gradient, &data.d_output, &format!("{phase:?}: gradient of the parameters"));
        }
        let before = |length: usize, memory: &mut Memory| self.numbers(length, memory);
        let befores = given.d_inputs.iter().map(|d| rounded::<A>(&before(d.len(), side.memory)));
        let befores: Vec<Vec<f32>> = befores.collect();
        let own = before(data.parameters.len(), side.memory);
        let (sums, sum) = side.backward(self, phase, &wanted, data, Some((&befores, &own)));
        for ((got, before), first) in sums.iter().zip(&befores).zip(&d_inputs) {
            let (Some(got), Some(first)) = (got, first) else { continue };
            let what = format!("{phase:?}: added gradient towards an input");
            self.near(got, &merged(before, first, true), &gradients, &what);
        }
        if let (Some(got), Some(first)) = (sum, gradient) {
            same(&got, &merged(&own, &first, true), &format!("{phase:?}: added gradient of the parameters"));
        }
    }

    /// Output, gradients of the input and of the parameters: the commands' results, the correct ones, and those if no
    /// terms cancelled.
    pub(crate) fn products<A: Real>(
        &self,
        emulator: &mut Emulator,
        memory: &mut Memory,
    ) -> Vec<(Vec<f32>, Vec<f32>, Vec<f32>)> {
        let mut data = self.data::<A>(memory);
        let (mut on_cpu, kernel) = self.kernels::<A>(memory);
        let mut side = self.side(kernel, &data, emulator, memory);
        side.forward(Mode::Train);
        let output = plain(self.form, &side.memory.wide(side.output), self.shapes().1);
        let (d_inputs, gradient) = side.backward(self, Phase::Backward, &[true], &data, None);
        let got = [Some(output), d_inputs[0].clone(), gradient];
        let mut all = || {
            let output = forward(&mut on_cpu, &mut data, Mode::Train);
            let given = backward(&mut on_cpu, &data, output);
            let magnitudes = |values: &mut Vec<f32>| values.iter_mut().for_each(|value| *value = value.abs());
            [&mut data.inputs[0], &mut data.parameters, &mut data.d_output].into_iter().for_each(magnitudes);
            [given.output, given.d_inputs[0].clone(), given.gradient]
        };
        let (expected, terms) = (all(), all());
        got.into_iter().zip(expected).zip(terms).filter_map(|((g, e), t)| g.map(|g| (g, e, t))).collect()
    }
}

impl<A: Real> Side<'_, A> {
    fn play(&mut self, write: impl FnOnce(&ChainKernel<A>, &mut Vec<lockstep_cuda::Command>)) {
        let mut commands = Vec::new();
        write(&self.kernel, &mut commands);
        self.memory.poison(self.scratch);
        libraries::play(&commands, self.precision, self.emulator, self.memory);
    }

    fn forward(&mut self, mode: Mode) {
        let inputs: Vec<View<A>> = self.inputs.iter().map(|input| input.read()).collect();
        let (parameters, statistics, output) = (self.parameters.read(), self.statistics.write(), self.output.write());
        let scratch = self.scratch;
        let of = ForwardPass { mode, inputs: &inputs, parameters, statistics, output };
        self.play(|kernel, into| kernel.forward(&of, scratch, into));
    }

    /// The requested gradients of a phase, in fresh tensors or added to the given ones. Tensors that the phase does not
    /// read are NaN.
    fn backward(
        &mut self,
        case: &Case,
        phase: Phase,
        wanted: &[bool],
        data: &Data,
        before: Option<(&[Vec<f32>], &[f32])>,
    ) -> (Vec<Option<Vec<f32>>>, Option<Vec<f32>>) {
        let reads = Reads::of_layers(case.chain.layers.iter(), phase);
        let (towards_data, towards_weights) = (phase != Phase::BackwardWeight, phase != Phase::BackwardData);
        let memory = &mut *self.memory;
        let held = |memory: &mut Memory, read: bool, tensor: Held<A>, elements: usize| {
            if read { tensor.read() } else { memory.space(elements).read() }
        };
        let inputs: Vec<View<A>> = self
            .inputs
            .iter()
            .zip(&data.inputs)
            .map(|(held_at, values)| held(memory, reads.input, *held_at, values.len()))
            .collect();
        let output = held(memory, reads.output, self.output, data.d_output.len());
        let (shapes, shape) = case.shapes();
        let target =
            |elements: usize, before: Option<&[f32]>| before.map_or_else(|| vec![f32::NAN; elements], <[f32]>::to_vec);
        let targets: Vec<Option<Held<A>>> = wanted
            .iter()
            .zip(&data.inputs)
            .enumerate()
            .map(|(index, (wanted, input))| {
                let before = target(input.len(), before.map(|(all, _)| all[index].as_slice()));
                (*wanted && towards_data).then(|| memory.put(&lay::<A>(case.form, &before, shapes[index])))
            })
            .collect();
        let own = target(data.parameters.len(), before.map(|(_, own)| own));
        let own = towards_weights.then(|| memory.put(&own));
        let added = before.is_some();
        let d_inputs: Vec<Option<(ViewMut<A>, bool)>> =
            targets.iter().map(|target| target.map(|target| (target.write(), added))).collect();
        let of = PassGradients {
            inputs: &inputs,
            output,
            parameters: self.parameters.read(),
            d_output: self.d_output.get_or_insert_with(|| memory.put(&lay(case.form, &data.d_output, shape))).read(),
            d_inputs: if towards_data { &d_inputs } else { &[] },
            d_parameters: own.map(|own| (own.write(), added)),
        };
        let scratch = self.scratch;
        self.play(|kernel, into| kernel.backward(&of, scratch, into));
        let memory = &*self.memory;
        let found = targets.into_iter().zip(shapes);
        let found = found.map(|(target, shape)| target.map(|target| plain(case.form, &memory.wide(target), shape)));
        (found.collect(), own.map(|own| memory.get(own)))
    }
}
