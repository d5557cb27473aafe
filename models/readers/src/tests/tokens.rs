//! Tests model files of sequences of tokens.

use super::*;
use lockstep_models::profile::{key_of, read_key};

/// Embedding, positions, attention of four heads of which pairs share keys, scores.
const TEXT: &str = r#"
name = "t"
input = { positions = "$positions", tokens = 70000 }
[size]
positions = 6
entries = 70016
[[layer]]
name = "embedding"
kind = "embedding"
entries = "$entries"
out_features = 8
weight_init = { gaussian = 0.02 }
[[layer]]
name = "positions"
kind = "position_embedding"
[[layer]]
name = "queries"
kind = "linear"
out_features = 8
[[layer]]
name = "keys"
kind = "linear"
out_features = 4
bias = false
inputs = "positions"
[[layer]]
name = "values"
kind = "linear"
out_features = 4
bias = false
inputs = "positions"
[[layer]]
kind = "attention"
heads = 4
key_heads = 2
inputs = ["queries", "keys", "values"]
[[layer]]
kind = "linear"
out_features = "$entries"
bias = false
[[layer]]
kind = "softmax_cross_entropy"
"#;

#[test]
fn a_model_of_tokens_by_hand() {
    let model = parsed(TEXT);
    // 70,016 vectors of 8 and as many rows of scores; 6 positions of 8; 8·8 + 8 and twice 8·4.
    assert_eq!(model.parameter_elements(), 2 * 70_016 * 8 + 6 * 8 + 72 + 2 * 32);
    assert_eq!((model.tokens(), model.positions(), model.classes()), (Some(70_000), Some(6), 70_016));
    assert_eq!((model.sample().dtype, model.input().to_string()), (Dtype::U32, "position 6".to_owned()));
    assert_eq!(model.labels().map(|labels| labels.to_string()), Some("u32 of position 6".to_owned()));
    assert_eq!(named(&model, "embedding").1.parameters[0].init, Init::Gaussian(0.02));
    assert_eq!(
        named(&model, "attention1").1.layer.to_string(),
        "kind = \"attention\", heads = 4, key_heads = 2, causal = true"
    );
    let small = parsed(&TEXT.replace("70000", "65536"));
    assert_eq!(small.sample().dtype, Dtype::U16);
}

/// Measured costs are kept by the text of their layers, from which the layers are read again.
#[test]
fn keys_of_costs_name_layers_of_sequences() {
    let model = parsed(TEXT);
    for (_, node) in model.iter().filter(|(_, node)| !node.layer.is_input()) {
        let key = key_of(&[node]);
        let read = read_key(&key).unwrap_or_else(|| panic!("{key}"));
        assert_eq!((&read[0].layer, &read[0].input_shapes), (&node.layer, &node.input_shapes), "{key}");
    }
    let attention = named(&model, "attention1").1;
    assert_eq!(key_of(&[attention]), "attention 6x8,6x4,6x4>6x8 heads4 key_heads2 causal");
}

/// Settings on which costs depend are read back from keys; where there are none they have their defaults.
#[test]
fn keys_of_costs_name_settings_of_sequences() {
    let text = r#"
name = "settings"
input = { positions = 6, tokens = 9 }
layer = [
    { name = "embedding", kind = "embedding", entries = 9, out_features = 8 },
    { name = "all", kind = "rms_norm" },
    { name = "each", kind = "rms_norm", heads = 4 },
    { name = "queries", kind = "rotary", heads = 4 },
    { name = "keys", kind = "linear", out_features = 8, bias = false, inputs = "all" },
    { name = "values", kind = "linear", out_features = 8, inputs = "all" },
    { name = "window", kind = "attention", heads = 4, window = 3, inputs = ["queries", "keys", "values"] },
    { name = "product", kind = "product", inputs = ["window", "values"] },
    { name = "loss", kind = "linear_cross_entropy", out_features = 9 },
]
"#;
    let model = parsed(text);
    for (_, node) in model.iter().filter(|(_, node)| !node.layer.is_input()) {
        let key = key_of(&[node]);
        let read = read_key(&key).unwrap_or_else(|| panic!("{key}"));
        assert_eq!((&read[0].layer, &read[0].input_shapes), (&node.layer, &node.input_shapes), "{key}");
    }
}

/// A file of layers of sequences as they print themselves describes the same layers.
#[test]
fn spelt_layers_of_sequences_read_back_as_themselves() {
    let text = r#"
name = "spelt"
input = { positions = 6, tokens = 9 }
layer = [
    { name = "embedding", kind = "embedding", entries = 9, out_features = 8 },
    { name = "documents", kind = "documents", separator = 2, inputs = "input" },
    { name = "positions", kind = "position_embedding", inputs = "embedding" },
    { name = "norm", kind = "rms_norm", epsilon = 1e-6, unit_offset = true, heads = 2 },
    { name = "none", kind = "rotary", heads = 4, theta = 500000.0, pairing = "neighbours" },
    { name = "linear", kind = "rotary", heads = 2, fraction = 0.5, scaling = "linear", factor = 2.5 },
    { name = "llama3", kind = "rotary", heads = 2, scaling = "llama3", factor = 8.0, original_max_position_embeddings = 8192 },
    { name = "yarn", kind = "rotary", heads = 2, scaling = "yarn", factor = 4.0, beta_fast = 16.0, original_max_position_embeddings = 64 },
    { name = "attention", kind = "attention", heads = 4, key_heads = 4, window = 3, soft_cap = 30.5, scale = 0.25, inputs = ["yarn", "none", "norm", "documents"] },
    { name = "out", kind = "linear", out_features = 8, bias = false },
    { name = "loss", kind = "linear_cross_entropy", out_features = 9, tie = "embedding", soft_cap = 5.0 },
]
"#;
    let model = parsed(text);
    let spelt = |(_, node): (LayerId, &Node)| {
        let inputs: Vec<String> = node.inputs.iter().map(|id| format!("{:?}", model.node(*id).name)).collect();
        format!("{{ name = {:?}, {}, inputs = [{}] }},\n", node.name, node.layer, inputs.join(", "))
    };
    let layers: String = model.iter().skip(1).map(spelt).collect();
    let again = parsed(&format!("name = \"spelt\"\ninput = {{ positions = 6, tokens = 9 }}\nlayer = [\n{layers}]\n"));
    assert_eq!(again.layers(), model.layers());
}

#[test]
fn bad_inputs_of_tokens_are_refused() {
    let cases = [
        (", tokens = 70000", "", "lacks the key tokens"),
        ("tokens = 70000", "token = 70000", "did you mean tokens?"),
        ("tokens = 70000", "tokens = 1", "tokens must be at least 2"),
        ("positions = 6", "positions = 0", "every size must be at least 1"),
        ("tokens = 70000", "tokens = 70017", "embedding (embedding): has 70016 entries for 70017 tokens"),
        ("out_features = \"$entries\"", "out_features = 69999", "has scores of 69999 of 70000 tokens"),
        ("entries = \"$entries\"\nout_features = 8", "out_features = 8", "lacks the key entries"),
        ("out_features = 8\nweight_init", "weight_init", "lacks the key out_features"),
        ("heads = 4\nkey_heads = 2", "key_heads = 2", "lacks the key heads"),
        ("heads = 4\nkey_heads = 2", "heads = 4\nkey_heads = 3", "has 4 heads of queries and 3 of keys"),
        (
            "inputs = [\"queries\", \"keys\", \"values\"]",
            "inputs = [\"queries\", \"keys\"]",
            "values (linear): nothing uses its output",
        ),
    ];
    for (from, to, wanted) in cases {
        let text = TEXT.replacen(from, to, 1);
        assert_ne!(text, TEXT, "{from}");
        let error = parse_model("m.toml", &text).map(|model| model.parameter_elements()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{from} -> {to}: {error}");
    }
}
