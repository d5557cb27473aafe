//! Tests that forms in which exporters write a layer are that layer: the lines of the table of expressions, orders of nodes,
//! views, and networks whose batch normalisation is folded away.

use super::*;
use crate::onnx::pattern::Pattern;
use crate::onnx::patterns::{Made, all};
use lockstep_models::{Affine, Dimension, Select};

/// Writes an expression's nodes, the innermost first, and returns the name of its result.
fn write(pattern: &Pattern, writer: &mut Writer, count: &mut usize) -> String {
    *count += 1;
    let name = format!("t{count}");
    match pattern {
        Pattern::Tensor(letter) => match letter {
            'x' => return "x".to_owned(),
            'e' => writer.number(&name, 1e-5),
            _ => writer.weight(&name, &[4]),
        },
        Pattern::Named(_, pattern) => return write(pattern, writer, count),
        Pattern::Number(number) => writer.number(&name, *number as f32),
        Pattern::Op(op, operands) => {
            let inputs: Vec<String> = operands.iter().map(|operand| write(operand, writer, count)).collect();
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            // A hard sigmoid has its numbers as attributes.
            let inputs = if *op == "HardSigmoid" { &inputs[..1] } else { &inputs[..] };
            writer.node(op, "", inputs, &[&name], &[]);
        }
    }
    name
}

#[test]
fn every_expression_of_the_table_is_one_layer() {
    for (pattern, made) in all() {
        // Numbers in attributes are written by exporters only, and the dimensions of norms have a test of their own.
        if format!("{pattern:?}").contains("HardSigmoid") || made == Made::ResponseNorm {
            continue;
        }
        let mut writer = Writer::default();
        writer.input("x", &[1, 4]);
        let output = write(&pattern, &mut writer, &mut 0);
        let model = read(&writer.model(&output));
        let kinds: Vec<&str> = model.layers().iter().map(|node| node.layer.kind()).collect();
        let wanted = match made {
            Made::Layer(layer) => layer.kind(),
            Made::LayerNorm => "layer_norm",
            Made::ResponseNorm => "global_response_norm",
        };
        assert_eq!(kinds, ["input", wanted, "softmax_cross_entropy"], "{pattern:?}");
    }
}

fn case(bytes: &[u8], unfold: bool) -> Model {
    parse("case.onnx", bytes, unfold, crate::zoo::biased).unwrap_or_else(|error| panic!("{error}"))
}

/// Kinds and outputs, without names.
fn shapes(model: &Model) -> Vec<String> {
    model.layers().iter().map(|node| format!("{} {}", node.layer.kind(), node.output)).collect()
}

#[test]
fn ordinary_exports_are_the_layers_that_they_mean() {
    let last: [&[u8]; 4] = [
        include_bytes!("cases/onnx-reducemean.onnx"),
        include_bytes!("cases/onnx-view-by-shape.onnx"),
        include_bytes!("cases/onnx-unsorted.onnx"),
        include_bytes!("cases/onnx-folded-twin.onnx"),
    ];
    let [mean, view, unsorted, folded] = last.map(|bytes| case(bytes, false));
    for model in [&mean, &view, &unsorted] {
        assert_eq!(model.parameter_elements(), folded.parameter_elements());
        let kinds = |model: &Model| -> Vec<_> {
            let matters = |node: &&Node| !matches!(node.layer, Layer::Flatten | Layer::Relu);
            model.layers().iter().filter(matters).map(|node| (node.layer.clone(), node.output)).collect()
        };
        assert_eq!(kinds(model), kinds(&folded));
    }
    let relu6 = case(include_bytes!("cases/onnx-relu6.onnx"), false);
    assert!(relu6.layers().iter().any(|node| node.layer == Layer::Relu6));
    let padded = case(include_bytes!("cases/onnx-count-include-pad.onnx"), false);
    let counts = |node: &Node| matches!(&node.layer, Layer::Pool2d(pool) if pool.count_padding);
    assert_eq!(padded.layers().iter().filter(|node| counts(node)).count(), 1);
}

#[test]
fn a_folded_network_is_noted_and_unfolds_to_the_trained_one() {
    let folded: &[u8] = include_bytes!("cases/onnx-folded-twin.onnx");
    let trained = case(include_bytes!("cases/onnx-trained-twin.onnx"), false);
    assert!(trained.notes().is_empty());
    let note = case(folded, false).notes().join("\n");
    assert!(note.contains("TrainingMode.TRAINING") && note.contains("case.onnx:unfold"), "{note}");
    let restored = case(folded, true);
    assert_eq!(shapes(&restored), shapes(&trained));
    assert_eq!(restored.parameter_elements(), trained.parameter_elements());
    let error =
        parse("case.onnx", include_bytes!("cases/onnx-trained-twin.onnx"), true, crate::zoo::biased).unwrap_err();
    assert!(error.message.contains("leave unfold out"), "{error}");
}

/// ShuffleNet's unit: half the channels, then both halves together and shuffled.
#[test]
fn splits_and_shuffles_are_selections() {
    let mut writer = Writer::default();
    writer.input("x", &[0, 8, 4, 4]);
    writer.node("Split", "", &["x"], &["a", "b"], &[("axis", &[1])]);
    writer.node("Relu", "", &["b"], &["r"], &[]);
    writer.node("Concat", "", &["a", "r"], &["c"], &[("axis", &[1])]);
    writer.integers("apart", &[0, 2, 4, 4, 4]);
    writer.integers("together", &[0, -1, 4, 4]);
    writer.node("Reshape", "", &["c", "apart"], &["d"], &[]);
    writer.node("Transpose", "", &["d"], &["e"], &[("perm", &[0, 2, 1, 3, 4])]);
    writer.node("Reshape", "mix", &["e", "together"], &["f"], &[]);
    writer.node("GlobalAveragePool", "", &["f"], &["y"], &[]);
    let model = read(&writer.model("y"));
    let selects: Vec<&Layer> =
        model.layers().iter().map(|node| &node.layer).filter(|layer| layer.kind() == "select").collect();
    let select = |first, channels, groups| Layer::Select(Select { first, channels, groups });
    assert_eq!(selects, [&select(0, 4, 1), &select(4, 4, 1), &select(0, 8, 2)]);
}

/// A block of ConvNeXt: with channels last a normalisation, a product, and a factor per channel.
#[test]
fn channels_may_be_last_between_transposes() {
    let mut writer = Writer::default();
    writer.input("x", &[2, 4, 6, 6]);
    for (name, dims) in [("g", &[4][..]), ("b", &[4]), ("w", &[4, 4]), ("s", &[4, 1, 1])] {
        writer.weight(name, dims);
    }
    writer.number("two", 2.0);
    writer.node("Transpose", "", &["x"], &["l"], &[("perm", &[0, 2, 3, 1])]);
    writer.node("LayerNormalization", "", &["l", "g", "b"], &["n"], &[("axis", &[-1])]);
    writer.node("MatMul", "", &["n", "w"], &["m"], &[]);
    writer.node("Add", "", &["b", "m"], &["a"], &[]);
    writer.node("Transpose", "", &["a"], &["f"], &[("perm", &[0, 3, 1, 2])]);
    writer.node("Mul", "", &["s", "f"], &["k"], &[]);
    writer.node("Mul", "", &["k", "two"], &["t"], &[]);
    writer.node("Add", "", &["t", "x"], &["u"], &[]);
    writer.node("ReduceMean", "", &["u"], &["y"], &[("axes", &[-2, -1]), ("keepdims", &[0])]);
    let model = read(&writer.model("y"));
    let kinds: Vec<&str> = model.layers().iter().map(|node| node.layer.kind()).collect();
    assert_eq!(
        kinds,
        ["input", "layer_norm", "conv2d", "scale", "affine", "add", "global_pool", "softmax_cross_entropy"]
    );
    assert_eq!(model.parameter_elements(), 8 + 16 + 4 + 4);
    assert_eq!(model.layers()[4].layer, Layer::Affine(Affine { factor: 2.0, shift: 0.0 }));
}

/// Squeeze and excitation: a factor for each channel of each sample, on either side.
#[test]
fn a_product_takes_the_larger_input_first() {
    for order in [["x", "g"], ["g", "x"]] {
        let mut writer = Writer::default();
        writer.input("x", &[2, 4, 6, 6]);
        writer.node("GlobalAveragePool", "", &["x"], &["p"], &[]);
        writer.node("Sigmoid", "", &["p"], &["g"], &[]);
        writer.node("Mul", "", &order, &["m"], &[]);
        writer.node("GlobalAveragePool", "", &["m"], &["y"], &[]);
        let model = read(&writer.model("y"));
        let product = model.layers().iter().find(|node| node.layer == Layer::Product).expect("a product");
        assert_eq!((product.output.size(Dimension::Row), product.input_shapes[1].size(Dimension::Row)), (6, 1));
    }
}

/// A convolution with a bias of its own whose result is called as that of a normalisation is: PyTorch's dynamo exporter has
/// folded one into it, and both come back.
#[test]
fn a_result_called_as_a_normalisations_is_one_folded_away() {
    for (result, folded) in [("getitem_3", true), ("conv2d_3", false)] {
        let mut writer = Writer::default();
        writer.input("x", &[1, 3, 8, 8]);
        writer.weight("features.0.weight", &[4, 3, 3, 3]);
        writer.weight("features.0.bias", &[4]);
        writer.node("Conv", "", &["x", "features.0.weight", "features.0.bias"], &[result], &[]);
        writer.node("GlobalAveragePool", "", &[result], &["y"], &[]);
        let bytes = writer.model("y");
        assert_eq!(case(&bytes, false).notes().join("\n").contains("names of their weights"), folded);
        let restored = parse("case.onnx", &bytes, true, crate::zoo::biased);
        assert_eq!(restored.map(|model| model.parameter_elements()).ok(), folded.then_some(4 * 27 + 4 + 8));
    }
}
