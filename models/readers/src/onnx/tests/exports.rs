//! Reads graphs that PyTorch exports of torchvision's networks, without their weights: the parameters are as many as
//! PyTorch counts (`sum(p.numel() for p in model.parameters())`).

use super::*;

/// A file, the parameters of its network, and whether batch normalisation is folded away in it.
macro_rules! exports {
    ($($file:literal $parameters:literal $folded:literal;)*) => {
        &[$(($file, include_bytes!(concat!("exports/", $file)), $parameters, $folded)),*]
    };
}

const EXPORTS: &[(&str, &[u8], u64, bool)] = exports! {
    "alexnet.train.onnx" 61_100_840 false;
    "vgg11.ts.onnx" 132_863_336 false;
    "vgg11_bn.train.onnx" 132_868_840 false;
    "squeezenet1_1.train.onnx" 1_235_496 false;
    "resnet18.train.onnx" 11_689_512 false;
    "resnet18.tsfold.onnx" 11_689_512 true;
    "resnet18.dyn.onnx" 11_689_512 true;
    "resnext50_32x4d.ts.onnx" 25_028_904 false;
    "mobilenet_v2.train.onnx" 3_504_872 false;
    "mobilenet_v3_small.train.onnx" 2_542_856 false;
    "mobilenet_v3_small.dyn.onnx" 2_542_856 true;
    "shufflenet_v2_x0_5.train.onnx" 1_366_792 false;
    "shufflenet_v2_x0_5.dyn.onnx" 1_366_792 true;
    "mnasnet0_5.train.onnx" 2_218_512 false;
    "efficientnet_b0.train.onnx" 5_288_548 false;
    "regnet_y_400mf.train.onnx" 4_344_144 false;
    "densenet121.ts.onnx" 7_978_856 false;
    "inception_v3.train.onnx" 27_161_264 false;
    "convnext_tiny.ts.onnx" 28_589_128 false;
    "convnext_tiny.dyn.onnx" 28_589_128 false;
};

#[test]
fn exports_have_the_parameters_that_pytorch_counts() {
    for (file, bytes, parameters, folded) in EXPORTS {
        let read = |unfold| parse(file, bytes, unfold, crate::zoo::biased).unwrap_or_else(|error| panic!("{error}"));
        let plain = read(false);
        let warned = plain.notes().iter().any(|note| note.contains("batch normalisation is folded into"));
        assert_eq!(warned, *folded, "{file}: {:?}", plain.notes());
        let model = if *folded { read(true) } else { plain };
        assert_eq!(model.parameter_elements(), *parameters, "{file}");
    }
}

/// The same network in all forms: kinds and shapes of its layers but for views.
#[test]
fn unfolded_exports_are_the_trained_network() {
    let seen = |name: &str, unfold| {
        let (file, bytes, ..) = EXPORTS.iter().find(|(file, ..)| *file == name).expect("a file");
        let model = parse(file, bytes, unfold, crate::zoo::biased).unwrap_or_else(|error| panic!("{error}"));
        let line = |node: &Node| format!("{} {}", node.layer, node.output);
        model.layers().iter().map(line).collect::<Vec<_>>()
    };
    let trained = seen("resnet18.train.onnx", false);
    assert_eq!(seen("resnet18.tsfold.onnx", true), trained);
    assert_eq!(seen("resnet18.dyn.onnx", true), trained);
}
