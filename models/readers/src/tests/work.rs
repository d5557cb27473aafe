//! Compares costs with cases worked by hand.

use super::*;

const PASSES: [Pass; 3] = [Pass::Forward, Pass::BackwardData, Pass::BackwardWeight];

/// FLOPs, elements read and elements written of the three passes of the layer `name`.
fn costs(model: &Model, name: &str, samples: u32) -> [(f64, f64, f64); 3] {
    let node = named(model, name).1;
    PASSES.map(|pass| {
        let work = node.work(pass, samples);
        let elements = work.elements_read + work.elements_written;
        assert_eq!(work.bytes(Dtype::Bf16), 2.0 * elements + work.kept_bytes);
        (work.flops, work.elements_read, work.elements_written)
    })
}

#[test]
fn convolution() {
    let model = parsed(&with_layers(
        "{ name = \"a\", kind = \"conv2d\", out_channels = 4, kernel = 1 },\n\
         { name = \"c\", kind = \"conv2d\", out_channels = 6, kernel = [3, 2], groups = 2 },",
    ));
    // Input 4×8×8 = 256, output 6×6×7 = 252. Each output is a sum over 4/2 channels · 3·2 taps = 12, so 2·12·252 =
    // 6,048 FLOPs a sample. Weight 6·2·3·2 = 72, bias 6. Three samples.
    let wanted = [(18_144.0, 768.0 + 78.0, 756.0), (18_144.0, 756.0 + 72.0, 768.0), (18_144.0, 768.0 + 756.0, 78.0)];
    assert_eq!(costs(&model, "c", 3), wanted);
}

#[test]
fn dense() {
    let model = parsed(&with_layers("{ name = \"d\", kind = \"dense\", out_features = 3, bias = false },"));
    // 64 features to 3: 2·64·3 = 384 FLOPs a sample. Two samples.
    let wanted = [(768.0, 128.0 + 192.0, 6.0), (768.0, 6.0 + 192.0, 128.0), (768.0, 128.0 + 6.0, 192.0)];
    assert_eq!(costs(&model, "d", 2), wanted);
}

#[test]
fn batch_norm() {
    let model = parsed(&with_layers("{ name = \"n\", kind = \"batch_norm\" },"));
    // One channel of 64, ten samples: 640 elements; γ, β, running mean and variance are 4 elements.
    let wanted = [(3_840.0, 644.0, 642.0), (2_560.0, 1_281.0, 640.0), (2_560.0, 1_280.0, 2.0)];
    assert_eq!(costs(&model, "n", 10), wanted);
}

#[test]
fn layers_without_parameters() {
    let model = parsed(
        "name = \"m\"\ninput = [2, 4, 4]\nlayer = [\n\
         { name = \"r\", kind = \"relu\" },\n\
         { name = \"a\", kind = \"add\", inputs = [\"r\", \"input\"] },\n\
         { name = \"c\", kind = \"concat\", inputs = [\"a\", \"r\"] },\n\
         { name = \"m\", kind = \"max_pool\", kernel = 2 },\n\
         { name = \"v\", kind = \"average_pool\", kernel = [1, 2] },\n\
         { name = \"g\", kind = \"global_pool\" },\n\
         { name = \"f\", kind = \"flatten\" },\n\
         { name = \"l\", kind = \"softmax_cross_entropy\" },\n]\n",
    );
    // 2×4×4 = 32 → c 4×4×4 = 64 → m 4×2×2 = 16 → v 4×2×1 = 8 → g 4 → l 1.
    let nothing = (0.0, 0.0, 0.0);
    let cases = [
        ("input", nothing, nothing),
        ("r", (32.0, 32.0, 32.0), (32.0, 64.0, 32.0)),
        ("a", (32.0, 64.0, 32.0), (0.0, 32.0, 64.0)),
        ("c", (0.0, 64.0, 64.0), (0.0, 64.0, 64.0)),
        ("m", (64.0, 64.0, 16.0), (16.0, 80.0, 64.0)),
        ("v", (16.0, 16.0, 8.0), (16.0, 8.0, 16.0)),
        ("g", (8.0, 8.0, 4.0), (4.0, 4.0, 8.0)),
        ("f", nothing, nothing),
        ("l", (20.0, 5.0, 5.0), (5.0, 5.0, 4.0)),
    ];
    for (name, forward, backward) in cases {
        assert_eq!(costs(&model, name, 1), [forward, backward, nothing], "{name}");
        let scaled = |(flops, read, written)| (7.0 * flops, 7.0 * read, 7.0 * written);
        assert_eq!(costs(&model, name, 7), [scaled(forward), scaled(backward), nothing], "{name}");
    }
}

#[test]
fn alexnets_other_layers() {
    let model = parsed(&with_layers(
        "{ name = \"s\", kind = \"scale\" },\n{ name = \"o\", kind = \"scale\", bias = false },\n\
         { name = \"n\", kind = \"local_response_norm\" },\n{ name = \"d\", kind = \"dropout\" },\n\
         { name = \"g\", kind = \"sigmoid\" },\n{ name = \"t\", kind = \"tanh\" },",
    ));
    // One channel of 64 elements; the norm's window is 5: 5 + 4 and 2·5 + 8 FLOPs an element.
    let nothing = (0.0, 0.0, 0.0);
    let cases = [
        ("s", [(128.0, 66.0, 64.0), (64.0, 65.0, 64.0), (128.0, 128.0, 2.0)]),
        ("o", [(64.0, 65.0, 64.0), (64.0, 65.0, 64.0), (64.0, 128.0, 1.0)]),
        ("n", [(576.0, 64.0, 64.0), (1_152.0, 192.0, 64.0), nothing]),
        ("d", [(64.0, 64.0, 64.0), (64.0, 64.0, 64.0), nothing]),
        ("g", [(256.0, 64.0, 64.0), (192.0, 128.0, 64.0), nothing]),
        ("t", [(256.0, 64.0, 64.0), (192.0, 128.0, 64.0), nothing]),
    ];
    for (name, wanted) in cases {
        assert_eq!(costs(&model, name, 1), wanted, "{name}");
    }
    let scale = named(&model, "s").1;
    assert!(scale.parameters.iter().all(|parameter| !parameter.decay));
    assert_eq!((scale.parameters[0].init, scale.parameters[1].init), (Init::Constant(1.0), Init::Constant(0.0)));
}

/// A mask has a byte for each element, whatever the elements' format: 64 bytes a sample beside 128 elements.
#[test]
fn a_mask_is_bytes_in_every_format() {
    let model = parsed(&with_layers("{ name = \"d\", kind = \"dropout\" },"));
    for pass in [Pass::Forward, Pass::BackwardData] {
        let work = named(&model, "d").1.work(pass, 3);
        for (dtype, each) in [(Dtype::F32, 4.0), (Dtype::Bf16, 2.0), (Dtype::F8E4M3, 1.0)] {
            assert_eq!(work.bytes(dtype), 3.0 * (128.0 * each + 64.0), "{pass:?} in {dtype}");
        }
    }
}

#[test]
fn backward_is_twice_forward_where_weights_are() {
    for seed in 0..50 {
        for node in random_model(seed, true).layers() {
            if matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_)) {
                let [forward, data, weight] = PASSES.map(|pass| node.work(pass, 5).flops);
                assert_eq!(data + weight, 2.0 * forward);
            }
        }
    }
}
