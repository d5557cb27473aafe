//! Tests of the forms in which exporters write channel attention, split attention, normalisations of groups, blurring and
//! resizing.

use super::*;
use lockstep_models::{BlurPool, GroupNorm, Resize, ResponseNorm, Select, Softmax};

/// A graph with an input `x` of 2 samples, 8 channels, 6 rows and 6 columns.
fn image() -> Writer {
    let mut writer = Writer::default();
    writer.input("x", &[2, 8, 6, 6]);
    writer
}

/// The model whose scores are the means of the planes of `last`.
fn pooled(mut writer: Writer, last: &str) -> Vec<u8> {
    writer.node("GlobalAveragePool", "", &[last], &["scores"], &[]);
    writer.model("scores")
}

/// Its layers between the input and the pooling at the end.
fn layers(writer: Writer, last: &str) -> Vec<Layer> {
    let model = read(&pooled(writer, last));
    let inner = &model.layers()[1..model.layers().len() - 2];
    inner.iter().map(|node| node.layer.clone()).collect()
}

fn refused(writer: Writer, last: &str, wanted: &str) {
    let error = parse("net.onnx", &pooled(writer, last), false, crate::zoo::biased).expect_err(wanted);
    assert!(error.message.contains(wanted), "{error}");
}

/// A convolution over the means of the channels, as a row of one channel (Wang et al. 2020).
#[test]
fn a_convolution_over_channels_is_one_over_a_row() {
    let mut writer = image();
    writer.weight("w", &[1, 1, 3]);
    [("row", &[2, 1, -1][..]), ("column", &[2, -1, 1, 1]), ("whole", &[2, 8, 6, 6])]
        .iter()
        .for_each(|(name, sizes)| writer.integers(name, sizes));
    writer.node("ReduceMean", "", &["x"], &["mean"], &[("axes", &[2, 3]), ("keepdims", &[0])]);
    writer.node("Reshape", "", &["mean", "row"], &["r"], &[]);
    writer.node("Conv", "", &["r", "w"], &["c"], &[("kernel_shape", &[3]), ("pads", &[1, 1]), ("strides", &[1])]);
    writer.node("Sigmoid", "", &["c"], &["s"], &[]);
    writer.node("Reshape", "", &["s", "column"], &["t"], &[]);
    writer.node("Expand", "", &["t", "whole"], &["e"], &[]);
    writer.node("Mul", "", &["x", "e"], &["y"], &[]);
    let model = read(&pooled(writer, "y"));
    assert_eq!(model.parameter_elements(), 3);
    let shapes: Vec<String> = seen(&model).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let middle =
        ["global_pool 8×1×1", "reshape 1×1×8", "conv2d 1×1×8", "sigmoid 1×1×8", "flatten 8×1×1", "product 8×6×6"];
    assert_eq!(shapes[1..7], middle);
}

#[test]
fn repeated_samples_are_factors_alone() {
    let mut writer = image();
    writer.integers("whole", &[2, 8, 6, 6]);
    writer.node("GlobalAveragePool", "", &["x"], &["p"], &[]);
    writer.node("Expand", "", &["p", "whole"], &["e"], &[]);
    writer.node("Relu", "", &["e"], &["y"], &[]);
    refused(writer, "y", "repeated to [2, 8, 6, 6]");
}

/// Two branches of a selective kernel (Li et al. 2019): stacked, weighted by a softmax over the branches, summed.
#[test]
fn stacked_branches_are_weighted_and_summed() {
    let mut writer = image();
    writer.weight("w", &[16, 8, 1, 1]);
    writer.integers("one", &[1]);
    writer.integers("apart", &[2, 2, 8, 1, 1]);
    writer.node("Relu", "", &["x"], &["a"], &[]);
    writer.node("Tanh", "", &["x"], &["b"], &[]);
    writer.node("Unsqueeze", "", &["a", "one"], &["a1"], &[]);
    writer.node("Unsqueeze", "", &["b", "one"], &["b1"], &[]);
    writer.node("Concat", "", &["a1", "b1"], &["both"], &[("axis", &[1])]);
    writer.node("ReduceSum", "", &["both", "one"], &["sum"], &[("keepdims", &[0])]);
    writer.node("GlobalAveragePool", "", &["sum"], &["p"], &[]);
    writer.node("Conv", "", &["p", "w"], &["c"], &[]);
    writer.node("Reshape", "", &["c", "apart"], &["r"], &[]);
    writer.node("Softmax", "", &["r"], &["s"], &[("axis", &[1])]);
    writer.node("Mul", "", &["both", "s"], &["m"], &[]);
    writer.node("ReduceSum", "", &["m", "one"], &["y"], &[("keepdims", &[0])]);
    let part = |first| Layer::Select(Select { first, channels: 8, groups: 1 });
    let found = layers(writer, "y");
    let sum = [part(0), part(8), Layer::Add];
    assert_eq!(found[2..6], [&[Layer::Concat][..], &sum].concat());
    assert_eq!(found[8..], [&[Layer::Softmax(Softmax { parts: 2 }), Layer::Product][..], &sum].concat());
}

#[test]
fn softmax_over_places_is_refused() {
    let mut writer = image();
    writer.integers("flat", &[2, 8, 36]);
    writer.integers("back", &[2, 8, 6, 6]);
    writer.node("Reshape", "", &["x", "flat"], &["f"], &[]);
    writer.node("Softmax", "", &["f"], &["s"], &[("axis", &[-1])]);
    writer.node("Reshape", "", &["s", "back"], &["y"], &[]);
    refused(writer, "y", "over places it belongs to attention");
}

/// As `torch.onnx.export` writes `GroupNorm(groups, 8)`; factors and biases are operators of their own.
#[test]
fn group_normalisation_is_one_layer() {
    for groups in [1u32, 4] {
        for (own, parameters) in [(true, 16), (false, 0)] {
            let mut writer = image();
            writer.integers("groups", &[0, groups.into(), -1]);
            writer.integers("whole", &[2, 8, 6, 6]);
            writer.constant("ones", &[groups.into()], &vec![1.0; groups as usize]);
            writer.constant("zeros", &[groups.into()], &vec![0.0; groups as usize]);
            writer.weight("g", &[8, 1, 1]);
            writer.weight("b", &[8, 1, 1]);
            writer.node("Reshape", "", &["x", "groups"], &["r"], &[]);
            writer.node("InstanceNormalization", "", &["r", "ones", "zeros"], &["n"], &[]);
            writer.node("Reshape", "", &["n", "whole"], &["w"], &[]);
            if own {
                writer.node("Mul", "", &["w", "g"], &["m"], &[]);
                writer.node("Add", "", &["m", "b"], &["y"], &[]);
            } else {
                writer.node("Relu", "", &["w"], &["y"], &[]);
            }
            let model = read(&pooled(writer, "y"));
            let Layer::GroupNorm(norm) = &model.layers()[1].layer else { panic!("{:?}", seen(&model)) };
            assert_eq!(norm, &GroupNorm { groups, epsilon: 1e-5 });
            assert_eq!(model.layers().len(), if own { 4 } else { 5 });
            // What the file lacks is noted.
            let note = model.notes().join("\n");
            assert_eq!(note.contains("16 parameters more"), !own, "{note}");
            assert_eq!(model.parameter_elements(), 16, "{parameters} in the file");
        }
    }
}

#[test]
fn instance_normalisation_is_that_of_as_many_groups_as_channels() {
    let mut writer = image();
    writer.weight("g", &[8]);
    writer.weight("b", &[8]);
    writer.node("InstanceNormalization", "", &["x", "g", "b"], &["y"], &[]);
    assert_eq!(layers(writer, "y"), [Layer::GroupNorm(GroupNorm { groups: 8, epsilon: 1e-5 })]);
    let mut writer = image();
    writer.weight("g", &[6]);
    writer.node("Transpose", "", &["x"], &["t"], &[("perm", &[0, 2, 1, 3])]);
    writer.node("InstanceNormalization", "", &["t", "g", "g"], &["y"], &[]);
    refused(writer, "y", "over other parts than whole groups of channels");
}

#[test]
fn scaling_by_norms_is_one_layer_over_rows_and_columns_alone() {
    for (axes, is_layer) in [(&[2, 3][..], true), (&[1, 2], false)] {
        let mut writer = image();
        writer.weight("w", &[1, 8, 1, 1]);
        writer.weight("b", &[1, 8, 1, 1]);
        writer.number("e", 1e-6);
        writer.node("ReduceL2", "", &["x"], &["g"], &[("axes", axes)]);
        writer.node("ReduceMean", "", &["g"], &["m"], &[("axes", &[1])]);
        writer.node("Add", "", &["m", "e"], &["d"], &[]);
        writer.node("Div", "", &["g", "d"], &["n"], &[]);
        writer.node("Mul", "", &["x", "n"], &["xn"], &[]);
        writer.node("Mul", "", &["w", "xn"], &["wx"], &[]);
        writer.node("Add", "", &["b", "wx"], &["s"], &[]);
        writer.node("Add", "", &["x", "s"], &["y"], &[]);
        match is_layer {
            true => assert_eq!(layers(writer, "y"), [Layer::ResponseNorm(ResponseNorm { epsilon: 1e-6 })]),
            false => refused(writer, "y", "no layer for ReduceL2"),
        }
    }
}

/// A convolution with one filter of binomial coefficients for all channels learns nothing.
#[test]
fn a_binomial_filter_is_a_blur() {
    let taps = [1.0f32, 2.0, 1.0];
    let filter: Vec<f32> = taps.iter().flat_map(|a| taps.map(|b| a * b / 16.0)).collect();
    let all: Vec<f32> = (0..8).flat_map(|_| filter.clone()).collect();
    let mut other = all.clone();
    other[70] += 0.01;
    for (values, parameters) in [(&all, 0), (&other, 72)] {
        let mut writer = image();
        writer.integers("pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
        writer.constant("w", &[8, 1, 3, 3], values);
        writer.node("Pad", "", &["x", "pads"], &["p"], &[("mode=reflect", &[])]);
        writer.node("Conv", "", &["p", "w"], &["y"], &[("group", &[8]), ("strides", &[2, 2])]);
        let model = read(&pooled(writer, "y"));
        assert_eq!(model.parameter_elements(), parameters);
        let border = Layer::Border(Border { before: (1, 1), after: (1, 1), reflect: true });
        assert_eq!(model.layers()[1].layer, border);
        let blur = Layer::BlurPool(BlurPool { kernel: 3, stride: (2, 2), padding: (0, 0) });
        assert_eq!(model.layers()[2].layer == blur, parameters == 0);
    }
    // The same filter, repeated for each channel.
    let mut writer = image();
    writer.numbers("one", &[1, 1, 3, 3], &filter);
    writer.integers("sizes", &[8, 1, 3, 3]);
    writer.node("Expand", "", &["one", "sizes"], &["w"], &[]);
    writer.node("Conv", "", &["x", "w"], &["y"], &[("group", &[8]), ("pads", &[1, 1, 1, 1])]);
    assert_eq!(layers(writer, "y"), [Layer::BlurPool(BlurPool { kernel: 3, stride: (1, 1), padding: (1, 1) })]);
}

#[test]
fn images_are_resized_by_factors_or_sizes() {
    for (sizes, factors) in [(Some([2, 8, 12, 18]), [0.0; 4]), (None, [1.0, 1.0, 2.0, 3.0])] {
        let mut writer = image();
        writer.numbers("factors", &[4], &factors);
        writer.integers("sizes", &sizes.unwrap_or_default());
        let inputs = if sizes.is_some() { vec!["x", "", "", "sizes"] } else { vec!["x", "", "factors"] };
        let how: Attributes<'_> =
            &[("mode=nearest", &[]), ("coordinate_transformation_mode=asymmetric", &[]), ("nearest_mode=floor", &[])];
        writer.node("Resize", "", &inputs, &["y"], how);
        assert_eq!(layers(writer, "y"), [Layer::Resize(Resize { height: 12, width: 18 })]);
    }
    let mut writer = image();
    writer.numbers("factors", &[4], &[1.0, 1.0, 2.0, 2.0]);
    writer.node("Resize", "", &["x", "", "factors"], &["y"], &[("mode=linear", &[])]);
    refused(writer, "y", "only nearest is a layer; for a prediction it costs nearly as much");
    let mut writer = image();
    writer.numbers("factors", &[4], &[1.0, 2.0, 2.0, 2.0]);
    writer.node("Resize", "", &["x", "", "factors"], &["y"], &[("mode=nearest", &[])]);
    refused(writer, "y", "only rows and columns can be resized");
}

/// Operators in the form of opsets 9 to 12: sizes in attributes or as inputs, a softmax over the dimensions behind its axis.
#[test]
fn older_forms_are_read() {
    for opset in 9..=12 {
        let mut writer = image();
        writer.numbers("factors", &[4], &[1.0, 1.0, 2.0, 2.0]);
        writer.integers("one", &[1]);
        writer.integers("pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
        writer.number("least", 0.0);
        writer.number("most", 6.0);
        writer.integers("apart", &[2, 2, 4, 1, 1]);
        writer.integers("flat", &[2, 8, 1, 1]);
        match opset {
            9 => writer.node("Upsample", "", &["x", "factors"], &["u"], &[("mode=nearest", &[])]),
            10 => writer.node("Resize", "", &["x", "factors"], &["u"], &[("mode=nearest", &[])]),
            _ => writer.node("Resize", "", &["x", "", "factors"], &["u"], &[("mode=nearest", &[])]),
        }
        match opset {
            9 | 10 => {
                writer.node("Pad", "", &["u"], &["p"], &[("mode=constant", &[]), ("pads", &[0, 0, 1, 1, 0, 0, 1, 1])]);
            }
            _ => writer.node("Pad", "", &["u", "pads"], &["p"], &[("mode=constant", &[])]),
        }
        match opset {
            9 | 10 => writer.node("Max", "", &["p", "least"], &["c"], &[]),
            _ => writer.node("Clip", "", &["p", "least", "most"], &["c"], &[]),
        }
        writer.node("GlobalAveragePool", "", &["c"], &["g"], &[]);
        writer.node("Reshape", "", &["g", "apart"], &["r"], &[]);
        writer.node("Softmax", "", &["r"], &["s"], &[("axis", &[1])]);
        writer.node("Reshape", "", &["s", "flat"], &["y"], &[]);
        let error = parse("net.onnx", &writer.model_of("y", opset), false, crate::zoo::biased);
        // Before opset 13 this softmax is over all of the sample.
        assert!(error.expect_err("a softmax over more").message.contains("over parts of the channels"));
        writer.node("Softmax", "", &["g"], &["t"], &[("axis", &[1])]);
        writer.node("Relu", "", &["t"], &["z"], &[]);
        let model = parse("net.onnx", &writer.model_of("z", opset), false, crate::zoo::biased).expect("a model");
        let kinds: Vec<&str> = model.layers().iter().map(|node| node.layer.kind()).collect();
        let bounded = if opset < 11 { "relu" } else { "relu6" };
        assert_eq!(kinds[1..6], ["resize", "border", bounded, "global_pool", "softmax"], "opset {opset}");
    }
}

#[test]
fn differences_and_squares_are_layers() {
    let mut writer = image();
    writer.number("two", 2.0);
    writer.node("Relu", "", &["x"], &["r"], &[]);
    writer.node("Sub", "", &["r", "x"], &["d"], &[]);
    writer.node("Pow", "", &["d", "two"], &["y"], &[]);
    let affine = Layer::Affine(lockstep_models::Affine { factor: -1.0, shift: 0.0 });
    assert_eq!(layers(writer, "y"), [Layer::Relu, affine, Layer::Add, Layer::Square]);
}

/// Weights that are normalised with factors of their own: these are no layer's, and a note counts them.
#[test]
fn parameters_behind_weights_are_counted_in_a_note() {
    let mut writer = image();
    // What the exporter made itself is no parameter: the shift of a normalisation that has none.
    for (name, dims) in [("w", &[4, 8, 3, 3][..]), ("gain", &[4]), ("val_76", &[4]), ("one", &[1])] {
        writer.weight(name, dims);
    }
    writer.constant("mean", &[4], &[0.0; 4]);
    writer.integers("rows", &[1, 4, -1]);
    writer.integers("back", &[4, 8, 3, 3]);
    writer.node("Reshape", "", &["w", "rows"], &["r"], &[]);
    writer.node("BatchNormalization", "", &["r", "gain", "val_76", "mean", "mean"], &["n"], &[]);
    writer.node("Reshape", "", &["n", "back"], &["v"], &[]);
    writer.node("Conv", "", &["x", "v"], &["y"], &[]);
    let model = read(&pooled(writer, "y"));
    let note = model.notes().join("\n");
    assert!(note.contains(": 4 parameters from which weights are computed"), "{note}");
    assert_eq!(model.parameter_elements(), 4 * 8 * 9);
}
