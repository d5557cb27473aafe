//! Compares the zoo with the figures of the papers.

use super::*;

/// Those that are no decoders.
fn of_images() -> Vec<String> {
    zoo().into_iter().filter(|name| load_model(name).expect("in the zoo").tokens().is_none()).collect()
}

#[test]
fn zoo_is_sorted_and_named_after_its_files() {
    assert!(ZOO.is_sorted_by_key(|(name, _)| *name));
    for name in zoo() {
        let model = load_model(&name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.name(), name);
        assert!(!model.source().is_empty());
    }
}

#[test]
fn mlp() {
    let model = load_model("mlp").expect("in the zoo");
    // 784·128 + 128 + 128·10 + 10.
    assert_eq!(model.parameter_elements(), 101_770);
    assert_eq!((model.classes(), model.input().elements()), (10, 784));
}

/// Krizhevsky 2014, §2: convolutions have "about 90-95% of the computation" and "about 5% of the parameters", dense
/// layers "about 5-10%" and "about 95%".
#[test]
fn convolutions_have_most_work_and_dense_layers_most_weights() {
    for name in ["alexnet", "alexnet-one-tower", "alexnet-one-tower:footnote"] {
        let model = load_model(name).expect("in the zoo");
        let convolutions = || model.layers().iter().filter(|node| matches!(node.layer, Layer::Conv2d(_)));
        let work = convolutions().map(|node| node.work(Pass::Forward, 1).flops).sum::<f64>() / matrix_flops(&model);
        let weights: u64 = convolutions().flat_map(|node| &node.parameters).map(|parameter| parameter.elements()).sum();
        let weights = weights as f64 / model.parameter_elements() as f64;
        assert!((0.90..0.95).contains(&work), "{name}: {work} of the work");
        assert!((0.03..0.07).contains(&weights), "{name}: {weights} of the parameters");
    }
}

#[test]
fn lenet_equals_that_of_crossbow() {
    let model = load_model("lenet").expect("in the zoo");
    // 32·25 + 32, 64·32·25 + 64, 1024·1024 + 1024, 10·1024 + 10.
    assert_eq!(832 + 51_264 + 1_049_600 + 10_250, 1_111_946);
    assert_eq!(model.parameter_elements(), 1_111_946);
    assert_eq!(mebibytes(&model), "4.24"); // Koliousis et al. 2019, Table 1
    let shapes: Vec<String> = model.layers().iter().map(|node| node.output.to_string()).collect();
    let wanted = "1×28×28 32×24×24 32×24×24 32×12×12 64×8×8 64×8×8 64×4×4 1024×1×1 1024×1×1 10×1×1 1×1×1";
    assert_eq!(shapes.join(" "), wanted);
}

#[test]
fn resnet_32_equals_that_of_crossbow() {
    let model = load_model("resnet-32").expect("in the zoo");
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
    let model = load_model("resnet-50").expect("in the zoo");
    // A bottleneck of c channels that takes i: i·c + 9c² + 4c² and γ, β of c + c + 4c; the first one projects
    // i·4c, 8c more.
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

/// Every name of the zoo has its line: parameters, and billions of multiply-adds of a forward pass in convolutions and
/// dense layers.
#[test]
fn sizes_and_work_equal_published_counts() {
    let cases = [
        // Krizhevsky et al. 2012, section 5: "60 million parameters"; two towers, so half the inputs in three layers.
        ("alexnet", 60_965_224, 0.7244),
        ("alexnet:ungrouped", 62_378_344, 1.135),
        ("alexnet-one-tower", 61_100_840, 0.7142),
        ("alexnet-one-tower:footnote", 61_838_248, 0.8388),
        // Szegedy et al. 2015, table 1: 1.5 billion multiply-adds "at inference time"; Iandola et al. count 1.58.
        ("googlenet", 6_998_552, 1.582),
        ("googlenet:auxiliary", 13_378_280, 1.591),
        ("googlenet-bn", 11_194_984, 2.0189),
        // Szegedy et al. 2016, section 6: 5 billion multiply-adds, as others count 5.7.
        ("inception-v3", 23_834_568, 5.713),
        ("lenet", 1_111_946, 0.0048),
        ("mlp", 101_770, 0.000_101_632),
        ("msft-speech", 37_767_168, 0.03775),
        ("msft-speech:seide", 45_122_648, 0.0451),
        ("nin", 7_595_176, 1.1002),
        // He et al. 2016, table 1: 7.6 and 3.8 billion with strides in the 1×1; 7.80 and 4.09 in the 3×3.
        ("resnet-101", 44_549_160, 7.80),
        ("resnet-101:stride-1x1", 44_549_160, 7.57),
        // Table 1: 11.3 billion.
        ("resnet-152", 60_192_808, 11.51),
        ("resnet-152:stride-1x1", 60_192_808, 11.28),
        ("resnet-32", 468_826, 0.069_127),
        ("resnet-50", 25_557_032, 4.09),
        ("resnet-50:stride-1x1", 25_557_032, 3.86),
        // Simonyan and Zisserman 2015, table 2: 138 and 144 million parameters.
        ("vgg-16", 138_357_544, 15.47),
        ("vgg-16-cifar", 15_038_116, 0.3132),
        ("vgg-19", 143_667_240, 19.63),
    ];
    let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, of_images());
    let mut wrong = Vec::new();
    for (name, parameters, billions) in cases {
        let model = load_model(name).expect("in the zoo");
        assert_eq!(model.parameter_elements(), parameters, "{name}");
        let found = matrix_flops(&model) / 2e9;
        wrong.extend(((found / billions - 1.0).abs() > 0.001).then(|| format!("{name}: {found}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn alexnet_by_hand() {
    // Weights and biases layer by layer; the second, fourth and fifth convolution see half of their inputs.
    let convolutions =
        96 * 363 + 96 + 256 * 48 * 25 + 256 + 384 * 256 * 9 + 384 + 384 * 192 * 9 + 384 + 256 * 192 * 9 + 256;
    let dense = 4096 * 9216 + 4096 + 4096 * 4096 + 4096 + 1000 * 4096 + 1000;
    let model = load_model("alexnet").expect("in the zoo");
    assert_eq!(model.parameter_elements(), convolutions + dense);
    assert_eq!(named(&model, "conv1").1.output.to_string(), "96×55×55");
    assert_eq!(named(&model, "pool5").1.output.to_string(), "256×6×6");
}

#[test]
fn one_tower_differs_from_two_as_in_krizhevskys_paper() {
    let [two, one, footnote] = ["alexnet", "alexnet-one-tower", "alexnet-one-tower:footnote"]
        .map(|name| load_model(name).expect("in the zoo"));
    let more = |model: &Model| {
        let parameters = model.parameter_elements() as f64 / two.parameter_elements() as f64;
        ((parameters - 1.0) * 100.0, (matrix_flops(model) / matrix_flops(&two) - 1.0) * 100.0)
    };
    // Krizhevsky 2014, section 5: "0.2% more parameters and 2.4% fewer connections"; the footnote's filters
    // give neither.
    let ((parameters, connections), (footnote_parameters, footnote_connections)) = (more(&one), more(&footnote));
    assert!((parameters - 0.2).abs() < 0.05 && (connections + 1.4).abs() < 0.1, "{parameters} {connections}");
    assert!((footnote_parameters - 1.4).abs() < 0.05 && (footnote_connections - 16.0).abs() < 0.5);
    assert_eq!(two.layers().len(), one.layers().len());
    assert_eq!(one.layers().last().map(|node| &node.layer), Some(&Layer::LogisticCrossEntropy));
}

/// Iandola et al. 2016, table 1, for a batch of 1024 and MB of 10⁶: |D| sums the inputs of convolutions and dense
/// layers with the image, |W| is without biases, work is three times the forward pass; GoogLeNet's auxiliary
/// classifiers are in |W| only.
#[test]
fn firecaffes_volumes() {
    // Name, name that |W| is of, |D| as counted, |D|, |W|, TF as printed.
    let rows = [
        ("nin", "nin", 5_793.0, 5_800.0, 30.0, 6.7),
        ("alexnet:ungrouped", "alexnet:ungrouped", 1_683.0, 1_680.0, 249.0, 7.0),
        ("googlenet", "googlenet:auxiliary", 19_102.0, 19_100.0, 54.0, 9.7),
        ("vgg-19", "vgg-19", 42_679.0, 42_700.0, 575.0, 120.0),
    ];
    for (name, weighed, counted, data, weight, work) in rows {
        let model = load_model(name).expect("in the zoo");
        let near = |found: f64, printed: f64, what: &str| {
            assert!((found / printed - 1.0).abs() < 0.02, "{name}: {what} of {found}, printed {printed}");
        };
        assert_eq!(data_mb(&model, 1024.0).round(), counted, "{name}");
        near(data_mb(&model, 1024.0), data, "MB of data");
        near(weights_mb(&load_model(weighed).expect("in the zoo")), weight, "MB of weights");
        near(3.0 * 1024.0 * matrix_flops(&model) / 1e12, work, "TF");
    }
    // Nine matrices of 2048²: the printed 151 MB; their inputs are 2 % more than the printed 74 MB, and work is 0.23
    // TF, where 0.00015 TF is printed, which is 4 FLOPs a weight and for one sample.
    let speech = load_model("msft-speech").expect("in the zoo");
    assert_eq!((weights_mb(&speech).round(), data_mb(&speech, 1024.0)), (151.0, 75.497_472));
    let weights = weights_mb(&speech) * 1e6 / 4.0;
    assert_eq!(format!("{:.5}", 4.0 * weights / 1e12), "0.00015");
}

#[test]
fn crossbows_models() {
    // Koliousis et al. 2019, table 1.
    for (name, printed) in [("lenet", "4.24"), ("resnet-32", "1.79"), ("vgg-16-cifar", "57.37"), ("resnet-50", "97.49")]
    {
        assert_eq!(mebibytes(&load_model(name).expect("in the zoo")), printed, "{name}");
    }
}

#[test]
fn googlenet_with_auxiliaries_has_three_losses() {
    let model = load_model("googlenet:auxiliary").expect("in the zoo");
    let losses: Vec<(&str, f32)> =
        model.layers().iter().filter(|n| n.layer.is_loss()).map(|n| (n.name.as_str(), n.loss_weight)).collect();
    assert_eq!(losses, [("auxiliary1.loss", 0.3), ("auxiliary2.loss", 0.3), ("loss", 1.0)]);
    assert_eq!(named(&model, "auxiliary1.conv").1.input_shapes[0].to_string(), "512×4×4");
    assert_eq!(named(&model, "auxiliary2.conv").1.input_shapes[0].to_string(), "528×4×4");
    // Each: 1×1 to 128, 2048 to 1024, 1024 to 1000, all with biases.
    let head = |channels: u64| channels * 128 + 128 + 2048 * 1024 + 1024 + 1024 * 1000 + 1000;
    let plain = load_model("googlenet").expect("in the zoo").parameter_elements();
    assert_eq!(model.parameter_elements(), plain + head(512) + head(528));
}

#[test]
fn parameter_arenas_have_no_gaps() {
    for name in of_images() {
        let model = load_model(&name).expect("in the zoo");
        let (mut parameters, mut statistics) = (0, 0);
        for node in model.layers() {
            for parameter in &node.parameters {
                assert_eq!(parameter.range.start, parameters);
                assert_eq!(parameter.elements(), parameter.shape.elements());
                assert_eq!(parameter.decay, !matches!(node.layer, Layer::BatchNorm(_)));
                parameters = parameter.range.end;
            }
            if let Some(range) = &node.statistics {
                assert_eq!((range.start, range.end - range.start), (statistics, 2 * u64::from(node.output.features())));
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

/// Bytes that enter convolutions and dense layers with `samples` samples, in 10⁶.
fn data_mb(model: &Model, samples: f64) -> f64 {
    let inputs = model.layers().iter().filter(|node| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_)));
    inputs.map(|node| node.input_shapes[0].elements() as f64).sum::<f64>() * samples * 4.0 / 1e6
}

/// Bytes of weights without biases, in 10⁶.
fn weights_mb(model: &Model) -> f64 {
    let weights =
        model.layers().iter().flat_map(|node| &node.parameters).filter(|tensor| tensor.shape.dimensions().len() > 1);
    weights.map(|tensor| tensor.elements() as f64).sum::<f64>() * 4.0 / 1e6
}
