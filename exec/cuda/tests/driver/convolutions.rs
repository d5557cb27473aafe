//! Compares cuDNN's convolutions with plain loops.

use lockstep_cuda::driver::WorkspaceLimits;
use lockstep_cuda::{Command, Convolution, ConvolutionPass, Convolve};
use lockstep_exec::device::DeviceError;
use lockstep_models::{ImageShape, Precision};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::bench::{Bench, play, pointwise, rng, whole};
use crate::scene;

/// Any convolution of small sizes, of either layout.
fn any(rng: &mut ChaCha8Rng, precision: Precision) -> Convolution {
    let groups = rng.random_range(1..=3);
    let (each, filters) = (rng.random_range(1..=3), groups * rng.random_range(1..=4));
    let (padding, stride) = ((0..3).map(|p| (p, 2 - p)), (1..3u32).map(|s| (s, 3 - s)));
    let pick = |rng: &mut ChaCha8Rng, all: Vec<(u32, u32)>| all[rng.random_range(0..all.len())];
    let (padding, stride) = (pick(rng, padding.collect()), pick(rng, stride.collect()));
    let kernel = (rng.random_range(1..=3), rng.random_range(1..=3));
    let dilation = (rng.random_range(1..=2), rng.random_range(1..=2));
    let (height, width) = (rng.random_range(5..=8), rng.random_range(5..=8));
    // The places that a window reaches over.
    let reach = (dilation.0 * (kernel.0 - 1) + 1, dilation.1 * (kernel.1 - 1) + 1);
    Convolution {
        samples: rng.random_range(1..=3),
        input: ImageShape { channels: groups * each, height, width },
        output: ImageShape {
            channels: filters,
            height: (height + 2 * padding.0 - reach.0) / stride.0 + 1,
            width: (width + 2 * padding.1 - reach.1) / stride.1 + 1,
        },
        kernel,
        stride,
        padding,
        dilation,
        groups,
        precision,
        channels_last: rng.random(),
    }
}

/// Elements of the input, the filters and the output.
fn sizes(of: &Convolution) -> [usize; 3] {
    let size = |shape: ImageShape| shape.elements() as usize;
    let filter = of.input.channels / of.groups * of.kernel.0 * of.kernel.1;
    let samples = of.samples as usize;
    [samples * size(of.input), (of.output.channels * filter) as usize, samples * size(of.output)]
}

/// The index of an element in a tensor or in filters, each with that many channels.
fn place(of: &Convolution, each: u32, size: (u32, u32), [first, channel, row, column]: [u32; 4]) -> usize {
    let (height, width) = size;
    let place = if of.channels_last {
        ((first * height + row) * width + column) * each + channel
    } else {
        ((first * each + channel) * height + row) * width + column
    };
    place as usize
}

/// Calls `term` with the places in input, filters and output of each product that the convolution is a sum of.
fn products(of: &Convolution, mut term: impl FnMut(usize, usize, usize)) {
    let (input, output) = (of.input, of.output);
    let (each, filters) = (input.channels / of.groups, output.channels / of.groups);
    for (sample, filter) in (0..of.samples).flat_map(|s| (0..output.channels).map(move |f| (s, f))) {
        for (y, x) in (0..output.height).flat_map(|y| (0..output.width).map(move |x| (y, x))) {
            let to = place(of, output.channels, (output.height, output.width), [sample, filter, y, x]);
            for channel in 0..each {
                for (down, right) in (0..of.kernel.0).flat_map(|d| (0..of.kernel.1).map(move |r| (d, r))) {
                    let (row, column) =
                        (y * of.stride.0 + down * of.dilation.0, x * of.stride.1 + right * of.dilation.1);
                    let inside = |at: u32, padding: u32, size: u32| at.checked_sub(padding).filter(|at| *at < size);
                    let row = inside(row, of.padding.0, input.height);
                    let column = inside(column, of.padding.1, input.width);
                    let (Some(row), Some(column)) = (row, column) else { continue };
                    let from = filter / filters * each + channel;
                    let size = (input.height, input.width);
                    let from = place(of, input.channels, size, [sample, from, row, column]);
                    term(from, place(of, each, of.kernel, [filter, channel, down, right]), to);
                }
            }
        }
    }
}

/// A pass by plain loops, from its two operands in the command's order, added to `sums`.
fn by_loops(of: &Convolution, pass: ConvolutionPass, left: &[f32], right: &[f32], sums: &mut [f32]) {
    products(of, |from, weight, to| match pass {
        ConvolutionPass::Forward => sums[to] += left[from] * right[weight],
        ConvolutionPass::BackwardData => sums[from] += left[to] * right[weight],
        ConvolutionPass::BackwardWeight => sums[weight] += left[from] * right[to],
    });
}

const PASSES: [ConvolutionPass; 3] =
    [ConvolutionPass::Forward, ConvolutionPass::BackwardData, ConvolutionPass::BackwardWeight];

/// Elements of a pass's operands and result.
fn operands(of: &Convolution, pass: ConvolutionPass) -> [usize; 3] {
    let [input, filters, output] = sizes(of);
    match pass {
        ConvolutionPass::Forward => [input, filters, output],
        ConvolutionPass::BackwardData => [output, filters, input],
        ConvolutionPass::BackwardWeight => [input, output, filters],
    }
}

/// Sums of whole numbers are exact, so a nondeterministic algorithm, or one wrong product, shows.
#[test]
fn passes_equal_plain_loops() {
    scene("convolutions::passes_equal_plain_loops", &[], |_, places| {
        let bench = Bench::open(&places);
        let mut executor = bench.executor(WorkspaceLimits::default());
        for case in 0..90 {
            let rng = &mut rng(case);
            let precision = [Precision::F32, Precision::Tf32, Precision::Bf16][case as usize % 3];
            let of = any(rng, precision);
            for (pass, accumulate) in PASSES.into_iter().flat_map(|pass| [(pass, false), (pass, true)]) {
                let [left, right, result] = operands(&of, pass).map(|elements| whole(elements, rng));
                let bf16 = precision == Precision::Bf16;
                let before = if accumulate { result } else { vec![f32::NAN; result.len()] };
                let mut expected = if accumulate { before.clone() } else { vec![0.0; before.len()] };
                by_loops(&of, pass, &left, &right, &mut expected);
                if bf16 && expected.iter().any(|sum| sum.abs() > 256.0) {
                    continue; // bf16 holds no odd number beyond.
                }
                let [a, b, to] = [&left, &right, &before].map(|values| bench.placed(values, bf16, rng));
                let (left, right, result) = (a.address, b.address, to.address);
                let convolve = Convolve { of, pass, left, right, result, bias: None, rectified: false, accumulate };
                play(&mut executor, &[Command::Convolve(convolve)]);
                let got = bench.read_placed(&to);
                assert_eq!(got, expected, "case {case}: {pass:?}, accumulate {accumulate}, {of:?}");
            }
        }
    });
}

/// With cuDNN's fused pass; and without it, where cuDNN declines (some numbers of filters, groups) or is not asked
/// (bf16).
#[test]
fn biases_and_rectifiers_are_applied() {
    scene("convolutions::biases_and_rectifiers_are_applied", &[], |_, places| {
        let bench = Bench::open(&places);
        let mut executor = bench.executor(WorkspaceLimits::default());
        for case in 0..60 {
            let rng = &mut rng(case);
            let bf16 = case % 3 == 2;
            let of = any(rng, if bf16 { Precision::Bf16 } else { Precision::F32 });
            let [input, filters, output] = sizes(&of);
            let [left, right, shift] = [input, filters, of.output.channels as usize].map(|size| whole(size, rng));
            let [a, b] = [&left, &right].map(|values| bench.placed(values, bf16, rng));
            let bias = bench.placed(&shift, false, rng);
            for rectified in [false, true, true] {
                let mut expected = vec![0.0; output];
                by_loops(&of, ConvolutionPass::Forward, &left, &right, &mut expected);
                if bf16 && expected.iter().any(|sum| sum.abs() > 254.0) {
                    continue; // bf16 holds no odd number beyond 256.
                }
                let plane = if of.channels_last { 1 } else { of.output.pixels() as usize };
                for (at, sum) in expected.iter_mut().enumerate() {
                    *sum += shift[at / plane % shift.len()];
                    if rectified {
                        *sum = sum.max(0.0);
                    }
                }
                let to = bench.placed(&vec![f32::NAN; output], bf16, rng);
                play(
                    &mut executor,
                    &[Command::Convolve(Convolve {
                        of,
                        pass: ConvolutionPass::Forward,
                        left: a.address,
                        right: b.address,
                        result: to.address,
                        bias: Some(bias.address),
                        rectified,
                        accumulate: false,
                    })],
                );
                assert_eq!(bench.read_placed(&to), expected, "case {case}: rectified {rectified}, {of:?}");
            }
        }
    });
}

/// A product of 1 + 2⁻¹² and 1 in fp32, whose factors TF32 rounds to 1.
#[test]
fn factors_are_rounded_only_on_request() {
    scene("convolutions::factors_are_rounded_only_on_request", &[], |_, places| {
        let bench = Bench::open(&places);
        let mut executor = bench.executor(WorkspaceLimits::default());
        let fine = 1.0 + 2f32.powi(-12);
        for (precision, expected) in [(Precision::F32, fine), (Precision::Tf32, 1.0)] {
            let of = pointwise(1, 1, precision);
            for pass in PASSES {
                let [a, b, to] = [fine, 1.0, f32::NAN].map(|value| bench.floats(&[value]));
                let (left, right, result) = (a.address(), b.address(), to.address());
                let convolve =
                    Convolve { of, pass, left, right, result, bias: None, rectified: false, accumulate: false };
                play(&mut executor, &[Command::Convolve(convolve)]);
                assert_eq!(bench.read(&to), [expected], "{precision:?} {pass:?}");
            }
        }
    });
}

/// Algorithms are chosen and memory is allocated before the first command; unsupported commands are refused then.
#[test]
fn plans_are_made_before_execution() {
    scene("convolutions::plans_are_made_before_execution", &[], |_, places| {
        let bench = Bench::open(&places);
        let of = any(&mut rng(3), Precision::F32);
        let command = |pass, bias, accumulate| {
            let (left, right, result) = (0x1000, 0x2000, 0x3000);
            Command::Convolve(Convolve { of, pass, left, right, result, bias, rectified: false, accumulate })
        };
        let all = PASSES.map(|pass| command(pass, None, false));
        let mut executor = bench.executor(WorkspaceLimits::default());
        assert_eq!(executor.workspace_bytes(), 0);
        executor.prepare(&all).expect("all passes have an algorithm");
        let taken = executor.workspace_bytes();
        assert!(taken > 0 && taken <= WorkspaceLimits::default().workspace);
        let free = bench.context.memory().expect("an answer").0;
        executor.prepare(&all).expect("all passes have an algorithm");
        assert_eq!((executor.workspace_bytes(), bench.context.memory().expect("an answer").0), (taken, free));

        // Without a workspace the forward pass has an algorithm; deterministic backward passes take the least.
        let mut poor = bench.executor(WorkspaceLimits { workspace: 0, repeatable: true });
        poor.prepare(&all[..1]).expect("an algorithm without a workspace");
        assert_eq!(poor.workspace_bytes(), 0);
        poor.prepare(&all).expect("algorithms with more than the limit");
        assert!(poor.workspace_bytes() > 0 && poor.workspace_bytes() <= taken);
        let mut careless = bench.executor(WorkspaceLimits { workspace: 0, repeatable: false });
        careless.prepare(&all).expect("those that do not repeat");
        assert_eq!(careless.workspace_bytes(), 0);

        for wrong in [
            command(ConvolutionPass::BackwardData, Some(0x4000), false),
            command(ConvolutionPass::Forward, Some(0x4000), true),
        ] {
            let refused = executor.prepare(&[wrong]);
            assert!(matches!(refused, Err(DeviceError::Refused { .. })), "{refused:?}");
        }
        let mut torn = of;
        torn.output.height += 1;
        let (left, right, result) = (0x1000, 0x2000, 0x3000);
        let pass = ConvolutionPass::Forward;
        let torn = Convolve { of: torn, pass, left, right, result, bias: None, rectified: false, accumulate: false };
        let refused = executor.prepare(&[Command::Convolve(torn)]);
        let Err(DeviceError::Refused { call, reason }) = refused else { panic!("{refused:?}") };
        assert!(call.starts_with("cudnnGet") && reason.starts_with("CUDNN_STATUS_BAD_PARAM"), "{call}: {reason}");
    });
}
