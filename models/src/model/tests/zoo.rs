//! The zoo against the figures of the papers.

use super::*;

#[test]
fn zoo_is_sorted_and_named_after_its_files() {
    assert!(Model::zoo().is_sorted_by_key(|(name, _)| *name));
    for (name, _) in Model::zoo() {
        let model = Model::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.name(), *name);
        assert!(!model.source().is_empty());
    }
}

#[test]
fn mlp() {
    let model = parsed(Model::zoo()[1].1);
    // 784·128 + 128 + 128·10 + 10.
    assert_eq!(model.parameter_elements(), 101_770);
    assert_eq!((model.classes(), model.input().elements()), (10, 784));
}

#[test]
fn lenet_is_crossbows() {
    let model = Model::load("lenet").expect("in the zoo");
    // 32·25 + 32, 64·32·25 + 64, 1024·1024 + 1024, 10·1024 + 10.
    assert_eq!(832 + 51_264 + 1_049_600 + 10_250, 1_111_946);
    assert_eq!(model.parameter_elements(), 1_111_946);
    assert_eq!(mebibytes(&model), "4.24"); // Koliousis et al. 2019, Table 1
    let shapes: Vec<String> = model.layers().iter().map(|node| node.output.to_string()).collect();
    let wanted = "1×28×28 32×24×24 32×24×24 32×12×12 64×8×8 64×8×8 64×4×4 1024×1×1 1024×1×1 10×1×1 1×1×1";
    assert_eq!(shapes.join(" "), wanted);
}

#[test]
fn resnet_32_is_crossbows() {
    let model = Model::load("resnet-32").expect("in the zoo");
    // Convolutions 432 + 10·9·16² + (9·16·32 + 9·9·32²) + (9·32·64 + 9·9·64²), projections 16·32 + 32·64,
    // γ and β of 11·16 + 11·32 + 11·64 channels, dense 256·10 + 10.
    let convolutions = 432 + 10 * 2_304 + (4_608 + 9 * 9_216) + (18_432 + 9 * 36_864);
    let counted = convolutions + (512 + 2_048) + 2 * 11 * (16 + 32 + 64) + 2_570;
    assert_eq!(model.parameter_elements(), counted);
    assert_eq!(counted, 468_826);
    assert_eq!(mebibytes(&model), "1.79"); // Koliousis et al. 2019, Table 1
    assert_eq!(model.statistics_elements(), 2 * 11 * (16 + 32 + 64));
    let weighted = model.layers().iter().filter(|node| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_)));
    assert_eq!(weighted.filter(|node| !node.name.ends_with("project")).count(), 32);
    // The plain 3×3 network of He et al. 2016 costs 69 million multiply-adds; the projections add 16·32·16² + 32·64·8².
    let flops = matrix_flops(&model);
    assert!((flops / 2.0 - 69.1e6).abs() < 0.3e6, "{flops}");
}

#[test]
fn resnet_50_has_the_published_size() {
    let model = Model::load("resnet-50").expect("in the zoo");
    // A bottleneck of c channels that takes i: i·c + 9c² + 4c² and γ, β of c + c + 4c; the first one projects i·4c, 8c more.
    let bottleneck = |i: u64, c: u64| i * c + 13 * c * c + 2 * 6 * c;
    let stage =
        |i: u64, c: u64, blocks: u64| bottleneck(i, c) + 4 * i * c + 8 * c + (blocks - 1) * bottleneck(4 * c, c);
    let stages = stage(64, 64, 3) + stage(256, 128, 4) + stage(512, 256, 6) + stage(1024, 512, 3);
    let counted = 49 * 3 * 64 + 2 * 64 + stages + 2048 * 1000 + 1000;
    assert_eq!((model.parameter_elements(), counted), (25_557_032, 25_557_032));
    assert_eq!(model.layers().iter().map(|node| node.parameters.len()).sum::<usize>(), 53 + 2 * 53 + 2);
    assert_eq!(model.node(LayerId(model.layers().len() as u32 - 3)).output.to_string(), "2048×1×1");
    // 3.86 billion multiply-adds with strides in the 1×1; three first blocks do theirs at four times the places.
    let moved = (256 * 128 * 56 * 56 + 512 * 256 * 28 * 28 + 1024 * 512 * 14 * 14) as f64 * 0.75;
    assert!((matrix_flops(&model) / 2.0 - moved - 3.86e9).abs() < 0.01e9, "{}", matrix_flops(&model));
}

#[test]
fn arenas_have_no_gaps() {
    for (name, _) in Model::zoo() {
        let model = Model::load(name).expect("in the zoo");
        let (mut parameters, mut statistics) = (0, 0);
        for node in model.layers() {
            for parameter in &node.parameters {
                assert_eq!(parameter.range.start, parameters);
                assert_eq!(parameter.elements(), parameter.dims.iter().map(|size| u64::from(*size)).product::<u64>());
                assert_eq!(parameter.decay, !matches!(node.layer, Layer::BatchNorm(_)));
                parameters = parameter.range.end;
            }
            if let Some(range) = &node.statistics {
                assert_eq!((range.start, range.end - range.start), (statistics, 2 * u64::from(node.output.channels)));
                statistics = range.end;
            }
        }
        assert_eq!((parameters, statistics), (model.parameter_elements(), model.statistics_elements()));
    }
}

/// Two decimals, as the paper prints.
fn mebibytes(model: &Model) -> String {
    format!("{:.2}", model.parameter_elements() as f64 * 4.0 / 1024.0 / 1024.0)
}

/// Forward FLOPs of a sample in convolutions and dense layers, which is what papers count.
fn matrix_flops(model: &Model) -> f64 {
    let matrices = model.layers().iter().filter(|node| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_)));
    matrices.map(|node| node.work(Pass::Forward, 1).flops).sum()
}
