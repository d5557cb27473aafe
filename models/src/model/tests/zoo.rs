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
    let flops: f64 = model
        .layers()
        .iter()
        .map(|node| match node.layer {
            Layer::Conv2d(_) | Layer::Dense(_) => node.work(Pass::Forward, 1).flops,
            _ => 0.0,
        })
        .sum();
    assert!((flops / 2.0 - 69.1e6).abs() < 0.3e6, "{flops}");
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
