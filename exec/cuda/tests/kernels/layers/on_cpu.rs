//! Runs a chain on the CPU device, on numbers with channels first.

use lockstep_exec::device::cpu::{self, Mode};

/// The inputs of both sides.
pub(crate) struct Data {
    pub(crate) inputs: Vec<Vec<f32>>,
    pub(crate) parameters: Vec<f32>,
    pub(crate) statistics: Vec<f32>,
    pub(crate) d_output: Vec<f32>,
}

/// The results of a side.
pub(crate) struct Given {
    pub(crate) output: Vec<f32>,
    pub(crate) d_inputs: Vec<Vec<f32>>,
    pub(crate) gradient: Vec<f32>,
}

/// The output; running statistics are updated.
pub(crate) fn forward(on_cpu: &mut cpu::Kernel, data: &mut Data, mode: Mode) -> Vec<f32> {
    let inputs: Vec<&[f32]> = data.inputs.iter().map(Vec::as_slice).collect();
    let mut output = vec![f32::NAN; data.d_output.len()];
    on_cpu.forward(mode, &inputs, &data.parameters, &mut data.statistics, &mut output);
    output
}

/// All gradients.
pub(crate) fn backward(on_cpu: &mut cpu::Kernel, data: &Data, output: Vec<f32>) -> Given {
    let inputs: Vec<&[f32]> = data.inputs.iter().map(Vec::as_slice).collect();
    let mut d_inputs: Vec<Vec<f32>> = data.inputs.iter().map(|input| vec![f32::NAN; input.len()]).collect();
    let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), false))).collect();
    let mut gradient = vec![f32::NAN; data.parameters.len()];
    let (w, d) = (&data.parameters, &data.d_output);
    on_cpu.backward(&inputs, &output, w, d, &mut wanted, Some((&mut gradient[..], false)));
    Given { output, d_inputs, gradient }
}
