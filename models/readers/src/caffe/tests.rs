//! Tests Caffe's files: networks of the zoo in both forms, the translation of each layer, and what is refused.

mod forks;

use proptest::prelude::*;

use super::*;
use lockstep_models::Node;
use lockstep_models::Pass;

fn read(text: &str) -> Model {
    parse("net.prototxt", text, None).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> String {
    parse("net.prototxt", text, None).unwrap_err().to_string()
}

/// A net of one input of 4×6×6, the layers `text`, and a loss after the blob `y`.
fn net(text: &str) -> String {
    format!(
        "layer {{ name: \"in\" type: \"Input\" top: \"x\" input_param {{ shape: {{ dim: 1 dim: 4 dim: 6 dim: 6 }} }} }}\n{text}\n\
         layer {{ name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"y\" bottom: \"label\" }}"
    )
}

/// A layer of that type and those fields from `x` to `y`, in [`net`].
fn one(kind: &str, fields: &str) -> String {
    net(&format!("layer {{ name: \"l\" type: \"{kind}\" bottom: \"x\" top: \"y\"\n{fields} }}"))
}

/// A dense layer whose weights have that filler with those fields, in [`net`].
fn filled(filler: &str, fields: &str) -> String {
    let filler = format!("weight_filler {{ type: \"{filler}\" {fields} }}");
    one("InnerProduct", &format!("inner_product_param {{ num_output: 7 {filler} }}"))
}

/// The networks are equal in all that simulator and executor see except names.
fn same(one: &Model, other: &Model) {
    let seen = |model: &Model| -> Vec<_> {
        let line = |node: &Node| (node.layer.clone(), node.output, node.inputs.clone(), node.loss_weight);
        model.layers().iter().map(line).collect()
    };
    assert_eq!(seen(one), seen(other));
    assert_eq!(one.inits(), other.inits());
}

#[test]
fn the_training_definition_of_lenet_equals_the_zoo_model() {
    let model = read(include_str!("tests/lenet.prototxt"));
    same(&model, &crate::load_model("lenet").unwrap());
    assert_eq!((model.name(), model.source()), ("LeNet", "Caffe network definition"));
    let names: Vec<&str> = model.layers().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names[..4], ["input", "conv1", "relu1", "pool1"]);
}

#[test]
fn the_deployed_network_in_network_has_the_sizes_of_the_zoo_model() {
    let (model, zoo) = (read(include_str!("tests/nin.prototxt")), crate::load_model("nin").unwrap());
    assert_eq!(model.parameter_elements(), zoo.parameter_elements());
    let flops = |model: &Model| -> f64 { model.layers().iter().map(|node| node.work(Pass::Forward, 1).flops).sum() };
    // Its last pooling is a window over everything, in the zoo it is a global one.
    assert!((flops(&model) / flops(&zoo) - 1.0).abs() < 1e-4 && model.classes() == 1000);
}

/// Each layer on an input of 4×6×6, as type, fields and its form in the zoo.
#[test]
fn layers_become_layers() {
    let filler = "weight_filler { type: 'gaussian' std: 0.01 } bias_filler { type: \"constant\" value: 0.1 }";
    let window = |kind, kernel, stride, padding, ceil| {
        Layer::Pool2d(lockstep_models::Pool2d { kind, kernel, stride, padding, ceil, count_padding: false })
    };
    let convolution = lockstep_models::Conv2d {
        out_channels: 8,
        kernel: (3, 1),
        stride: (2, 1),
        padding: (1, 0),
        dilation: (1, 1),
        groups: 2,
        bias: false,
    };
    let (max, average) = (lockstep_models::PoolKind::Max, lockstep_models::PoolKind::Average);
    let norm = lockstep_models::LocalResponseNorm { size: 5, alpha: 1e-4 / 5.0, beta: 0.75, k: 1.0 };
    for (kind, fields, made) in [
        (
            "Convolution",
            "convolution_param { num_output: 8 kernel_size: [3, 1] stride_h: 2 pad: 1, pad: 0; group: 2 bias_term: false }",
            Layer::Conv2d(convolution),
        ),
        (
            "InnerProduct",
            &format!("inner_product_param {{ num_output: 7 {filler} }}"),
            Layer::Dense(lockstep_models::Dense { out_features: 7, bias: true }),
        ),
        ("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }", window(max, (3, 3), (2, 2), (0, 0), true)),
        (
            "Pooling",
            "pooling_param { pool: AVE kernel_size: 2 round_mode: FLOOR }",
            window(average, (2, 2), (1, 1), (0, 0), false),
        ),
        ("Pooling", "pooling_param { pool: AVE global_pooling: true }", Layer::GlobalPool),
        ("Pooling", "pooling_param { global_pooling: true }", window(max, (6, 6), (1, 1), (0, 0), false)),
        ("ReLU", "relu_param { negative_slope: 0.0 }", Layer::Relu),
        ("Sigmoid", "", Layer::Sigmoid),
        ("TanH", "", Layer::Tanh),
        ("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }", Layer::LocalResponseNorm(norm)),
        ("Dropout", "dropout_param { dropout_ratio: 0.4 }", Layer::Dropout(lockstep_models::Dropout { rate: 0.4 })),
        ("Flatten", "", Layer::Flatten),
        ("Scale", "scale_param { bias_term: true }", Layer::Scale(Scale { bias: true })),
    ] {
        let text = one(kind, fields);
        // The loss takes scores: an image needs one more layer before it.
        let text = text.replace(
            "layer { name: \"loss\"",
            "layer { name: \"s\" type: \"InnerProduct\" bottom: \"y\" top: \"y\" inner_product_param { num_output: 3 } }\n\
             layer { name: \"loss\"",
        );
        assert_eq!(read(&text).layers()[1].layer, made, "{kind} {fields}");
    }
}

#[test]
fn a_net_may_have_several_inputs_and_losses() {
    let sum = "layer { name: \"r\" type: \"ReLU\" bottom: \"x\" top: \"r\" }\n\
               layer { name: \"a\" type: \"Eltwise\" bottom: \"x\" bottom: \"r\" top: \"a\" eltwise_param { operation: SUM } }\n\
               layer { name: \"c\" type: \"Concat\" bottom: \"a\" bottom: \"r\" top: \"c\" }\n\
               layer { name: \"y\" type: \"InnerProduct\" bottom: \"c\" top: \"y\" inner_product_param { num_output: 3 } }\n\
               layer { name: \"side\" type: \"SoftmaxWithLoss\" bottom: \"y\" bottom: \"label\" loss_weight: 0.3 }";
    let model = read(&net(sum));
    let kinds: Vec<&str> = model.layers().iter().map(|node| node.layer.kind()).collect();
    assert_eq!(kinds[..5], ["input", "relu", "add", "concat", "dense"]);
    let weights: Vec<f32> =
        model.layers().iter().filter(|node| node.layer.is_loss()).map(|node| node.loss_weight).collect();
    assert_eq!((weights, model.parameter_elements()), (vec![0.3, 1.0], 8 * 36 * 3 + 3));
}

#[test]
fn a_batch_norm_and_its_scale_are_one_layer() {
    let norm = "layer { name: \"n\" type: \"BatchNorm\" bottom: \"x\" top: \"x\" batch_norm_param { eps: 1e-3 } }\n";
    let scale = "layer { name: \"s\" type: \"Scale\" bottom: \"x\" top: \"x\" scale_param { bias_term: true } }\n";
    let scores =
        "layer { name: \"y\" type: \"InnerProduct\" bottom: \"x\" top: \"y\" inner_product_param { num_output: 3 } }";
    let model = read(&net(&format!("{norm}{scale}{scores}")));
    assert_eq!(
        model.layers()[1].layer,
        Layer::BatchNorm(lockstep_models::BatchNorm { epsilon: 1e-3, momentum: 0.999 })
    );
    assert_eq!((model.layers().len(), model.parameter_elements()), (4, 8 + 3 * 144 + 3));
    // Without one it gets factors and biases, and a note says so.
    for text in [format!("{norm}{scores}"), format!("{norm}{}{scores}", scale.replace("bias_term: true", ""))] {
        let bare = parse("net.prototxt", &net(&text), None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(bare.parameter_elements(), model.parameter_elements());
        assert!(bare.notes()[0].contains("which cost hardly any time"), "{:?}", bare.notes());
    }
}

/// A data layer with samples elsewhere takes the shape that is given in addition to the file, whatever it
/// states itself.
#[test]
fn the_shape_of_samples_may_be_given() {
    let text = "layer { name: \"d\" type: \"Data\" top: \"x\" top: \"label\" data_param { batch_size: 9 } }\n\
                layer { name: \"y\" type: \"InnerProduct\" bottom: \"x\" top: \"y\" inner_product_param { num_output: 3 } }\n\
                layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"y\" bottom: \"label\" }";
    assert!(refused(text).contains("net.prototxt:input=3x224x224"));
    let given = Shape::of_image(2, 4, 5);
    let model = parse("net.prototxt", text, Some(given)).unwrap();
    assert_eq!((model.input(), model.parameter_elements()), (given, 3 * 40 + 3));
    let cropped = text.replace("data_param", "transform_param { crop_size: 7 } data_param");
    assert_eq!(read(&cropped).input(), Shape::of_image(3, 7, 7));
    assert_eq!(parse("net.prototxt", &cropped, Some(given)).unwrap().input(), given);
    // A path is taken as it is up to the colon.
    for (settings, words) in
        [("wide", "the shape of a sample, input=3x224x224"), ("input=3x4", "the shape of a sample")]
    {
        let error = crate::load_model(&format!("nowhere/net.prototxt:{settings}")).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(
        crate::load_model("nowhere/net.prototxt:input=1x2x3")
            .unwrap_err()
            .to_string()
            .starts_with("nowhere/net.prototxt: ")
    );
}

/// Factors of rates and decays in both forms of the file: a convolution of 4 filters and a dense layer.
#[test]
fn tensors_have_individual_rates_and_decays() {
    let factors = |model: &Model| -> Vec<(f32, f32)> {
        let all = model.layers().iter().flat_map(|node| &node.parameters);
        all.map(|parameter| (parameter.multipliers.rate, parameter.multipliers.decay)).collect()
    };
    let layer = "inner_product_param { num_output: 3 }";
    let present =
        one("InnerProduct", &format!("{layer} param {{ lr_mult: 0 }} param {{ lr_mult: 2 decay_mult: 0.5 }}"));
    assert_eq!(factors(&read(&present)), [(0.0, 1.0), (2.0, 0.5)]);
    let first = one("INNER_PRODUCT", &format!("{layer} blobs_lr: 0 blobs_lr: 2 weight_decay: 1 weight_decay: 0.5"));
    assert_eq!(factors(&read(&first)), [(0.0, 1.0), (2.0, 0.5)]);
    assert_eq!(factors(&read(&one("InnerProduct", layer))), [(1.0, 1.0); 2]);
    assert_eq!(read(&one("InnerProduct", layer)).multipliers(), None);
    assert!(refused(&one("InnerProduct", &format!("{layer} param {{ lr_mult: -1 }}"))).contains("must be at least 0"));
    let shared = format!("{layer} param {{ name: \"w\" }} param {{ name: \"w\" }}");
    assert!(
        refused(&one("InnerProduct", &shared)).contains("net.prototxt:3: name: \"w\": layers cannot share parameters")
    );
}

#[test]
fn errors_name_their_line() {
    for (text, words) in [
        ("", "net.prototxt:1: blobs []: a net without a loss must end in one blob"),
        ("layer {\n name: \"a\"", "net.prototxt:1: {: is never closed"),
        ("}", "net.prototxt:1: }: closes nothing"),
        ("name: \"a", "a quote is never closed"),
        ("name \"a\"", "net.prototxt:1: name: a colon and a value"),
        ("\n5: 3", "net.prototxt:2: 5: a field must begin with its name"),
        ("lair { }", "did you mean layer?"),
        ("layer: 3", "must be a message in braces"),
        ("input: \"x\"", "x: has no shape: state the batch"),
        ("input: \"x\" input_dim: 1 input_dim: 3 input_dim: 0 input_dim: 4", "input"),
        (&one("Deconvolution", ""), "net.prototxt:2: type \"Deconvolution\": there is no such layer"),
        (&one("Convolution", "convolution_param { kernel_size: 3 }"), "net.prototxt:2: conv2d \"l\""),
        (
            &one("Convolution", "convolution_param { num_output: x }"),
            "net.prototxt:3: num_output: x: must be a whole number",
        ),
        (&one("Convolution", "convolution_param { num_outputs: 3 }"), "did you mean num_output?"),
        (&one("Pooling", "pooling_param { pool: STOCHASTIC }"), "only MAX and AVE"),
        (&one("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }"), "only ACROSS_CHANNELS"),
        (&one("Eltwise", "bottom: \"x\" eltwise_param { operation: MAX }"), "only SUM and PROD"),
        (&one("Concat", "bottom: \"x\" concat_param { axis: 2 }"), "axis 1"),
        (&one("ReLU", "include { level: 1 }"), "net.prototxt:3: level: 1: this field is not supported"),
        (&one("ReLU", "include { phase: TEST }"), "takes \"y\", which no layer before it makes in training"),
        ("layer { name: \"d\" type: \"Data\" top: \"x\" }", "no crop_size gives their shape"),
        ("layer { type: \"Data\" transform_param { crop_sise: 7 } }", "did you mean crop_size?"),
        (
            "layer { type: \"Data\" transform_param { crop_size: 7 crop_size: 8 } }",
            "crop_size: 8: this field is given twice",
        ),
        (
            "layer { type: \"Data\" data_param { source: \"a\" } data_param { } }",
            "data_param: this field is given twice",
        ),
        ("layer { type: \"Data\" data_param { backend: NOPE } }", "backend: NOPE: must be one of LEVELDB and LMDB"),
        ("layer { type: \"ImageData\" image_data_param { shuffle: 7 } }", "shuffle: 7: must be true or false"),
        (&filled("gaussian", "std: -1"), "net.prototxt:3: std: -1: must be at least 0"),
        (&filled("gaussian", "mean: 0.5"), "mean: 0.5: must be 0 for this type here"),
        (&filled("gaussian", "sparse: 15"), "sparse: 15: must be -1 for this type here"),
        (&filled("xavier", "stdd: 1"), "stdd: 1: this field is not supported: did you mean std?"),
        (&one("ReLU", "pooling_parm { }"), "did you mean pooling_param"),
        (&one("ReLU", "pooling_param { pol: MAX }"), "did you mean pool"),
        (&filled("msra", "variance_norm: AVERAGE"), "must be FAN_IN or FAN_OUT for this type"),
        (&format!("{}x: 1", "a {".repeat(40)), "deeper than 16"),
    ] {
        let error = refused(text);
        assert!(error.starts_with("net.prototxt") && error.contains(words), "{text}\n{error} lacks {words}");
    }
}

/// GoogLeNet's published definition states a deviation with xavier's filler, which Caffe ignores.
#[test]
fn fields_that_caffe_ignores_are_left_out_and_named() {
    let plain = parse("net.prototxt", &filled("xavier", ""), None).unwrap();
    assert!(plain.notes().is_empty());
    for (text, words) in [
        (filled("xavier", "std: 0.03"), "net.prototxt:3: fields that Caffe ignores are left out: std"),
        (filled("xavier", "min: 1 max: 2"), "left out: min, and 1 more"),
        (
            filled("xavier", "").replace("inner_product_param", "lrn_param { alpha: 1 } inner_product_param"),
            "left out: lrn_param",
        ),
    ] {
        let model = parse("net.prototxt", &text, None).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(model.notes().len() == 1 && model.notes()[0].contains(words), "{text}: {:?}", model.notes());
        same(&model, &plain);
    }
}

proptest! {
    /// A definition with some bytes changed, cut or doubled is read or refused, and never panics.
    #[test]
    fn broken_files_are_refused(at in 0usize..2_000, length in 0usize..40, with in "[ -~\n]{0,6}") {
        let text = include_str!("tests/lenet.prototxt");
        let (start, end) = (at.min(text.len()), (at + length).min(text.len()));
        let _ = parse("net.prototxt", &format!("{}{with}{}", &text[..start], &text[end..]), None);
    }
}

/// Layers and fields of forks: on 4×6×6 their kind, and what a note says.
#[test]
fn layers_of_forks_are_read() {
    let pool = |ceil| {
        let (kind, kernel, stride) = (lockstep_models::PoolKind::Max, (3, 3), (2, 2));
        Layer::Pool2d(lockstep_models::Pool2d { kind, kernel, stride, padding: (0, 0), ceil, count_padding: false })
    };
    let window = "pooling_param { pool: MAX kernel_size: 3 stride: 2";
    let leaky = |slope| Layer::LeakyRelu(lockstep_models::LeakyRelu { slope });
    let shuffled = Layer::Select(Select { first: 0, channels: 4, groups: 2 });
    for (kind, fields, made, note) in [
        ("Pooling", &*format!("{window} ceil_mode: false }}"), pool(false), ""),
        ("Pooling", &format!("{window} ceil_mode: true }} forward_type: FLOAT16"), pool(true), "forward_type"),
        ("ReLU", "relu_param { negative_slope: 0.1 }", leaky(0.1), ""),
        ("PReLU", "", leaky(0.25), "slopes of a PReLU"),
        ("ReLU6", "", Layer::Relu6, ""),
        ("Swish", "", Layer::Silu, ""),
        ("ShuffleChannel", "shuffle_channel_param { group: 2 }", shuffled, ""),
    ] {
        let text = one(kind, fields).replace(
            "layer { name: \"loss\"",
            "layer { name: \"s\" type: \"InnerProduct\" bottom: \"y\" top: \"y\" inner_product_param { num_output: 3 } }\n\
             layer { name: \"loss\"",
        );
        let model = read(&text);
        assert_eq!(model.layers()[1].layer, made, "{kind}");
        let notes = model.notes().join("\n");
        assert!(notes.contains(note) && notes.is_empty() == note.is_empty(), "{kind}: {notes}");
    }
    let both = format!("{window} ceil_mode: false round_mode: CEIL }}");
    assert!(refused(&one("Pooling", &both)).contains("contradicts round_mode"));
    let depthwise = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }";
    let scores =
        "layer { name: \"s\" type: \"InnerProduct\" bottom: \"p\" top: \"y\" inner_product_param { num_output: 3 } }";
    let parts = format!(
        "layer {{ name: \"d\" type: \"DepthwiseConvolution\" bottom: \"x\" top: \"d\" {depthwise} }}\n\
         layer {{ name: \"h\" type: \"Slice\" bottom: \"d\" top: \"a\" top: \"b\" slice_param {{ axis: 1 }} }}\n\
         layer {{ name: \"p\" type: \"Eltwise\" bottom: \"a\" bottom: \"b\" top: \"p\" eltwise_param {{ operation: PROD }} }}\n{scores}"
    );
    let model = read(&net(&parts));
    let kinds: Vec<&str> = model.layers().iter().map(|node| node.layer.kind()).collect();
    assert_eq!(kinds[..5], ["input", "conv2d", "select", "select", "product"]);
    assert_eq!(model.parameter_elements(), 4 * 9 + 4 + 3 * 72 + 3);
}
