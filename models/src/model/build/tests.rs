//! Tests what models say of their samples and labels.

use lockstep_topology::Dtype;

use super::*;
use crate::{Dense, Dimension, SampleTensor};

/// An input of such samples, a dense layer of two classes, a loss.
fn model(sample: SampleTensor) -> Result<Model, InputError> {
    let dense = Layer::Dense(Dense { out_features: 2, bias: false });
    let layers = [Layer::input_of(sample), dense, Layer::SoftmaxCrossEntropy];
    let draft = |(index, layer): (usize, Layer)| Draft {
        name: format!("layer {index}"),
        layer,
        inputs: index.checked_sub(1).into_iter().collect(),
        inits: Inits::default(),
        multipliers: Vec::new(),
        loss_weight: 1.0,
        place: ErrorPlace::None,
    };
    Model::build("m".to_owned(), String::new(), layers.into_iter().enumerate().map(draft).collect())
}

#[test]
fn inputs_and_labels_have_shapes_and_formats() {
    let values = SampleTensor::values(Shape::of_image(3, 4, 5));
    let found = model(values).unwrap();
    assert_eq!((found.sample(), found.labels()), (values, Some(SampleTensor::labels(Shape::SINGLE))));
    // A loss at each position has a label there.
    let scores = Shape::new(&[(Dimension::Position, 7), (Dimension::Feature, 9)]);
    let labels = Layer::SoftmaxCrossEntropy.rule().labels(scores).unwrap();
    assert_eq!(labels, SampleTensor::labels(Shape::new(&[(Dimension::Position, 7)])));
    assert_eq!(Layer::Relu.rule().labels(scores), None);
}

#[test]
fn layers_that_compute_with_values_refuse_integers() {
    for dtype in [Dtype::U8, Dtype::U16, Dtype::U32] {
        let tokens = SampleTensor { shape: Shape::flat(8), dtype };
        let refused = model(tokens).unwrap_err().to_string();
        let wanted =
            format!("layer 1 (dense): computes with values, and the samples are {dtype} of 8×1×1: give it fp32");
        assert!(refused.contains(&wanted), "{refused}");
    }
}
