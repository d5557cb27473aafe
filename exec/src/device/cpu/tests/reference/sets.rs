//! Computes layers whose output depends on many elements of a sample: softmax over channels, group normalisation, global
//! response normalisation.

use lockstep_models::{Layer, Shape};

/// The output for one sample.
pub(super) fn of_sample(layer: &Layer, shape: Shape, x: &[f64], parameters: &[f64]) -> Vec<f64> {
    let (channels, plane) = (shape.features() as usize, shape.places() as usize);
    let gamma = |at: usize| parameters[at / plane];
    let beta = |at: usize| parameters[channels + at / plane];
    match layer {
        Layer::Softmax(of) => {
            let sets = channels / of.parts as usize * plane;
            let sum = |at: usize| x.iter().skip(at % sets).step_by(sets).map(|x| x.exp()).sum::<f64>();
            x.iter().enumerate().map(|(at, x)| x.exp() / sum(at)).collect()
        }
        Layer::GroupNorm(of) => {
            let each = channels / of.groups as usize * plane;
            let moments = |group: &[f64]| {
                let mean = group.iter().sum::<f64>() / each as f64;
                (mean, group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / each as f64)
            };
            let groups: Vec<(f64, f64)> = x.chunks(each).map(moments).collect();
            let normal = |(at, x): (usize, &f64)| {
                let (mean, variance) = groups[at / each];
                gamma(at) * (x - mean) / (variance + f64::from(of.epsilon)).sqrt() + beta(at)
            };
            x.iter().enumerate().map(normal).collect()
        }
        Layer::ResponseNorm(of) => {
            let norms: Vec<f64> = x.chunks(plane).map(|x| x.iter().map(|x| x * x).sum::<f64>().sqrt()).collect();
            let mean = norms.iter().sum::<f64>() / channels as f64 + f64::from(of.epsilon);
            x.iter().enumerate().map(|(at, x)| gamma(at) * x * norms[at / plane] / mean + beta(at) + x).collect()
        }
        _ => panic!("of single elements"),
    }
}
