//! Draws the initial values of every parameter as its model says, each from a random stream of its own.
//!
//! The seed and the parameter's position select the stream, so all ranks start alike without a broadcast, and no value
//! depends on the order in which parameters are filled.

use lockstep_data::random::{Purpose, normal_pair, stream, uniform};
use lockstep_models::{Init, Model, Parameter};
use rand_chacha::ChaCha8Rng;

/// The parameter arena of `model` at the start of training, [`Model::parameter_elements`] values.
///
/// He: normal, variance 2 / fan-in (He et al. 2015 §2.2, eq. 10). Xavier: uniform in ±√(6 / (fan-in + fan-out)) (Glorot and
/// Bengio 2010, eq. 16). Both are drawn in `f64` and rounded once; normal variates rest on the platform's `ln`, `sin` and
/// `cos`, everything else is the same bits everywhere.
pub fn parameters(model: &Model, seed: u64) -> Vec<f32> {
    let mut arena = vec![0.0; model.parameter_elements() as usize];
    let all = model.layers().iter().flat_map(|node| &node.parameters);
    for (index, parameter) in all.enumerate() {
        let values = &mut arena[parameter.range.start as usize..parameter.range.end as usize];
        fill(values, parameter, &mut stream(seed, Purpose::Parameter, index as u64));
    }
    arena
}

/// The statistics arena of `model` at the start of training: running means 0, running variances 1.
pub fn statistics(model: &Model) -> Vec<f32> {
    let mut arena = vec![0.0; model.statistics_elements() as usize];
    for range in model.layers().iter().filter_map(|node| node.statistics.clone()) {
        let middle = range.start + (range.end - range.start) / 2;
        arena[middle as usize..range.end as usize].fill(1.0);
    }
    arena
}

/// Draws the values of one parameter.
fn fill(values: &mut [f32], parameter: &Parameter, rng: &mut ChaCha8Rng) {
    let (fan_in, fan_out) = (parameter.fan_in() as f64, parameter.fan_out() as f64);
    match parameter.init {
        Init::He => normal(values, (2.0 / fan_in).sqrt(), rng),
        Init::Gaussian(deviation) => normal(values, f64::from(deviation), rng),
        Init::Xavier => {
            let bound = (6.0 / (fan_in + fan_out)).sqrt();
            values.fill_with(|| (bound * (2.0 * uniform(rng) - 1.0)) as f32);
        }
        Init::Constant(value) => values.fill(value),
    }
}

/// Normal values of mean 0.
fn normal(values: &mut [f32], deviation: f64, rng: &mut ChaCha8Rng) {
    for pair in values.chunks_mut(2) {
        for (value, variate) in pair.iter_mut().zip(normal_pair(rng)) {
            *value = (deviation * variate) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::{Dimension, Shape};
    use proptest::prelude::*;

    use super::*;

    fn parameter(shape: Shape, init: Init) -> Parameter {
        let multipliers = lockstep_models::Multipliers::NONE;
        Parameter { name: "here.weight".into(), shape, range: 0..shape.elements(), init, decay: true, multipliers }
    }

    fn drawn(sizes: &[u32], init: Init) -> Vec<f32> {
        let names = [Dimension::Output, Dimension::Input, Dimension::Row, Dimension::Column];
        let dimensions: Vec<_> = names.into_iter().zip(sizes.iter().copied()).collect();
        let parameter = parameter(Shape::new(&dimensions), init);
        let mut values = vec![f32::NAN; parameter.elements() as usize];
        fill(&mut values, &parameter, &mut stream(7, Purpose::Parameter, 0));
        values
    }

    fn moments(values: &[f32]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
        (mean, (values.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count).sqrt())
    }

    #[test]
    fn each_kind_has_its_deviation() {
        // A convolution of 64 filters of 32×5×5: fan-in 32·25 = 800, fan-out 64·25 = 1600; 51,200 values, so the mean is
        // within 5 / √51200 = 2.2 % of a deviation of 0, and the deviation within 5 / √102400 = 1.6 % of its own.
        let sizes = [64, 32, 5, 5];
        // A uniform number in ±b has the deviation b / √3: √(6 / 2400) / √3 = √(2 / 2400).
        for (init, expected) in
            [(Init::He, (2f64 / 800.0).sqrt()), (Init::Xavier, (2f64 / 2400.0).sqrt()), (Init::Gaussian(0.01), 0.01)]
        {
            let values = drawn(&sizes, init);
            let (mean, deviation) = moments(&values);
            assert!(mean.abs() < 0.022 * expected, "{init:?}: mean {mean}");
            assert!((deviation / expected - 1.0).abs() < 0.016, "{init:?}: {deviation}, expected {expected}");
        }
        let bound = (6f32 / 2400.0).sqrt();
        assert!(drawn(&sizes, Init::Xavier).iter().all(|x| x.abs() <= bound));
        // For dense [10, 1024] the fan-in is 1024, and an odd count leaves no value unfilled.
        let (_, deviation) = moments(&drawn(&[10, 1024], Init::He));
        assert!((deviation / (2f64 / 1024.0).sqrt() - 1.0).abs() < 0.035, "{deviation}");
        assert!(drawn(&[3, 5], Init::He).iter().all(|x| x.is_finite()));
        assert_eq!(drawn(&[3], Init::Constant(0.5)), [0.5; 3]);
    }

    #[test]
    fn lenet_starts_as_its_model_says() {
        let model = lockstep_readers::load_model("lenet").unwrap();
        let values = parameters(&model, 1);
        assert_eq!(values.len(), 1_111_946);
        for parameter in model.layers().iter().flat_map(|node| &node.parameters) {
            let own = &values[parameter.range.start as usize..parameter.range.end as usize];
            if parameter.name.ends_with("bias") {
                assert!(own.iter().all(|x| *x == 0.0), "{}", parameter.name);
            } else {
                let (_, deviation) = moments(own);
                let expected = match parameter.init {
                    Init::Xavier => (2.0 / (parameter.fan_in() + parameter.fan_out()) as f64).sqrt(),
                    Init::Gaussian(deviation) => f64::from(deviation),
                    other => panic!("{}: {other:?}", parameter.name),
                };
                let ratio = deviation / expected;
                assert!((ratio - 1.0).abs() < 5.0 / (2.0 * own.len() as f64).sqrt(), "{}: {ratio}", parameter.name);
            }
        }
    }

    #[test]
    fn statistics_are_means_of_zero_then_variances_of_one() {
        let model = lockstep_readers::load_model("resnet-32").unwrap();
        let values = statistics(&model);
        let mut seen = 0;
        for range in model.layers().iter().filter_map(|node| node.statistics.clone()) {
            let own = &values[range.start as usize..range.end as usize];
            let (means, variances) = own.split_at(own.len() / 2);
            assert_eq!(means.len(), variances.len());
            assert!(means.iter().all(|x| *x == 0.0) && variances.iter().all(|x| *x == 1.0));
            seen += own.len();
        }
        assert!(seen > 0 && seen == values.len());
        assert!(statistics(&lockstep_readers::load_model("lenet").unwrap()).is_empty());
    }

    proptest! {
        #[test]
        fn values_depend_on_the_seed_and_the_parameter_alone(model_seed: u64, seed: u64) {
            let model = lockstep_models::random_model(model_seed, true);
            let values = parameters(&model, seed);
            prop_assert_eq!(&values, &parameters(&model, seed));
            prop_assert!(values.iter().all(|x| x.is_finite()));
            // Filled alone and in reverse order, every parameter is the same.
            let all: Vec<&Parameter> = model.layers().iter().flat_map(|node| &node.parameters).collect();
            for (index, parameter) in all.iter().enumerate().rev() {
                let mut own = vec![0.0; parameter.elements() as usize];
                fill(&mut own, parameter, &mut stream(seed, Purpose::Parameter, index as u64));
                prop_assert_eq!(&own[..], &values[parameter.range.start as usize..parameter.range.end as usize]);
            }
            let random = all.iter().any(|p| !matches!(p.init, Init::Constant(_)));
            prop_assert!(!random || values != parameters(&model, seed.wrapping_add(1)));
        }
    }
}
