//! Tests rules for initial values against models whose layers are counted by hand.

use super::*;

/// Goyal et al. 2017, §5.1.
const GOYAL: InitRules = InitRules {
    convolution: Some(Init::He),
    convolution_1x1: None,
    dense: None,
    last_dense: Some(Init::Gaussian(0.01)),
    bias: None,
    residual_gamma: Some(0.0),
};

/// ResNet-50 has 16 blocks, 4 of them with a projection: 53 convolutions and batch norms, of which 16 end a block.
#[test]
fn residual_blocks_start_as_their_shortcuts() {
    let model = load_model("resnet-50").unwrap().with_inits(&GOYAL);
    let wanted = "weight he ×53, gaussian:0.01 ×1; gamma 1 ×37, 0 ×16; beta 0 ×53; bias 0 ×1";
    assert_eq!(model.inits(), wanted);
    for node in model.layers().iter().filter(|node| matches!(node.layer, Layer::BatchNorm(_))) {
        let ends_block = node.name.ends_with("bn3");
        assert_eq!(node.parameters[0].init == Init::Constant(0.0), ends_block, "{}", node.name);
    }
    // ResNet-32: 15 blocks of two convolutions.
    let small = load_model("resnet-32").unwrap().with_inits(&GOYAL);
    assert!(small.inits().contains("0 ×15"), "{}", small.inits());
    // Everything else is unchanged.
    let plain = load_model("resnet-32").unwrap();
    assert_eq!(plain.clone().with_inits(&InitRules::default()).layers(), plain.layers());
    assert_eq!((small.parameter_elements(), small.name()), (plain.parameter_elements(), plain.name()));
}

/// Iandola et al. 2016, §7.1: 0.01 in 1×1 convolutions, 0.05 elsewhere.
#[test]
fn rules_distinguish_kinds_of_layers() {
    let model = parsed(&with_layers(
        "{ name = \"a\", kind = \"conv2d\", out_channels = 4, kernel = 3 },\n\
         { name = \"b\", kind = \"conv2d\", out_channels = 4, kernel = 1 },\n\
         { name = \"c\", kind = \"dense\", out_features = 4 },",
    ));
    let (wide, narrow) = (Some(Init::Gaussian(0.05)), Some(Init::Gaussian(0.01)));
    let rules = InitRules {
        convolution: wide,
        convolution_1x1: narrow,
        dense: Some(Init::Xavier),
        bias: Some(0.2),
        ..InitRules::default()
    };
    let model = model.with_inits(&rules);
    let starts: Vec<String> = model.layers().iter().flat_map(|n| &n.parameters).map(|p| p.init.to_string()).collect();
    let wanted = ["gaussian:0.05", "gaussian:0.01", "xavier", "xavier"];
    assert_eq!(starts, wanted.iter().flat_map(|weight| [*weight, "constant:0.2"]).collect::<Vec<_>>());
    // There is no block to start.
    let blocks = InitRules { residual_gamma: Some(0.0), ..InitRules::default() };
    assert_eq!(model.clone().with_inits(&blocks).layers(), model.layers());
}

#[test]
fn texts_round_trip() {
    for text in ["he", "xavier", "gaussian:0.01", "constant:-1.5"] {
        assert_eq!(text.parse::<Init>().unwrap().to_string(), text);
    }
    for wrong in ["", "He", "gaussian", "gaussian:-1", "gaussian:NaN", "constant:"] {
        assert!(wrong.parse::<Init>().unwrap_err().contains("gaussian:DEVIATION"), "{wrong}");
    }
}
