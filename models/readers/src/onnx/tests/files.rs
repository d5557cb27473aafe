//! Compares the network files of the Python package `onnx` with the zoo: the same parameters, shapes and FLOPs, or the
//! stated difference.
//!
//! They are in the project's `.venv`, which `bash tests/run python` makes; elsewhere the test reports that it
//! was skipped.

use std::path::PathBuf;

use super::*;

/// The folder of the files, if they are here.
fn folder() -> Option<PathBuf> {
    let venv = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let mut versions: Vec<PathBuf> = std::fs::read_dir(venv).ok()?.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let inside = |version: PathBuf| version.join("site-packages/onnx/backend/test/data/light");
    versions.into_iter().map(inside).find(|folder| folder.is_dir())
}

/// The convolutions and dense layers in order: kind, parameters, output, and whether they have a bias.
fn matrices(model: &Model) -> Vec<(&'static str, u64, String, usize)> {
    let matrix = |node: &&Node| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_));
    let line = |node: &Node| {
        let elements = node.parameters.iter().map(|parameter| parameter.elements()).sum();
        (node.layer.kind(), elements, node.output.to_string(), node.parameters.len())
    };
    model.layers().iter().filter(matrix).map(line).collect()
}

fn flops(model: &Model) -> f64 {
    let matrix = |node: &&Node| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_));
    model.layers().iter().filter(matrix).map(|node| node.work(Pass::Forward, 1).flops).sum()
}

/// All outputs of a kind, sorted, for kinds whose order among branches is free.
fn outputs(model: &Model, kind: &str) -> Vec<String> {
    let mut found: Vec<String> =
        model.layers().iter().filter(|node| node.layer.kind() == kind).map(|node| node.output.to_string()).collect();
    found.sort();
    found
}

#[test]
fn files_of_the_onnx_package_are_the_zoos_networks() {
    let Some(folder) = folder() else {
        assert!(std::env::var_os("LOCKSTEP_REQUIRE_ONNX").is_none(), "no onnx in .venv: bash tests/run python");
        eprintln!("not run: the onnx package is not in .venv, which `bash tests/run python` makes");
        return;
    };
    let load = |name: &str| {
        let path = folder.join(format!("light_{name}.onnx"));
        crate::load_model(path.to_str().expect("text")).unwrap_or_else(|error| panic!("{error}"))
    };
    let zoo = |name: &str| crate::load_model(name).expect("in the zoo");
    // The same network, layer by layer.
    for (file, name) in [("vgg19", "vgg-19"), ("resnet50", "resnet-50")] {
        let (file, ours) = (load(file), zoo(name));
        let sorted = |model: &Model| {
            let mut all = matrices(model);
            all.sort();
            all
        };
        assert_eq!(sorted(&file), sorted(&ours), "{name}");
        assert_eq!((file.parameter_elements(), flops(&file)), (ours.parameter_elements(), flops(&ours)), "{name}");
        for kind in ["max_pool", "batch_norm", "add", "relu"] {
            assert_eq!(outputs(&file, kind), outputs(&ours, kind), "{name} {kind}");
        }
    }
    // AlexNet's file has no padding around the image: 54×54 places instead of 55×55, from the second pooling's 12×12
    // on, and a last pooling that keeps a partial window, so that 6×6 reach the dense layers.
    let (file, ours) = (load("bvlc_alexnet"), zoo("alexnet"));
    assert_eq!(file.parameter_elements(), ours.parameter_elements());
    let shapes =
        |model: &Model| matrices(model).into_iter().map(|(.., output, _)| output).collect::<Vec<_>>().join(" ");
    assert_eq!(shapes(&file), "96×54×54 256×26×26 384×12×12 384×12×12 256×12×12 4096×1×1 4096×1×1 1000×1×1");
    assert_eq!(shapes(&ours), "96×55×55 256×27×27 384×13×13 384×13×13 256×13×13 4096×1×1 4096×1×1 1000×1×1");
    // GoogLeNet's file drops partial windows: the maps are 55, 27, 13 and 6 wide instead of 56, 28, 14 and 7.
    let (file, ours) = (load("inception_v1"), zoo("googlenet"));
    assert_eq!(file.parameter_elements(), ours.parameter_elements());
    assert_eq!(matrices(&file).len(), matrices(&ours).len());
    assert_eq!(outputs(&file, "concat").last().map(String::as_str), Some("832×6×6"));
    assert_eq!(outputs(&ours, "concat").last().map(String::as_str), Some("832×7×7"));
    // GoogLeNet-BN's file has a scale after each batch norm, a factor and a bias more for each of their channels.
    let (file, ours) = (load("inception_v2"), zoo("googlenet-bn"));
    let channels = |kind: &str| {
        let nodes = file.layers().iter().filter(|node| node.layer.kind() == kind);
        nodes.map(|node| u64::from(node.output.features())).sum::<u64>()
    };
    assert_eq!(channels("scale"), channels("batch_norm"));
    assert_eq!(file.parameter_elements(), ours.parameter_elements() + 2 * channels("scale"));
    assert_eq!(flops(&file), flops(&ours));
    // Networks that are not in the zoo: their figures as published.
    // Huang et al. 2017, table 1 (DenseNet-121 for ImageNet): 7,978,856 with one γ and β a channel; the file has two.
    let dense = load("densenet121");
    let scaled: u64 =
        dense.layers().iter().filter(|n| n.layer.kind() == "scale").map(|n| u64::from(n.output.features())).sum();
    assert_eq!(dense.parameter_elements(), 7_978_856 + 2 * scaled);
    // Iandola et al. 2016 (SqueezeNet), table 2 in version 1.1: 1,235,496.
    assert_eq!(load("squeezenet").parameter_elements(), 1_235_496);
    // Its shuffles are reshapes and a transpose.
    let shuffled = load("shufflenet");
    let shuffles = shuffled.layers().iter().filter(|node| matches!(&node.layer, Layer::Select(of) if of.groups > 1));
    assert!(shuffles.count() > 0 && shuffled.classes() == 1000);
}
