//! Compares cuBLASLt's matrix products with plain loops.

use lockstep_cuda::driver::WorkspaceLimits;
use lockstep_cuda::{Command, Multiply, Scalar};
use lockstep_exec::device::DeviceError;
use lockstep_models::Precision;
use rand::RngExt;

use crate::bench::{Bench, play, rng, whole};
use crate::scene;

/// A·B of row-major matrices, transposed where they are, added to `sums`.
fn by_loops(of: &Multiply, a: &[f32], b: &[f32], sums: &mut [f32]) {
    let (rows, columns, depth) = (of.rows as usize, of.columns as usize, of.depth as usize);
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        for inner in 0..depth {
            let left = if of.transposed_a { a[inner * rows + row] } else { a[row * depth + inner] };
            let right = if of.transposed_b { b[column * depth + inner] } else { b[inner * columns + column] };
            sums[row * columns + column] += left * right;
        }
    }
}

/// What follows a product.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Nothing,
    Bias,
    Rectified,
    Accumulate,
}

/// Precisions of factors and scalars of results.
const KINDS: [(Precision, Scalar); 4] = [
    (Precision::F32, Scalar::F32),
    (Precision::Tf32, Scalar::F32),
    (Precision::Bf16, Scalar::F32),
    (Precision::Bf16, Scalar::Bf16),
];

/// All transpositions, endings and precisions, at any alignment, with workspaces and without.
#[test]
fn products_equal_plain_loops() {
    scene("products::products_equal_plain_loops", &[], |_, places| {
        let bench = Bench::open(&places);
        let mut executor = bench.executor(WorkspaceLimits::default());
        let mut case = 0;
        let endings = [Then::Nothing, Then::Bias, Then::Rectified, Then::Accumulate];
        for (then, transposed) in endings.into_iter().flat_map(|then| (0..4).map(move |t| (then, t))) {
            for (precision, result) in KINDS {
                for _ in 0..4 {
                    case += 1;
                    let rng = &mut rng(case);
                    let [rows, columns, depth] = [(); 3].map(|()| rng.random_range(1..=40u32));
                    let elements = [rows * depth, depth * columns, rows * columns, columns];
                    let values = elements.map(|elements| whole(elements as usize, rng));
                    let bf16 = precision == Precision::Bf16;
                    let [a, b, c, bias] = &values;
                    let accumulate = then == Then::Accumulate;
                    let before = if accumulate { c.clone() } else { vec![f32::NAN; c.len()] };
                    let mut place = |values: &[f32], half| bench.placed(values, half, rng);
                    let (a_at, b_at) = (place(a, bf16), place(b, bf16));
                    let (c_at, bias_at) = (place(&before, result == Scalar::Bf16), place(bias, false));
                    let product = Multiply {
                        rows,
                        columns,
                        depth,
                        a: a_at.address,
                        transposed_a: transposed & 1 != 0,
                        b: b_at.address,
                        transposed_b: transposed & 2 != 0,
                        c: c_at.address,
                        result,
                        bias: matches!(then, Then::Bias | Then::Rectified).then_some(bias_at.address),
                        rectified: then == Then::Rectified,
                        accumulate,
                        precision,
                    };
                    let mut expected = if accumulate { before } else { vec![0.0; c.len()] };
                    by_loops(&product, a, b, &mut expected);
                    for (at, sum) in expected.iter_mut().enumerate() {
                        if product.bias.is_some() {
                            *sum += bias[at % columns as usize];
                        }
                        if product.rectified {
                            *sum = sum.max(0.0);
                        }
                    }
                    play(&mut executor, &[Command::Multiply(product)]);
                    assert_eq!(bench.read_placed(&c_at), expected, "case {case}: {then:?} {product:?}");
                }
            }
        }
        assert!(executor.workspace_bytes() > 0, "some of them take one");
    });
}

#[test]
fn factors_are_rounded_only_on_request() {
    scene("products::factors_are_rounded_only_on_request", &[], |_, places| {
        let bench = Bench::open(&places);
        let mut executor = bench.executor(WorkspaceLimits::default());
        let fine = 1.0 + 2f32.powi(-12);
        for (precision, expected) in [(Precision::F32, fine), (Precision::Tf32, 1.0)] {
            let [a, b, c] = [fine, 1.0, f32::NAN].map(|value| bench.floats(&[value]));
            let product = Multiply {
                rows: 1,
                columns: 1,
                depth: 1,
                a: a.address(),
                transposed_a: false,
                b: b.address(),
                transposed_b: false,
                c: c.address(),
                result: Scalar::F32,
                bias: None,
                rectified: false,
                accumulate: false,
                precision,
            };
            play(&mut executor, &[Command::Multiply(product)]);
            assert_eq!(bench.read(&c), [expected], "{precision:?}");
            for wrong in [
                Multiply { rectified: true, ..product },
                Multiply { bias: Some(0x1000), accumulate: true, ..product },
                Multiply { depth: 0, ..product },
                // No library makes bf16 from fp32.
                Multiply { result: Scalar::Bf16, ..product },
            ] {
                let refused = executor.prepare(&[Command::Multiply(wrong)]);
                assert!(matches!(refused, Err(DeviceError::Refused { .. })), "{wrong:?}: {refused:?}");
            }
        }
    });
}
