//! Tests ONNX files: small ones written here, those of the `onnx` package against the zoo, and broken ones.

mod broken;
mod files;
mod write;

mod equal;
mod exports;
mod forms;

use super::*;
use lockstep_models::{Border, Conv2d, Dropout, LocalResponseNorm, Node, Pass, Pool2d, PoolKind, Scale};
use write::{Writer, chain, operator};

/// Names and values of a node's attributes.
type Attributes<'a> = &'a [(&'a str, &'a [i64])];

fn read(bytes: &[u8]) -> Model {
    parse("net.onnx", bytes, false, crate::zoo::biased).unwrap_or_else(|error| panic!("{error}"))
}

/// Name, kind and output of each layer.
fn seen(model: &Model) -> Vec<String> {
    let line = |node: &Node| format!("{} {} {}", node.name, node.layer.kind(), node.output);
    model.layers().iter().map(line).collect()
}

#[test]
fn a_small_network_by_hand() {
    let mut writer = Writer::default();
    writer.input("x", &[1, 3, 8, 8]);
    writer.weight("w", &[4, 3, 3, 3]);
    writer.weight("b", &[4]);
    writer.weight("f", &[144, 10]);
    writer.weight("g", &[10]);
    writer.node("Conv", "c", &["x", "w", "b"], &["1"], &[("pads", &[1, 1, 1, 1]), ("strides", &[1, 1])]);
    writer.node("Relu", "", &["1"], &["2"], &[]);
    writer.node("MaxPool", "", &["2"], &["3"], &[("kernel_shape", &[3, 3])]);
    writer.node("Flatten", "", &["3"], &["4"], &[]);
    writer.node("MatMul", "", &["4", "f"], &["5"], &[]);
    writer.node("Add", "", &["g", "5"], &["6"], &[]);
    writer.node("Softmax", "", &["6"], &["y"], &[]);
    let model = read(&writer.model("y"));
    let wanted = [
        "input input 3×8×8",
        "c conv2d 4×8×8",
        "relu1 relu 4×8×8",
        "max_pool1 max_pool 4×6×6",
        "flatten1 flatten 144×1×1",
        "dense1 dense 10×1×1",
        "loss softmax_cross_entropy 1×1×1",
    ];
    assert_eq!(seen(&model), wanted);
    // The product's bias is the constant added after it.
    assert_eq!(model.parameter_elements(), 4 * 27 + 4 + 1440 + 10);
    assert_eq!((model.name(), model.source()), ("net", "ONNX file of by hand, opset 13"));
}

/// Each operator on an input of 4×6×6 and its translation; `w` has the sizes given.
#[test]
fn operators_become_layers() {
    let norm =
        |bias: f32| Layer::LocalResponseNorm(LocalResponseNorm { size: 5, alpha: 1e-4 / 5.0, beta: 0.75, k: bias });
    let pool = |kind, padding, ceil| {
        Layer::Pool2d(Pool2d { kind, kernel: (3, 3), stride: (2, 2), padding, ceil, count_padding: false })
    };
    let window: [(&str, &[i64]); 2] = [("kernel_shape", &[3, 3]), ("strides", &[2, 2])];
    let [same, partial, none]: [[(&str, &[i64]); 3]; 3] = [&[1, 1, 1, 1], &[0, 0, 1, 1], &[0, 0, 0, 0]]
        .map(|pads: &[i64; 4]| [window[0], window[1], ("pads", &pads[..])]);
    let dilated = Conv2d {
        out_channels: 6,
        kernel: (3, 3),
        stride: (1, 1),
        padding: (0, 0),
        dilation: (2, 1),
        groups: 2,
        bias: false,
    };
    let cases: [(&str, &[i64], Attributes<'_>, Layer); 18] = [
        ("Gelu", &[], &[("approximate=tanh", &[])], Layer::Gelu),
        ("Gelu", &[], &[], Layer::ExactGelu),
        ("HardSwish", &[], &[], Layer::HardSwish),
        ("Relu", &[], &[], Layer::Relu),
        ("Add", &[4, 1, 1], &[], Layer::Bias),
        ("Sigmoid", &[], &[], Layer::Sigmoid),
        ("Tanh", &[], &[], Layer::Tanh),
        ("GlobalAveragePool", &[], &[], Layer::GlobalPool),
        ("LRN", &[], &[("size", &[5])], norm(1.0)),
        ("Dropout", &[], &[], Layer::Dropout(Dropout { rate: 0.5 })),
        ("Mul", &[4, 1, 1], &[], Layer::Scale(Scale { bias: false })),
        ("MaxPool", &[], &same, pool(PoolKind::Max, (1, 1), false)),
        // (6 + 1 − 3) / 2 + 1 = 3 places, the last one partial: Caffe's rule.
        ("MaxPool", &[], &partial, pool(PoolKind::Max, (0, 0), true)),
        ("AveragePool", &[], &none, pool(PoolKind::Average, (0, 0), false)),
        // One window of 7 over 6 places: their mean.
        ("AveragePool", &[], &[("kernel_shape", &[7, 7]), ("pads", &[0, 0, 1, 1])], Layer::GlobalPool),
        ("AveragePool", &[], &[("kernel_shape", &[6, 6])], Layer::GlobalPool),
        // An odd padding of 1 in all is at the end: a border of zeros.
        (
            "Conv",
            &[6, 4, 2, 2],
            &[("auto_pad=SAME_UPPER", &[])],
            Layer::Border(Border { before: (0, 0), after: (1, 1), reflect: false }),
        ),
        ("Conv", &[6, 2, 3, 3], &[("group", &[2]), ("dilations", &[2, 1])], Layer::Conv2d(dilated)),
    ];
    for (op, weight, attributes, wanted) in cases {
        let model = read(&operator(op, weight, attributes));
        assert_eq!(model.layers()[1].layer, wanted, "{op}");
    }
}

#[test]
fn branches_constants_and_names() {
    let mut writer = Writer::default();
    writer.input("x", &[1, 4, 2, 2]);
    writer.weight("s", &[4]);
    writer.weight("t", &[4]);
    writer.integers("axes", &[1, 2]);
    writer.integers("target", &[0, -1]);
    writer.integers("dims", &[5, 48]);
    // A factor and a bias per channel, their ones inserted by an Unsqueeze, are one layer.
    writer.node("Unsqueeze", "", &["s", "axes"], &["s1"], &[]);
    writer.node("Unsqueeze", "", &["t"], &["t1"], &[("axes", &[-1, -2])]);
    writer.node("Mul", "a b", &["x", "s1"], &["1"], &[]);
    writer.node("Add", "", &["1", "t1"], &["2"], &[]);
    writer.node("Sum", "a b", &["2", "x"], &["3"], &[]);
    writer.node("Concat", "loss", &["2", "3", "x"], &["4"], &[("axis", &[1])]);
    writer.node("Reshape", "input", &["4", "target"], &["5"], &[]);
    writer.node("ConstantOfShape", "", &["dims"], &["w"], &[]);
    writer.node("Gemm", "", &["5", "w"], &["y"], &[("transB", &[1])]);
    let model = read(&writer.model("y"));
    let wanted = [
        "input input 4×2×2",
        "a_b scale 4×2×2",
        "a_b2 add 4×2×2",
        "loss1 concat 12×2×2",
        "input1 flatten 48×1×1",
        "dense1 dense 5×1×1",
        "loss softmax_cross_entropy 1×1×1",
    ];
    assert_eq!(seen(&model), wanted);
    assert_eq!(model.parameter_elements(), 4 + 4 + 5 * 48);
}

#[test]
fn onnx_files_take_no_settings() {
    let error = crate::load_model("nets/a.onnx:wide").expect_err("no variants");
    assert!(error.to_string().contains("a .onnx file has no variants or sizes"), "{error}");
    let error = crate::load_model("nowhere/a.onnx").expect_err("no such file");
    assert_eq!(error.place.to_string(), "nowhere/a.onnx");
    let chained = chain(&["Relu", "Tanh"]);
    let path = std::env::temp_dir().join(format!("lockstep-{}.onnx", std::process::id()));
    std::fs::write(&path, &chained).expect("a file");
    let model = crate::load_model(path.to_str().expect("text")).expect("valid");
    assert_eq!(model.layers().len(), read(&chained).layers().len());
    std::fs::remove_file(path).expect("removed");
}
