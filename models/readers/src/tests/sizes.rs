//! Tests sizes, variants and switches of a model file: their effects, and mistakes in them.

use super::*;

/// A model with a switch, a size and a variant that changes both.
const TEXT: &str = r#"
name = "m"
source = "the plain one"
input = [1, "$side", "$side"]
size = { side = 8, wide = 0, features = 3 }
variant.wide = { wide = 1, features = 5, source = "the wide one" }
variant.odd = { side = 7 }
layer = [
    { name = "widen", kind = "dense", out_features = "2*$features", when = "$wide" },
    { name = "act", kind = "relu" },
    { name = "scores", kind = "dense", out_features = "$features" },
    { kind = "softmax_cross_entropy" },
]
"#;

fn with(settings: &str) -> Model {
    model_file::parse("m.toml", TEXT, settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Name, source and the outputs of all layers.
fn seen(model: &Model) -> (String, String, String) {
    let outputs: Vec<String> =
        model.layers().iter().map(|node| format!("{} {}", node.name, node.output.features())).collect();
    (model.name().to_owned(), model.source().to_owned(), outputs.join(", "))
}

#[test]
fn variants_and_settings_apply_from_left_to_right() {
    let cases = [
        ("", "m", "the plain one", "input 1, act 1, scores 3, softmax_cross_entropy1 1"),
        ("wide", "m:wide", "the wide one", "input 1, widen 10, act 10, scores 5, softmax_cross_entropy1 1"),
        (
            "wide,features=2",
            "m:wide,features=2",
            "the wide one",
            "input 1, widen 4, act 4, scores 2, softmax_cross_entropy1 1",
        ),
        (
            "features=2,wide",
            "m:features=2,wide",
            "the wide one",
            "input 1, widen 10, act 10, scores 5, softmax_cross_entropy1 1",
        ),
    ];
    for (settings, name, source, outputs) in cases {
        assert_eq!(seen(&with(settings)), (name.to_owned(), source.to_owned(), outputs.to_owned()));
    }
    assert_eq!(with("odd").input().elements(), 49);
    assert_eq!(with("wide,odd, side = 4").input().elements(), 16);
}

#[test]
fn a_switch_in_a_block_reads_the_use_of_the_block() {
    let text = r#"
name = "m"
input = [1, 4, 4]
[block.b]
layer = [
    { name = "p", kind = "max_pool", kernel = 2, when = "$p" },
    { name = "q", kind = "average_pool", kernel = 4, when = "$q" },
]
[[layer]]
block = "b"
p = 1
q = 0
[[layer]]
block = "b"
p = 0
q = 0
[[layer]]
block = "b"
p = 0
q = 1
when = 0
[[layer]]
kind = "dense"
out_features = 2
[[layer]]
kind = "softmax_cross_entropy"
"#;
    let model = parsed(text);
    let names: Vec<&str> = model.layers().iter().map(|node| node.name.as_str()).collect();
    // The second use is empty and passes its input, the third is switched off.
    assert_eq!(names, ["input", "b1.p", "dense1", "softmax_cross_entropy1"]);
    assert_eq!(named(&model, "dense1").1.input_shapes[0].to_string(), "1×2×2");
}

#[test]
fn errors_have_a_place_a_value_and_a_cure() {
    // Settings, and what the error says.
    let settings = [
        ("wid", "", "model \"m:wid\"", "the model has no variant \"wid\": did you mean wide"),
        ("sid=3", "", "model \"m:sid=3\"", "the model has no size \"sid\": did you mean side"),
        ("side=x", "", "model \"m:side=x\"", "side must be a whole number from 0 to 4294967295, not \"x\""),
        ("side=-1", "", "model \"m:side=-1\"", "not \"-1\""),
        (",", "", "model \"m:,\"", "no variant \"\""),
        ("side=0", "m.toml:4", "input = ", "every size must be at least 1"),
    ];
    for (settings, place, value, message) in settings {
        let error = model_file::parse("m.toml", TEXT, settings).err().unwrap_or_else(|| panic!("accepted {settings}"));
        assert!(
            error.place.to_string() == place && error.value.starts_with(value) && error.message.contains(message),
            "{error}"
        );
    }
    // A line of the text, its replacement, and what the error says.
    let edits = [
        ("size = { side", "size = { sides", 5, "nothing uses this size: write \"$sides\""),
        ("size = {", "sizes = {", 5, "a model has no key sizes: did you mean size?"),
        ("size = { side = 8", "size = { side = -8", 5, "side must be a whole number from 0"),
        ("size = { side = 8, ", "size = { ", 7, "variant \"odd\" has no key side"),
        ("size = { side = 8, wide = 0, features = 3 }", "size = 3", 5, "size must be a table"),
        ("variant.wide = { wide = 1", "variant.wide = { wide = \"a\"", 6, "wide must be a whole number"),
        ("variant.wide = { wide = 1", "variant.wide = { wid = 1", 6, "did you mean wide"),
        ("variant.odd = { side = 7 }", "variant.odd = 7", 7, "odd must be a table"),
        ("when = \"$wide\"", "when = \"$wide*x\"", 9, "when must be a whole number, a size such as"),
        ("kind = \"relu\" }", "kind = \"relu\", inputs = \"widen\" }", 10, "\"widen\" is switched off by its when"),
        (
            "out_features = \"$features\"",
            "out_features = \"$featuers\"",
            11,
            "there is no size $featuers here: known are $features",
        ),
    ];
    for (old, new, line, message) in edits {
        assert!(TEXT.contains(old), "{old}");
        let error =
            parse_model("m.toml", &TEXT.replacen(old, new, 1)).err().unwrap_or_else(|| panic!("accepted {new}"));
        assert!(error.place.to_string() == format!("m.toml:{line}") && error.message.contains(message), "{error}");
    }
}

#[test]
fn names_and_paths_may_carry_settings() {
    assert_eq!(load_model("resnet-50:image=64,classes=10").expect("valid").classes(), 10);
    let folder = std::env::temp_dir().join(format!("lockstep-sizes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("my.net.toml");
    std::fs::write(&path, TEXT).expect("a file");
    let path = path.to_str().expect("text");
    for (name, wanted) in [(path.to_owned(), "m"), (format!("{path}:wide,side=4"), "m:wide,side=4")] {
        assert_eq!(load_model(&name).expect("valid").name(), wanted);
    }
    let error = load_model(&format!("{path}:wid")).expect_err("no such variant");
    assert!(error.to_string().contains("did you mean wide"), "{error}");
    std::fs::remove_dir_all(&folder).expect("removed");
    let error = load_model("alexnt:ungrouped").expect_err("no such model");
    assert!(error.to_string().contains("did you mean alexnet"), "{error}");
}
