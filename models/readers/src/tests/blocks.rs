//! Tests the meaning of model files: defaults, names, references, blocks, and the resulting DAG.

use super::*;
use lockstep_models::layer::{KINDS, LayerKind};

#[test]
fn inputs_and_names_have_defaults() {
    let model = parsed(&with_layers(
        "{ kind = \"relu\" },\n{ name = \"x\", kind = \"relu\" },\n{ kind = \"relu\" },\n\
         { kind = \"add\", inputs = [\"relu1\", \"relu3\"] },",
    ));
    let names: Vec<&str> = model.layers().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["input", "relu1", "x", "relu3", "add1", "dense1", "softmax_cross_entropy1"]);
    assert_eq!(named(&model, "add1").1.inputs, [LayerId(1), LayerId(3)]);
    assert_eq!(model.consumers(LayerId(1)), [LayerId(2), LayerId(4)]);
    assert_eq!(named(&model, "dense1").1.parameters[0].name, "dense1.weight");
}

#[test]
fn later_layers_may_be_named() {
    let model = parsed(&with_layers(
        "{ name = \"sum\", kind = \"add\", inputs = [\"left\", \"right\"] },\n\
         { name = \"left\", kind = \"relu\", inputs = \"input\" },\n\
         { name = \"right\", kind = \"relu\", inputs = \"input\" },\n\
         { name = \"last\", kind = \"relu\", inputs = \"sum\" },",
    ));
    let names: Vec<&str> = model.layers().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names[..5], ["input", "left", "right", "sum", "last"]);
}

#[test]
fn blocks_nest_repeat_and_multiply() {
    let text = "name = \"m\"\ninput = [3, 8, 8]\n\
        [block.unit]\n\
        layer = [{ kind = \"conv2d\", out_channels = \"$width\", kernel = 1 }, { kind = \"relu\" }]\n\
        [block.bottleneck]\n\
        layer = [\n\
        { name = \"a\", block = \"unit\", width = \"$width\" },\n\
        { name = \"b\", block = \"unit\", width = \"4 * $width\" },\n\
        { name = \"side\", kind = \"conv2d\", out_channels = \"4*$width\", kernel = 1, inputs = \"input\" },\n\
        { name = \"sum\", kind = \"add\", inputs = [\"b\", \"side\"] },\n\
        ]\n\
        [[layer]]\nname = \"late\"\nblock = \"bottleneck\"\nwidth = 2\ninputs = \"stage\"\n\
        [[layer]]\nkind = \"dense\"\nout_features = 2\n\
        [[layer]]\nkind = \"softmax_cross_entropy\"\n\
        [[layer]]\nname = \"stage\"\nblock = \"bottleneck\"\nrepeat = 2\nwidth = 5\ninputs = \"input\"\n";
    let model = parsed(text);
    let names: Vec<&str> = model.layers().iter().map(|node| node.name.as_str()).collect();
    let wanted = "input stage.1.a.conv2d1 stage.1.a.relu1 stage.1.b.conv2d1 stage.1.b.relu1 stage.1.side stage.1.sum \
                  stage.2.a.conv2d1 stage.2.a.relu1 stage.2.b.conv2d1 stage.2.b.relu1 stage.2.side stage.2.sum \
                  late.a.conv2d1 late.a.relu1 late.b.conv2d1 late.b.relu1 late.side late.sum dense1 \
                  softmax_cross_entropy1";
    assert_eq!(names.join(" "), wanted);
    assert_eq!(named(&model, "stage.1.a.conv2d1").1.output.features(), 5);
    assert_eq!(named(&model, "stage.1.sum").1.output.features(), 20);
    assert_eq!(named(&model, "stage.2.side").1.input_shapes[0].features(), 20);
    assert_eq!(named(&model, "late.sum").1.output.features(), 8);
    let entry = named(&model, "stage.2.sum").0;
    let consumers: Vec<&str> = model.consumers(entry).iter().map(|id| model.node(*id).name.as_str()).collect();
    assert_eq!(consumers, ["late.a.conv2d1", "late.side"]);
}

#[test]
fn initial_values_come_from_the_file() {
    let model = parsed(&with_layers(
        "{ name = \"a\", kind = \"conv2d\", out_channels = 3, kernel = 2, weight_init = \"xavier\", bias_init = 0.5 },\n\
         { name = \"b\", kind = \"batch_norm\", gamma_init = 0 },\n\
         { name = \"c\", kind = \"dense\", out_features = 3, weight_init = { gaussian = 0.01 } },\n\
         { name = \"d\", kind = \"dense\", out_features = 3, weight_init = { constant = 2.0 } },",
    ));
    let inits = |name| named(&model, name).1.parameters.iter().map(|parameter| parameter.init).collect::<Vec<Init>>();
    assert_eq!(inits("a"), [Init::Xavier, Init::Constant(0.5)]);
    assert_eq!(inits("b"), [Init::Constant(0.0), Init::Constant(0.0)]);
    assert_eq!(inits("c"), [Init::Gaussian(0.01), Init::Constant(0.0)]);
    assert_eq!(inits("d"), [Init::Constant(2.0), Init::Constant(0.0)]);
    assert_eq!(inits("dense3"), [Init::He, Init::Constant(0.0)]);
    let weight = &named(&model, "a").1.parameters[0];
    // [3, 1, 2, 2]: an output has 4 inputs, an input reaches 3·2·2 outputs.
    assert_eq!((weight.fan_in(), weight.fan_out()), (4, 12));
}

#[test]
fn only_layers_after_parameters_need_input_gradients() {
    let model = parsed(&with_layers(
        "{ name = \"pool\", kind = \"max_pool\", kernel = 2 },\n\
         { name = \"conv\", kind = \"conv2d\", out_channels = 1, kernel = 1 },\n\
         { name = \"sum\", kind = \"add\", inputs = [\"pool\", \"conv\"] },",
    ));
    let needed: Vec<bool> = model.iter().map(|(id, _)| model.needs_input_gradient(id)).collect();
    // input, pool, conv: nothing before them learns; sum, dense and loss come after conv.
    assert_eq!(needed, [false, false, false, true, true, true]);
}

#[test]
fn the_documented_examples_are_models() {
    let book = include_str!("../../../../docs/models.md");
    let examples: Vec<&str> = book.split("```toml\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert!(examples.len() >= 2);
    for example in examples {
        parsed(example);
    }
    for LayerKind { name: kind, keys, .. } in KINDS {
        let row = book.lines().find(|line| line.starts_with(&format!("| `{kind}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/models.md lacks {kind}"));
        for key in *keys {
            assert!(row.contains(&format!("`{key}`")), "docs/models.md: {kind} lacks {key}");
        }
    }
}
