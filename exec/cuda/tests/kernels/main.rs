//! Tests the kernels' arithmetic without a GPU: their sources are compiled as C++ and compared with the CPU device.
//!
//! Every property draws sizes, alignments and values at random and prints them, with their seed, when it fails.
//! Additions and multiplications must give exactly the CPU device's bits, sums of many and transcendental functions
//! agree within 1e-5 of the tensor's norm. Where activations are bf16 the CPU device gets numbers representable in
//! bf16, and its results are rounded once.

mod channels;
mod columns;
mod elementwise;
mod emulator;
mod faults;
mod layers;
mod losses;
mod memory;
mod moves;
mod normalisation;
mod parameters;
mod pictures;
mod program;
mod windows;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Debug;

use lockstep_cuda::{KernelEntry, Scalar};
use lockstep_exec::device::cpu::{ChainLayer, Draw, Kernel, Mode, Threads};
use lockstep_models::{Layer, Shape};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use emulator::Emulator;
use memory::{Held, Memory, Real, rounded};

/// A group of comparisons with the CPU device, and the kernels that it runs.
struct Theme {
    kernels: &'static [&'static str],
    play: fn(&RefCell<Emulator>),
}

const THEMES: [&Theme; 9] = [
    &elementwise::THEME,
    &moves::THEME,
    &channels::THEME,
    &columns::THEME,
    &normalisation::THEME,
    &windows::THEME,
    &losses::THEME,
    &parameters::THEME,
    &pictures::THEME,
];

impl Theme {
    /// Runs it, if there is a compiler; then exactly its kernels have been run, for one scalar or another.
    fn run(&self) {
        self.played(|played| {
            let played: BTreeSet<&str> = played.iter().map(|(name, _)| *name).collect();
            assert_eq!(played, self.names());
        });
    }

    /// Runs it, if there is a compiler; then exactly its kernels have been run, each for all scalars.
    fn run_all(&self) {
        let names = self.names();
        let kernels = KernelEntry::all().into_iter().filter(|entry| names.contains(entry.name));
        let expected: BTreeSet<_> = kernels.map(|entry| (entry.name, entry.function)).collect();
        self.played(|played| assert_eq!(*played, expected));
    }

    fn played(&self, check: impl FnOnce(&BTreeSet<(&'static str, &'static str)>)) {
        let Some(emulator) = Emulator::start() else { return };
        let emulator = RefCell::new(emulator);
        (self.play)(&emulator);
        check(emulator.borrow().played());
    }

    fn names(&self) -> BTreeSet<&'static str> {
        self.kernels.iter().copied().collect()
    }
}

#[test]
fn every_kernel_of_the_table_has_a_case() {
    let themes = THEMES.into_iter().chain([&layers::OTHERS]);
    let covered: BTreeSet<&str> = themes.flat_map(|theme| theme.names()).collect();
    let all: BTreeSet<&str> = KernelEntry::all().iter().map(|entry| entry.name).collect();
    assert_eq!(covered, all);
}

#[test]
fn elementwise_layers() {
    elementwise::THEME.run_all();
}

#[test]
fn moves_of_rows_and_channels() {
    moves::THEME.run_all();
}

#[test]
fn sums_over_columns() {
    columns::THEME.run_all();
}

#[test]
fn factors_and_biases_of_channels() {
    channels::THEME.run_all();
}

#[test]
fn batch_normalisation() {
    normalisation::THEME.run_all();
}

#[test]
fn pooling_and_local_response() {
    windows::THEME.run_all();
}

#[test]
fn dropout_and_losses() {
    losses::THEME.run_all();
}

#[test]
fn steps_on_parameters() {
    parameters::THEME.run_all();
}

#[test]
fn samples_of_decoded_pictures() {
    pictures::THEME.run_all();
}

#[test]
fn chains_with_products() {
    layers::PRODUCTS.run();
}

#[test]
fn chains_without_products() {
    layers::OTHERS.run();
}

/// A fifth of `cases`, or all of them where `LOCKSTEP_THOROUGH` is set.
fn few(cases: u32) -> u32 {
    if std::env::var_os("LOCKSTEP_THOROUGH").is_some() { cases } else { cases.div_ceil(5) }
}

/// Runs a property over `strategy` and a seed for values and alignments.
fn property<S: Strategy>(strategy: S, cases: u32, test: impl Fn(S::Value, &mut Memory))
where
    S::Value: Debug + Clone,
{
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let found = TestRunner::new(config).run(&(strategy, any::<u64>()), |(case, seed)| {
        test(case, &mut Memory::new(seed));
        Ok(())
    });
    if let Err(failure) = found {
        panic!("{failure}");
    }
}

/// Shapes of batches with odd planes, with planes of a multiple of four, and occasionally of a single place, as kernels
/// see channels last; then channels are a multiple of four, so that vectors can be read.
fn any_batch() -> impl Strategy<Value = (u32, Shape)> {
    let planes = (1..5u32, 1..20u32, 1..9u32, 1..9u32)
        .prop_map(|(samples, channels, height, width)| (samples, Shape::of_image(channels, height, width)));
    let places = (2..40u32, 1..6u32).prop_map(|(samples, fours)| (samples, Shape::of_image(4 * fours, 1, 1)));
    prop_oneof![3 => planes, 1 => places]
}

fn size(shape: Shape) -> usize {
    shape.elements() as usize
}

fn plane(shape: Shape) -> u32 {
    shape.places() as u32
}

/// Uniform numbers around 0, some of them exactly 0.
fn values(elements: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..elements).map(|_| if rng.random_range(0..16) == 0 { 0.0 } else { rng.random_range(-2.0f32..2.0) }).collect()
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// A layer on the CPU device with the results of its passes.
struct OnCpu {
    kernel: Kernel,
    inputs: Vec<Vec<f32>>,
    parameters: Vec<f32>,
    output: Vec<f32>,
}

impl OnCpu {
    /// The forward pass of `layer`; `statistics` are updated.
    fn forward(
        layer: &Layer,
        shapes: &[Shape],
        samples: u32,
        inputs: &[&[f32]],
        parameters: &[f32],
        statistics: &mut [f32],
        mode: Mode,
    ) -> OnCpu {
        let chain = [ChainLayer { layer, inputs: shapes }];
        let kernel = Kernel::new(&chain, samples as usize, &Threads::one());
        let shape = layer.output_shape(shapes).expect("shapes that fit");
        let output = vec![f32::NAN; samples as usize * size(shape)];
        let inputs = inputs.iter().map(|input| input.to_vec()).collect();
        let mut on_cpu = OnCpu { kernel, inputs, parameters: parameters.to_vec(), output };
        on_cpu.run(mode, statistics);
        on_cpu
    }

    /// The same for a layer without parameters.
    fn plain(layer: &Layer, shapes: &[Shape], samples: u32, inputs: &[&[f32]]) -> OnCpu {
        OnCpu::forward(layer, shapes, samples, inputs, &[], &mut [], Mode::Train)
    }

    fn run(&mut self, mode: Mode, statistics: &mut [f32]) {
        let inputs: Vec<&[f32]> = self.inputs.iter().map(Vec::as_slice).collect();
        self.kernel.forward(mode, &inputs, &self.parameters, statistics, &mut self.output);
    }

    /// Runs a dropout layer again with the numbers of `draw`.
    fn draw(&mut self, draw: Draw, places: &[u64]) {
        self.kernel.draw(draw, places);
        self.run(Mode::Train, &mut []);
    }

    /// The gradients of inputs and parameters.
    fn backward(&mut self, d_output: &[f32]) -> (Vec<Vec<f32>>, Vec<f32>) {
        let inputs: Vec<&[f32]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut d_inputs: Vec<Vec<f32>> = self.inputs.iter().map(|input| vec![f32::NAN; input.len()]).collect();
        let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), false))).collect();
        let mut gradient = vec![f32::NAN; self.parameters.len()];
        let (w, y) = (&self.parameters, &self.output);
        self.kernel.backward(&inputs, y, w, d_output, &mut wanted, Some((&mut gradient[..], false)));
        (d_inputs, gradient)
    }
}

/// Equal bits; NaN equals itself.
fn same(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let alike = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
        assert!(alike, "{what}: {got:e} at {at}, on the CPU {expected:e}");
    }
}

/// The tensor holds `expected`, rounded to its scalar.
fn same_in<A: Real>(memory: &Memory, held: Held<A>, expected: &[f32], what: &str) {
    same(&memory.wide(held), &rounded::<A>(expected), what);
}

/// [`near`] for a tensor of activations.
fn near_in<A: Real>(memory: &Memory, held: Held<A>, expected: &[f32], what: &str) {
    near_within_in(1e-5, memory, held, expected, expected, what);
}

/// [`near_within`] for a tensor of activations: each bf16 value may be off by another half unit in its last place.
fn near_within_in<A: Real>(bound: f64, memory: &Memory, held: Held<A>, expected: &[f32], terms: &[f32], what: &str) {
    let got = memory.wide(held);
    if A::SCALAR == Scalar::F32 {
        return near_within(bound, &got, expected, terms, what);
    }
    assert_eq!(got.len(), expected.len(), "{what}");
    let slack = bound * norm(terms.iter().map(|term| f64::from(*term))).max(1e-2);
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let (got, expected) = (f64::from(*got), f64::from(*expected));
        let allowed = slack + (expected.abs() + slack) / 256.0;
        assert!((got - expected).abs() <= allowed, "{what}: {got:e} at {at}, on the CPU {expected:e} ± {allowed:e}");
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// |got − expected| ≤ 1e-5 · |expected| as vectors, for tensors that are not nearly zero.
fn near(got: &[f32], expected: &[f32], what: &str) {
    near_within(1e-5, got, expected, expected, what);
}

/// |got − expected| ≤ bound · |terms| as vectors, where `terms` are the magnitudes that may cancel out in the elements.
fn near_within(bound: f64, got: &[f32], expected: &[f32], terms: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let error = norm(got.iter().zip(expected).map(|(g, e)| f64::from(*g) - f64::from(*e)));
    let scale = norm(terms.iter().map(|e| f64::from(*e))).max(1e-2);
    assert!(
        error <= bound * scale,
        "{what}: off by {error:e} of {scale:e}, bound {bound:e}\n{got:?}\non the CPU\n{expected:?}"
    );
}

/// `before + gradient` element by element if the pass accumulates, else the gradient.
fn merged(before: &[f32], gradient: &[f32], accumulate: bool) -> Vec<f32> {
    let sum = |(before, gradient): (&f32, &f32)| if accumulate { before + gradient } else { *gradient };
    before.iter().zip(gradient).map(sum).collect()
}
