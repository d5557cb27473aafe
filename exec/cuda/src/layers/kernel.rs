//! Lowers the passes of a fused chain of layers to lists of commands.

use lockstep_exec::device::{ChainLayer, Draw, Mode, cpu, output_of};
use lockstep_models::{Layer, Shape};

use super::head::{Head, Wanted};
use super::made;
use super::pass::{Allocator, ForwardPass, PassGradients, TensorForm};
use super::script::Script;
use super::sum::Sum;
use super::transposition::Transposition;
use crate::{Activation, Command, Scalar, View, ViewMut};

/// A fused chain of layers for batches of up to a fixed number of samples, whose activations are of type `A`.
pub struct ChainKernel<A> {
    pub(super) head: Box<dyn Head<A>>,
    pub(super) transposition: Transposition,
    /// Elements per sample, of each input and of the output.
    inputs: Vec<u64>,
    output: u64,
    samples: u32,
    scratch_bytes: u64,
}

/// Allocates nothing, for kernels that do not run.
struct Nowhere;

impl Allocator for Nowhere {
    fn take(&mut self, _: u64) -> u64 {
        0
    }
}

impl<A: Activation> ChainKernel<A> {
    /// The first layer of `chain` that has no kernel, by its place: one of sequences, or one that no file lowers.
    pub fn lacks(chain: &[ChainLayer<'_>]) -> Option<usize> {
        let computes = |member: &ChainLayer<'_>| {
            let &ChainLayer { layer, inputs } = member;
            let (output, rest, samples, form) = (output_of(member), &[], 1, TensorForm::default());
            let is_image = |shape: &Shape| shape.as_image().is_some();
            let of = &mut Wanted { layer, inputs, output, rest, samples, form, space: &mut Nowhere };
            let is_view = layer.rule().kind().is_view;
            inputs.iter().chain([&output]).all(is_image) && (is_view || made::<A>(of).is_some())
        };
        chain.iter().position(|member| !computes(member))
    }

    /// Whether kernels can index a batch's tensors, each of which must have fewer than 2³² elements; otherwise the
    /// batch must be smaller.
    pub fn fits(chain: &[ChainLayer<'_>], samples: u32) -> bool {
        let tensors = chain.iter().flat_map(|member| member.inputs.iter().copied().chain([output_of(member)]));
        tensors.map(|shape| shape.elements()).all(|elements| elements.saturating_mul(samples.into()) < 1 << 32)
    }

    /// A kernel for `chain`, which must be one that [`cpu::Kernel::fuses`] and whose shapes fit, and batches of up to `samples`.
    ///
    /// # Panics
    /// When the chain is unsupported, [`ChainKernel::lacks`] a layer, [`ChainKernel::fits`] is false, or the products' factors have another type.
    pub fn new(chain: &[ChainLayer<'_>], samples: u32, form: TensorForm, space: &mut dyn Allocator) -> ChainKernel<A> {
        let layers: Vec<&Layer> = chain.iter().map(|member| member.layer).collect();
        assert!(cpu::Kernel::fuses(&layers), "no kernel for the chain {layers:?}");
        assert!(Self::fits(chain, samples), "a batch of {samples} is too large for the chain {layers:?}");
        assert_eq!(Scalar::of(form.precision), A::SCALAR, "factors are activations");
        let computing: Vec<&ChainLayer<'_>> =
            chain.iter().filter(|member| !member.layer.rule().kind().is_view).collect();
        let head: Box<dyn Head<A>> = match computing.split_first() {
            Some((first, rest)) => {
                let &&ChainLayer { layer, inputs } = first;
                let made = made(&mut Wanted { layer, inputs, output: output_of(first), rest, samples, form, space });
                made.unwrap_or_else(|| panic!("{} computes nothing", layer.kind()))
            }
            None => Box::new(Sum { relu: false }),
        };
        let mut kernel = ChainKernel {
            transposition: Transposition::of(chain, &computing, form, head.draws()),
            head,
            inputs: chain[0].inputs.iter().map(|shape| shape.elements()).collect(),
            output: output_of(&chain[chain.len() - 1]).elements(),
            samples,
            scratch_bytes: 0,
        };
        kernel.scratch_bytes = kernel.measured();
        kernel
    }

    /// Bytes of scratch that a pass needs, at an address that is a multiple of 256.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// Sets the random numbers of a dropout layer's next training passes; other layers need none. `places` are those of
    /// the samples among all since training began; they must be in memory when the pass runs.
    pub fn draw(&mut self, draw: Draw, places: View<u64>) {
        self.head.draw(draw, places);
    }

    /// Takes the bytes of the samples' integers, of a layer that reads them, before its forward pass; they stay in place
    /// until its backward pass has run. Other layers read none.
    pub fn take_integers(&mut self, samples: View<u8>) {
        self.head.take_integers(samples);
    }

    /// Appends the commands that compute the chain's output from its inputs to `into`.
    pub fn forward(&self, of: &ForwardPass<'_, A>, scratch: u64, into: &mut Vec<Command>) {
        let mut script = Script::new(into, scratch);
        self.write_forward(of, &mut script);
        assert!(script.taken() <= self.scratch_bytes, "a forward pass takes {} bytes of scratch", script.taken());
    }

    /// Appends the commands that compute the requested gradients from that of the output to `into`.
    pub fn backward(&self, of: &PassGradients<'_, A>, scratch: u64, into: &mut Vec<Command>) {
        let mut script = Script::new(into, scratch);
        self.write_backward(of, &mut script);
        assert!(script.taken() <= self.scratch_bytes, "a backward pass takes {} bytes of scratch", script.taken());
    }

    /// Number of samples of a batch whose output has this number of elements.
    pub(super) fn batch(&self, elements: u64) -> u32 {
        let samples = elements / self.output;
        assert!(
            samples * self.output == elements && samples <= self.samples.into(),
            "{elements} elements are no batch"
        );
        samples as u32
    }

    fn write_forward(&self, of: &ForwardPass<'_, A>, script: &mut Script<'_>) {
        let samples = self.batch(of.output.elements());
        self.transposition.forward(of, samples, script, |of, script| self.head.forward(of, samples, script));
    }

    fn write_backward(&self, of: &PassGradients<'_, A>, script: &mut Script<'_>) {
        let samples = self.batch(of.d_output.elements());
        self.transposition.backward(of, samples, script, |of, script| self.head.backward(of, samples, script));
    }

    /// The largest scratch of any pass, found by lowering it: training, all gradients, each added to existing values.
    /// Dropout, which needs no scratch, has no places yet and passes everything on.
    fn measured(&self) -> u64 {
        let mode = if self.head.draws() { Mode::Evaluate } else { Mode::Train };
        // Tensors at distinct addresses, one element before an aligned one, so that scratch that mirrors their
        // alignment is largest.
        let mut next = 256;
        let mut tensor = |elements: u64, bytes: u64| {
            let address = next - bytes;
            next += (elements * bytes).next_multiple_of(256);
            address
        };
        let mut activations = |elements: u64| ViewMut::<A>::new(tensor(elements, size_of::<A>() as u64), elements);
        let samples = u64::from(self.samples);
        let inputs: Vec<ViewMut<A>> = self.inputs.iter().map(|elements| activations(samples * elements)).collect();
        let output = activations(samples * self.output);
        let (parameters, statistics) = self.head.parameters();
        let [weights, statistics] = [parameters, statistics].map(|count| ViewMut::<f32>::new(tensor(count, 4), count));
        let views: Vec<View<A>> = inputs.iter().map(|input| input.view()).collect();
        let d_inputs: Vec<_> = inputs.iter().map(|input| Some((*input, true))).collect();
        let parameters = weights.view();
        let mut commands = Vec::new();
        let mut forward = Script::new(&mut commands, 0);
        self.write_forward(&ForwardPass { mode, inputs: &views, parameters, statistics, output }, &mut forward);
        let taken = forward.taken();
        let mut backward = Script::new(&mut commands, 0);
        let (output, d_output, d_parameters) = (output.view(), output.view(), Some((weights, true)));
        let gradients =
            PassGradients { inputs: &views, output, parameters, d_output, d_inputs: &d_inputs, d_parameters };
        self.write_backward(&gradients, &mut backward);
        taken.max(backward.taken())
    }
}
