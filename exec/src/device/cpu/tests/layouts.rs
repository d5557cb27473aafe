//! Tests that interleaved samples give the same bits as planes, through every kernel and on each of its sides.

use super::*;
use crate::device::cpu::layout::side_by_side;

/// A tensor in a layout; `elements` per sample.
fn laid(values: &[f32], elements: usize, layout: Layout) -> Vec<f32> {
    (0..values.len()).map(|at| values[planes_at(at, elements, layout)]).collect()
}

/// The index in planes of the element at `at`.
fn planes_at(at: usize, elements: usize, layout: Layout) -> usize {
    match layout {
        Layout::Planes => at,
        Layout::SideBySide(group) => {
            let (line, sample) = (at / group, at % group);
            (line / elements * group + sample) * elements + line % elements
        }
    }
}

/// The bits of a tensor, in the order of planes.
fn in_planes(tensor: &[f32], elements: usize, layout: Layout) -> Vec<u32> {
    let mut found = vec![0; tensor.len()];
    for (at, value) in tensor.iter().enumerate() {
        found[planes_at(at, elements, layout)] = value.to_bits();
    }
    found
}

/// A training pass with these layouts; gradients of the inputs are added to ones when `accumulate`.
fn pass(kernel: &mut Kernel, data: &Data, samples: usize, layouts: (Layout, Layout), accumulate: bool) -> Pass {
    kernel.head.lay(layouts.0, layouts.1);
    let sizes: Vec<usize> = data.inputs.iter().map(|input| input.len() / samples).collect();
    let out = data.d_output.len() / samples;
    let inputs: Vec<Vec<f32>> =
        data.inputs.iter().zip(&sizes).map(|(input, size)| laid(input, *size, layouts.0)).collect();
    let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let d_output = laid(&data.d_output, out, layouts.1);
    let mut output = vec![f32::NAN; d_output.len()];
    let mut statistics = vec![0.5; data.parameters.len()];
    kernel.forward(Mode::Train, &inputs, &data.parameters, &mut statistics, &mut output);
    let first = if accumulate { 1.0 } else { f32::NAN };
    let mut d_inputs: Vec<Vec<f32>> = inputs.iter().map(|input| vec![first; input.len()]).collect();
    let mut gradient = vec![f32::NAN; data.parameters.len()];
    let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), accumulate))).collect();
    let (w, gradients) = (&data.parameters, Some((&mut gradient[..], false)));
    kernel.workspace.fill(f32::NAN);
    kernel.backward(&inputs, &output, w, &d_output, &mut wanted, gradients);
    Pass {
        output: in_planes(&output, out, layouts.1),
        d_inputs: d_inputs.iter().zip(&sizes).map(|(d, size)| in_planes(d, *size, layouts.0)).collect(),
        d_parameters: bits(&gradient),
        statistics: bits(&statistics),
    }
}

fn check(layers: &[Layer], inputs: &[Shape], samples: usize) {
    let (shapes, data) = chain(layers, inputs, samples);
    let members: Vec<ChainLayer<'_>> =
        layers.iter().zip(&shapes).map(|(layer, inputs)| ChainLayer { layer, inputs }).collect();
    let kernel = |threads: usize| Kernel::new(&members, samples, &Threads::new(threads).expect("a few threads"));
    let group = side_by_side(samples).expect("full groups");
    let (planes, groups) = (Layout::Planes, Layout::SideBySide(group));
    let others: &[(Layout, Layout)] = match kernel(1).head.fit() {
        Fit::Free => &[(groups, groups), (groups, planes), (planes, groups)],
        Fit::Alike => &[(groups, groups)],
        Fit::PlanesBehind => &[(groups, planes)],
        Fit::Planes => panic!("{layers:?} takes planes alone"),
    };
    for accumulate in [false, true] {
        let expected = pass(&mut kernel(1), &data, samples, (planes, planes), accumulate);
        for layouts in others {
            for threads in [1, 3] {
                let found = pass(&mut kernel(threads), &data, samples, *layouts, accumulate);
                assert!(found == expected, "{layers:?} × {samples}, {layouts:?}, {threads} threads, {accumulate}");
            }
        }
    }
}

#[test]
fn samples_side_by_side_give_the_bits_of_planes() {
    let norm = || Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 });
    let average = |padding| {
        let (kernel, stride, padding) = ((3, 3), (2, 2), (padding, padding));
        Layer::Pool2d(Pool2d { kind: PoolKind::Average, kernel, stride, padding, ceil: false, count_padding: false })
    };
    let bare = |layer| match layer {
        Layer::Conv2d(conv) => Layer::Conv2d(Conv2d { bias: false, ..conv }),
        other => other,
    };
    let cases = [
        // Winograd's products, with a tail and without.
        (vec![bare(conv(8, 3, 1, 1, 1))], vec![shape(12, 6, 8)]),
        (vec![conv(8, 3, 1, 1, 1)], vec![shape(8, 4, 4)]),
        (vec![conv(12, 3, 1, 1, 1), Layer::Relu], vec![shape(8, 4, 6)]),
        (vec![conv(8, 3, 1, 1, 1), Layer::Relu, max_pool(2, 2, 0)], vec![shape(8, 6, 6)]),
        // Sums over taps: with padding, strides, pooling, odd planes.
        (vec![bare(conv(5, 3, 2, 1, 1))], vec![shape(3, 9, 7)]),
        (vec![bare(conv(6, 1, 2, 0, 1))], vec![shape(8, 8, 8)]),
        (vec![conv(4, 5, 1, 2, 1), max_pool(2, 2, 0)], vec![shape(2, 8, 8)]),
        (vec![conv(5, 3, 1, 0, 1), Layer::Relu], vec![shape(3, 7, 5)]),
        // Planes shorter and longer than the number of partial sums.
        (vec![norm()], vec![shape(19, 1, 1)]),
        (vec![norm(), Layer::Relu], vec![shape(6, 5, 7)]),
        (vec![norm(), Layer::Relu], vec![shape(3, 8, 8)]),
        (vec![Layer::Add, Layer::Relu], vec![shape(6, 5, 7); 2]),
        (vec![average(0)], vec![shape(3, 7, 9)]),
        (vec![average(1)], vec![shape(2, 6, 5)]),
        (vec![Layer::GlobalPool], vec![shape(5, 8, 7)]),
    ];
    for (layers, inputs) in cases {
        for samples in [4, 8, 16, 48] {
            check(&layers, &inputs, samples);
        }
    }
}
