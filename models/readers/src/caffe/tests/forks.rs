//! Tests layers that are several here, samples without data, and fields of forks.

use super::*;
use lockstep_models::{Affine, Dimension};

/// The kinds of its layers.
fn kinds(text: &str) -> Vec<&'static str> {
    read(text).layers().iter().map(|node| node.layer.kind()).collect()
}

const MEANS: &str =
    "layer { name: \"g\" type: \"Pooling\" bottom: \"x\" top: \"g\" pooling_param { pool: AVE global_pooling: true } }";

/// Scores from the blob `from`.
fn scores(from: &str) -> String {
    format!(
        "layer {{ name: \"s\" type: \"InnerProduct\" bottom: \"{from}\" top: \"y\" inner_product_param {{ num_output: 3 }} }}"
    )
}

/// Squeeze and excitation as two forks write it: with `Axpy`, and with a `Scale` of two blobs.
#[test]
fn factors_of_channels_are_products() {
    let axpy = "layer { name: \"a\" type: \"Axpy\" bottom: \"g\" bottom: \"x\" bottom: \"x\" top: \"a\" }";
    let of = |layer: &str| net(&format!("{MEANS}\n{layer}\n{}", scores("a")));
    assert_eq!(kinds(&of(axpy))[1..4], ["global_pool", "product", "add"]);
    let model = read(&of(axpy));
    let product = model.layers().iter().find(|node| node.layer == Layer::Product).expect("a product");
    assert_eq!(product.input_shapes.iter().map(|shape| shape.size(Dimension::Row)).collect::<Vec<_>>(), [6, 1]);
    let scale = "layer { name: \"a\" type: \"Scale\" bottom: \"x\" bottom: \"g\" top: \"a\" scale_param { axis: 0 } }";
    assert_eq!(kinds(&of(scale))[1..3], ["global_pool", "product"]);
    assert!(refused(&of(&scale.replace("axis: 0", "bias_term: true axis: 0"))).contains("without a bias"));
    assert!(refused(&of(&axpy.replace("bottom: \"g\" ", ""))).contains("has three bottoms"));
}

#[test]
fn coefficients_of_sums_are_factors() {
    let of = |coefficients: &str| {
        let relu = "layer { name: \"r\" type: \"ReLU\" bottom: \"x\" top: \"r\" }";
        let sum = format!(
            "layer {{ name: \"a\" type: \"Eltwise\" bottom: \"x\" bottom: \"r\" top: \"a\" eltwise_param {{ {coefficients} }} }}"
        );
        net(&format!("{relu}\n{sum}\n{}", scores("a")))
    };
    assert_eq!(kinds(&of("operation: SUM coeff: 1 coeff: 1"))[1..3], ["relu", "add"]);
    let weighed = read(&of("coeff: 1 coeff: 0.17"));
    assert_eq!(weighed.layers()[2].layer, Layer::Affine(Affine { factor: 0.17, shift: 0.0 }));
    assert_eq!(weighed.layers()[3].inputs.iter().map(|id| id.0).collect::<Vec<_>>(), [0, 2]);
    assert!(refused(&of("coeff: 1 coeff: 0.17 coeff: 2")).contains("one for each bottom"));
    assert!(refused(&of("operation: PROD coeff: 1 coeff: 2")).contains("only a SUM has coefficients"));
}

#[test]
fn reshapes_to_a_vector_are_flattenings() {
    let of = |fields: &str| {
        let reshape =
            format!("layer {{ name: \"f\" type: \"Reshape\" bottom: \"x\" top: \"f\" reshape_param {{ {fields} }} }}");
        net(&format!("{reshape}\n{}", scores("f")))
    };
    for fields in [
        "shape { dim: 0 dim: -1 }",
        "shape { dim: 1 dim: 144 }",
        "axis: 1 shape { dim: -1 }",
        "shape { dim: 0 dim: 144 dim: 1 dim: 1 }",
    ] {
        assert_eq!(kinds(&of(fields))[1..3], ["flatten", "dense"], "{fields}");
    }
    assert_eq!(kinds(&of("shape { dim: 0 dim: 0 dim: 0 dim: -1 }"))[1], "dense");
    for fields in ["shape { dim: 0 dim: 12 dim: 12 }", "axis: 2 shape { dim: -1 }", "shape { dim: 0 dim: -2 }"] {
        assert!(refused(&of(fields)).contains("only [batch, features] is a layer"), "{fields}");
    }
}

/// Samples without data, with labels beside them or from a layer of their own.
#[test]
fn samples_may_come_without_data() {
    let data = "type: \"DummyData\" dummy_data_param { data_filler { type: \"constant\" value: 0.01 }";
    let tail = format!(
        "{}\nlayer {{ name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"y\" bottom: \"label\" }}",
        scores("x")
    );
    let both = "shape { dim: 2 dim: 3 dim: 8 dim: 9 } shape { dim: 2 }";
    let one = format!("layer {{ name: \"d\" top: \"x\" top: \"label\" {data} {both} }} }}\n{tail}");
    let two = format!(
        "layer {{ name: \"d\" top: \"x\" {data} num: 2 channels: 3 height: 8 width: 9 }} }}\n\
         layer {{ name: \"l\" top: \"label\" {data} num: 2 channels: 1 height: 1 width: 1 }} }}\n{tail}"
    );
    for text in [one, two] {
        assert_eq!(read(&text).input(), Shape::of_image(3, 8, 9));
    }
}

#[test]
fn fields_of_forks_that_concern_the_data_are_left_to_them() {
    let text = |more: &str| {
        format!(
            "eltwise_mem_sharing: true layer {{ name: \"d\" type: \"Data\" top: \"x\" top: \"label\" include {{ phase: TRAIN }}\n\
             transform_param {{ crop_size: 8 random_aspect_ratio_param {{ min_area_ratio: 0.08 }} {more} }}\n\
             data_param {{ source: \"a\" batch_size: 2 backend: LMDB cache: true shuffle: true }} }}\n\
             layer {{ name: \"t\" type: \"ReLU\" bottom: \"x\" top: \"x\" include {{ phase: TRAIN stage: \"other\" }} }}\n{}\n\
             layer {{ name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"y\" bottom: \"label\" }}",
            scores("x")
        )
    };
    assert_eq!(kinds(&text("")), ["input", "dense", "softmax_cross_entropy"]);
    assert!(refused(&text("crop_sise: 9")).contains("crop_size"));
}

/// He et al. 2015, equation 14: of 7 outputs the variance is 2/7.
#[test]
fn fillers_by_outputs_have_their_deviation() {
    let model = read(&filled("msra", "variance_norm: FAN_OUT"));
    let init = &model.layers()[1].parameters[0].init;
    let lockstep_models::Init::Gaussian(deviation) = init else { panic!("{init:?}") };
    assert!((deviation - (2.0f32 / 7.0).sqrt()).abs() < 1e-6);
}

/// A net to deploy with classifiers beside the last: each has a loss, and a note says so.
#[test]
fn classifiers_beside_the_last_get_a_loss() {
    let head = "input: \"x\" input_shape { dim: 1 dim: 4 dim: 6 dim: 6 }\n";
    let one = |name: &str, classes: u32| {
        format!(
            "layer {{ name: \"{name}\" type: \"InnerProduct\" bottom: \"x\" top: \"{name}\" inner_product_param {{ num_output: {classes} }} }}\n"
        )
    };
    let model = read(&format!("{head}{}{}", one("a", 3), one("b", 3)));
    let losses: Vec<f32> =
        model.layers().iter().filter(|node| node.layer.is_loss()).map(|node| node.loss_weight).collect();
    assert_eq!(losses, [0.3, 1.0]);
    assert!(model.notes().join("\n").contains("weight 0.3"));
    assert!(refused(&format!("{head}{}{}", one("a", 3), one("b", 4))).contains("must end in one blob"));
}
