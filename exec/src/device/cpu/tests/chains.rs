//! Tests that a chain gives the bits of its layers run one by one.

use super::*;

#[test]
fn fused_equals_unfused() {
    let norm = || Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 });
    let dense = || Layer::Dense(Dense { out_features: 70, bias: true });
    let chains = [
        (vec![conv(5, 3, 1, 1, 1), Layer::Relu, max_pool(2, 2, 0)], vec![shape(3, 9, 10)]),
        (vec![conv(4, 3, 1, 0, 2), Layer::Relu, max_pool(3, 2, 1)], vec![shape(2, 12, 12)]),
        (vec![conv(4, 5, 1, 2, 1), max_pool(2, 2, 0)], vec![shape(1, 8, 8)]),
        (vec![conv(4, 3, 2, 1, 1), Layer::Relu], vec![shape(3, 9, 9)]),
        (vec![Layer::Flatten, dense(), Layer::Relu], vec![shape(3, 9, 9)]),
        (vec![dense(), Layer::Relu, Layer::Flatten], vec![shape(300, 1, 1)]),
        (vec![norm(), Layer::Relu], vec![shape(6, 5, 7)]),
        (vec![norm(), Layer::Relu], vec![shape(19, 1, 1)]),
        (vec![Layer::Add, Layer::Relu], vec![shape(6, 5, 7); 3]),
    ];
    for (layers, inputs) in chains {
        for samples in [1, 7, 16, 27] {
            check_chain(&layers, &inputs, samples);
        }
    }
}

fn check_chain(layers: &[Layer], inputs: &[Shape], samples: usize) {
    let (shapes, data) = chain(layers, inputs, samples);
    let members: Vec<ChainLayer<'_>> =
        layers.iter().zip(&shapes).map(|(layer, inputs)| ChainLayer { layer, inputs }).collect();
    let fused = run(&mut Kernel::new(&members, samples, &Threads::new(2).expect("two threads")), &data);

    // One by one: all forward, keeping each output, then all backward.
    let mut kernels: Vec<Kernel> =
        members.iter().map(|member| Kernel::new(&[*member], samples, &Threads::one())).collect();
    let mut tensors: Vec<Vec<Vec<f32>>> = vec![data.inputs.clone()];
    let parameters = data.parameters.len();
    let mut statistics = vec![0.5; parameters];
    for (at, kernel) in kernels.iter_mut().enumerate() {
        let ins: Vec<&[f32]> = tensors[at].iter().map(Vec::as_slice).collect();
        let mut output = vec![0.0; samples * size(shapes[at + 1][0])];
        kernel.forward(Mode::Train, &ins, &data.parameters, &mut statistics, &mut output);
        tensors.push(vec![output]);
    }
    let mut gradient = vec![0.0; parameters];
    let mut d_tensors: Vec<Vec<f32>> = vec![data.d_output.clone()];
    for (at, kernel) in kernels.iter_mut().enumerate().rev() {
        let ins: Vec<&[f32]> = tensors[at].iter().map(Vec::as_slice).collect();
        let mut d_inputs: Vec<Vec<f32>> = ins.iter().map(|input| vec![0.0; input.len()]).collect();
        let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), false))).collect();
        let own = if parameters_of(&layers[at], &shapes[at]) > 0 { parameters } else { 0 };
        let (output, d_output) = (&tensors[at + 1][0], &d_tensors[0]);
        let (w, g) = (&data.parameters, &mut gradient[..own]);
        kernel.backward(&ins, output, w, d_output, &mut wanted, Some((g, false)));
        d_tensors = d_inputs;
    }
    let last = &tensors[layers.len()][0];
    assert!(bits(last) == fused.output, "{layers:?} × {samples}: outputs differ");
    assert!(bits(&gradient) == fused.d_parameters, "{layers:?} × {samples}: parameters' gradients differ");
    assert!(bits(&statistics) == fused.statistics, "{layers:?} × {samples}: statistics differ");
    for (apart, fused) in d_tensors.iter().zip(&fused.d_inputs) {
        assert!(bits(apart) == *fused, "{layers:?} × {samples}: inputs' gradients differ");
    }
}
