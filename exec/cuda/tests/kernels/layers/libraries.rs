//! Emulates cuDNN and cuBLASLt by slow obvious loops in f64, on tensors of the emulator's memory.

use lockstep_cuda::{Bf16, Command, Convolution, ConvolutionPass, Convolve, Multiply, Scalar};

use crate::emulator::Emulator;
use crate::memory::{Memory, Real};
use lockstep_models::{ImageShape, Precision};

/// Executes commands in order; all products must be of `precision`.
pub(crate) fn play(commands: &[Command], precision: Precision, emulator: &mut Emulator, memory: &mut Memory) {
    for command in commands {
        match command {
            Command::Launch(call) => emulator.call(memory, call),
            Command::Zero { address, bytes } => memory.bytes(*address, *bytes as usize).fill(0),
            Command::Convolve(pass) => {
                assert_eq!(pass.of.precision, precision);
                convolve(pass, memory);
            }
            Command::Multiply(product) => {
                assert_eq!(product.precision, precision);
                multiply(product, memory);
            }
        }
    }
}

/// A factor as rounded by a product of `precision`.
fn factor(memory: &mut Memory, address: u64, elements: usize, precision: Precision) -> Vec<f64> {
    let wide = |bits: u32| f64::from(f32::from_bits(bits));
    if precision == Precision::Bf16 {
        let halves = memory.bytes(address, 2 * elements).chunks_exact(2);
        return halves.map(|half| wide(u32::from(half[0]) << 16 | u32::from(half[1]) << 24)).collect();
    }
    let bits = read(memory, address, elements).into_iter().map(f32::to_bits);
    // TF32 keeps the 10 upper bits of the mantissa's 23, rounded.
    bits.map(|bits| wide(if precision == Precision::Tf32 { (bits + 0x1000) & !0x1fff } else { bits })).collect()
}

fn read(memory: &mut Memory, address: u64, elements: usize) -> Vec<f32> {
    let bytes = memory.bytes(address, 4 * elements).as_chunks().0;
    bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Writes sums with a bias, rectified, or added to existing values: rounded once, as a library may.
fn write<A: Real>(
    memory: &mut Memory,
    address: u64,
    sums: Vec<f64>,
    bias: impl Fn(usize) -> Option<f32>,
    rectified: bool,
    accumulate: bool,
) {
    let target = memory.bytes(address, size_of::<A>() * sums.len());
    for ((at, sum), place) in sums.iter().enumerate().zip(target.chunks_exact_mut(size_of::<A>())) {
        let before = if accumulate { f64::from(A::of(place).wide()) } else { 0.0 };
        let value = (before + sum) as f32 + bias(at).unwrap_or(0.0);
        let value = if rectified && value <= 0.0 { 0.0 } else { value };
        place.copy_from_slice(&A::nearest(value).bytes());
    }
}

/// [`write`], for numbers of a scalar.
fn write_as(
    scalar: Scalar,
    memory: &mut Memory,
    (address, sums): (u64, Vec<f64>),
    bias: impl Fn(usize) -> Option<f32>,
    (rectified, accumulate): (bool, bool),
) {
    match scalar {
        Scalar::F32 => write::<f32>(memory, address, sums, bias, rectified, accumulate),
        Scalar::Bf16 => write::<Bf16>(memory, address, sums, bias, rectified, accumulate),
    }
}

/// The indices of input, filters and output that are combined: y += x·w.
fn each_tap(of: &Convolution, mut tap: impl FnMut(usize, usize, usize)) {
    let (ins, outs) = (of.input.channels / of.groups, of.output.channels / of.groups);
    let inside = |at: u32, tap: u32, stride: u32, dilation: u32, padding: u32, size: u32| {
        (at * stride + tap * dilation).checked_sub(padding).filter(|place| *place < size)
    };
    for (sample, filter, channel) in
        (0..of.samples).flat_map(|n| (0..of.output.channels).flat_map(move |o| (0..ins).map(move |c| (n, o, c))))
    {
        let place = |shape: ImageShape, channel: u32, row: u32, column: u32| {
            let ImageShape { channels, height, width } = shape;
            if of.channels_last {
                ((sample * height + row) * width + column) * channels + channel
            } else {
                ((sample * channels + channel) * height + row) * width + column
            }
        };
        for (i, j) in (0..of.kernel.0).flat_map(|i| (0..of.kernel.1).map(move |j| (i, j))) {
            let taps = (filter * of.kernel.0 + i) * of.kernel.1 + j;
            let first = ((filter * ins + channel) * of.kernel.0 + i) * of.kernel.1 + j;
            let weight = if of.channels_last { taps * ins + channel } else { first };
            for (h, w) in (0..of.output.height).flat_map(|h| (0..of.output.width).map(move |w| (h, w))) {
                let row = inside(h, i, of.stride.0, of.dilation.0, of.padding.0, of.input.height);
                let column = inside(w, j, of.stride.1, of.dilation.1, of.padding.1, of.input.width);
                let (Some(row), Some(column)) = (row, column) else { continue };
                let x = place(of.input, filter / outs * ins + channel, row, column);
                let y = place(of.output, filter, h, w);
                tap(x as usize, weight as usize, y as usize);
            }
        }
    }
}

fn convolve(pass: &Convolve, memory: &mut Memory) {
    let Convolve { of, left, right, result, rectified, accumulate, .. } = *pass;
    let (x, y) =
        (of.samples as usize * of.input.elements() as usize, of.samples as usize * of.output.elements() as usize);
    let w = of.output.elements() as usize / of.output.pixels() as usize
        * (of.kernel.0 * of.kernel.1) as usize
        * (of.input.channels / of.groups) as usize;
    let (lefts, rights, results) = match pass.pass {
        ConvolutionPass::Forward => (x, w, y),
        ConvolutionPass::BackwardData => (y, w, x),
        ConvolutionPass::BackwardWeight => (x, y, w),
    };
    let left = factor(memory, left, lefts, of.precision);
    let right = factor(memory, right, rights, of.precision);
    let mut sums = vec![0.0f64; results];
    each_tap(&of, |x, w, y| match pass.pass {
        ConvolutionPass::Forward => sums[y] += left[x] * right[w],
        ConvolutionPass::BackwardData => sums[x] += left[y] * right[w],
        ConvolutionPass::BackwardWeight => sums[w] += left[x] * right[y],
    });
    assert!(pass.bias.is_some() || !rectified, "only what has a bias is rectified");
    assert!(pass.bias.is_none() || (pass.pass == ConvolutionPass::Forward && !accumulate));
    let biases = pass.bias.map(|bias| read(memory, bias, of.output.channels as usize));
    let plane = if of.channels_last { 1 } else { of.output.pixels() as usize };
    let bias = |at: usize| biases.as_ref().map(|biases| biases[at / plane % biases.len()]);
    write_as(Scalar::of(of.precision), memory, (result, sums), bias, (rectified, accumulate));
}

fn multiply(of: &Multiply, memory: &mut Memory) {
    let [rows, columns, depth] = [of.rows, of.columns, of.depth].map(|side| side as usize);
    let (a, b) =
        (factor(memory, of.a, rows * depth, of.precision), factor(memory, of.b, depth * columns, of.precision));
    let a = |row: usize, inner: usize| a[if of.transposed_a { inner * rows + row } else { row * depth + inner }];
    let b = |inner: usize, column: usize| {
        b[if of.transposed_b { column * depth + inner } else { inner * columns + column }]
    };
    let sum = |at: usize| (0..depth).map(|inner| a(at / columns, inner) * b(inner, at % columns)).sum::<f64>();
    let sums = (0..rows * columns).map(sum).collect();
    assert!(of.bias.is_some() || !of.rectified, "only what has a bias is rectified");
    assert!(of.bias.is_none() || !of.accumulate, "a bias is not added to a sum");
    let biases = of.bias.map(|bias| read(memory, bias, columns));
    let bias = |at: usize| biases.as_ref().map(|biases| biases[at % columns]);
    write_as(of.result, memory, (of.c, sums), bias, (of.rectified, of.accumulate));
}
