//! Tests what the keys of a `config.json` mean in each architecture, and what transformers takes for absent ones.

use serde_json::{Map, Value, json};

use super::*;
use crate::config;

/// A small file of an architecture with all keys that it needs, changed by `changes`, an object; `"absent"` removes a key.
pub(crate) fn file(architecture: &str, changes: &Value) -> String {
    let mut map: Map<String, Value> = serde_json::from_value(json!({
        "model_type": architecture, "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6,
        "num_attention_heads": 4, "max_position_embeddings": 16
    }))
    .unwrap();
    let more = match architecture {
        // A quarter of a head must be an even number of features.
        "gpt_neox" => json!({"hidden_size": 32}),
        "gemma" => json!({"num_key_value_heads": 2, "head_dim": 4}),
        "gemma2" | "gemma3_text" => json!({
            "num_key_value_heads": 2, "head_dim": 4, "sliding_window": 4, "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": null, "final_logit_softcapping": null
        }),
        "mistral" => json!({"num_key_value_heads": 2, "sliding_window": 4, "rms_norm_eps": 1e-5}),
        _ => json!({"num_key_value_heads": 2, "head_dim": 4, "rms_norm_eps": 1e-5}),
    };
    for (key, value) in more.as_object().unwrap().iter().chain(changes.as_object().unwrap()) {
        match value.as_str() {
            Some("absent") => map.remove(key),
            _ => map.insert(key.clone(), value.clone()),
        };
    }
    serde_json::to_string_pretty(&Value::Object(map)).unwrap()
}

/// The layers of such a file, with settings behind its name.
fn layers(architecture: &str, changes: &Value, settings: &str) -> Vec<Node> {
    let model = config::parse("tiny/config.json", &file(architecture, changes), settings);
    model.unwrap_or_else(|error| panic!("{architecture} {changes}: {error}")).layers().to_vec()
}

/// Files that say one thing in two ways, or leave out what transformers takes for an absent key.
#[test]
fn files_that_say_the_same_have_the_same_layers() {
    let nested = json!({"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 700.0}
    }});
    let flat = json!({
        "rope_theta": 5000.0, "rope_local_base_freq": 700.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}
    });
    let (full, window) = ("full_attention", "sliding_attention");
    let cases = [
        ("gemma", json!({"use_bidirectional_attention": false}), json!({})),
        ("gemma2", json!({"use_bidirectional_attention": null}), json!({})),
        ("gemma3_text", json!({"use_bidirectional_attention": false}), json!({})),
        ("glm4", json!({"attention_bias": true}), json!({})),
        ("glm4", json!({"partial_rotary_factor": 0.5}), json!({})),
        ("phi3", json!({"attention_bias": false}), json!({})),
        ("gemma", json!({"hidden_act": "gelu"}), json!({})),
        ("gemma", json!({"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}), json!({})),
        ("gemma", json!({"hidden_act": "silu"}), json!({"hidden_activation": "silu"})),
        ("gemma2", json!({"hidden_act": "silu"}), json!({})),
        ("gemma2", json!({"sliding_window": null}), json!({"sliding_window": 16})),
        ("gemma2", json!({"layer_types": [window, full, window, full, window, full]}), json!({})),
        ("gemma3_text", nested, flat),
        ("gemma3_text", json!({"rope_theta": 1e6, "rope_local_base_freq": 1e4}), json!({})),
        ("gemma3_text", json!({"_sliding_window_pattern": 3}), json!({"sliding_window_pattern": 3})),
        ("gpt_neox", json!({"rotary_emb_base": 10000, "rotary_pct": 0.25}), json!({})),
        ("gpt_neox", json!({"rope_theta": 5000.0}), json!({"rotary_emb_base": 5000})),
        (
            "gpt_neox",
            json!({"rope_parameters": {"rope_theta": 5000.0, "partial_rotary_factor": 0.5, "rope_type": "default"}}),
            json!({"rotary_emb_base": 5000, "rotary_pct": 0.5}),
        ),
        (
            "phi3",
            json!({"rope_parameters": {"rope_theta": 5000.0, "partial_rotary_factor": 0.5}}),
            json!({"rope_theta": 5000.0, "partial_rotary_factor": 0.5}),
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_theta": 5000.0, "partial_rotary_factor": 1.0}}),
            json!({"rope_theta": 5000.0}),
        ),
        ("qwen2", json!({"sliding_window": 4, "use_sliding_window": false}), json!({})),
        (
            "qwen2",
            json!({"sliding_window": 4, "use_sliding_window": true, "max_window_layers": 0}),
            json!({"sliding_window": 4, "use_sliding_window": true, "layer_types": vec![window; 6]}),
        ),
        // `null` states what the other keys give.
        ("mistral", json!({"num_key_value_heads": null}), json!({"num_key_value_heads": 4})),
        ("mistral", json!({"sliding_window": null}), json!({"sliding_window": 16})),
    ];
    for (architecture, one, other) in cases {
        assert_eq!(layers(architecture, &one, ""), layers(architecture, &other, ""), "{architecture} {one}");
    }
}

/// Values that differ from what an absent key gives change the layers: nothing is read and dropped.
#[test]
fn values_that_are_read_change_the_layers() {
    let cases = [
        ("glm4", json!({"attention_bias": false})),
        ("gemma", json!({"hidden_act": "relu"})),
        ("gemma2", json!({"hidden_activation": "gelu"})),
        ("gemma3_text", json!({"rope_theta": 5000.0})),
        ("gemma3_text", json!({"rope_parameters": {"full_attention": {"rope_theta": 5000.0}}})),
        ("gemma3_text", json!({"rope_parameters": {"sliding_attention": {"rope_theta": 5000.0}}})),
        ("gemma3_text", json!({"_sliding_window_pattern": 2})),
        ("gpt_neox", json!({"rope_theta": 5000.0})),
        ("qwen3", json!({"sliding_window": 4, "use_sliding_window": true, "max_window_layers": 0})),
    ];
    for (architecture, changes) in cases {
        assert_ne!(
            layers(architecture, &changes, ""),
            layers(architecture, &json!({}), ""),
            "{architecture} {changes}"
        );
    }
}

/// The embedding's factor of Gemma is the root of the features that the model has, also of those set behind its name.
#[test]
fn the_factor_of_gemmas_embedding_follows_its_features() {
    let wider = layers("gemma", &json!({"hidden_size": 64}), "");
    assert_eq!(layers("gemma", &json!({}), "hidden=64"), wider);
    let factor = wider.iter().find(|node| node.name == "embedding_factor").map(|node| &node.layer);
    assert!(matches!(factor, Some(Layer::Affine(affine)) if affine.factor == 8.0), "{factor:?}");
}

#[test]
fn files_that_do_not_say_enough_or_too_much_are_refused() {
    let absent = |key: &str| json!({key: "absent"});
    let lacks =
        |key: &str, otherwise: &str| format!("lacks the key {key}, for which transformers takes {otherwise} then");
    let mut cases = Vec::new();
    for (architecture, key, otherwise) in [
        ("llama", "rms_norm_eps", "1e-6"),
        ("mistral", "rms_norm_eps", "1e-6"),
        ("qwen2", "rms_norm_eps", "1e-6"),
        ("qwen3", "rms_norm_eps", "1e-6"),
        ("glm4", "rms_norm_eps", "1.5625e-7"),
        ("mistral", "num_key_value_heads", "8"),
        ("qwen2", "num_key_value_heads", "32"),
        ("qwen3", "num_key_value_heads", "32"),
        ("gemma", "num_key_value_heads", "16"),
        ("gemma2", "num_key_value_heads", "4"),
        ("gemma3_text", "num_key_value_heads", "4"),
        ("glm4", "num_key_value_heads", "2"),
        ("mistral", "sliding_window", "4096"),
        ("gemma2", "sliding_window", "4096"),
        ("gemma3_text", "sliding_window", "4096"),
        ("gemma2", "query_pre_attn_scalar", "256"),
        ("gemma3_text", "query_pre_attn_scalar", "256"),
        ("gemma2", "attn_logit_softcapping", "50"),
        ("gemma2", "final_logit_softcapping", "30"),
    ] {
        cases.push((architecture, absent(key), lacks(key, otherwise)));
    }
    let rope = |inner: Value| json!({"rope_parameters": inner});
    for (architecture, changes, wanted) in [
        ("gemma", json!({"use_bidirectional_attention": true}), "is read as false alone"),
        ("gemma2", json!({"use_bidirectional_attention": true}), "is read as false alone"),
        ("gemma3_text", json!({"use_bidirectional_attention": true}), "is read as false alone"),
        ("phi3", json!({"attention_bias": true}), "attention_bias: true: is read as false alone"),
        (
            "qwen2",
            json!({"use_sliding_window": true}),
            "lacks the key sliding_window, for which transformers takes 4096",
        ),
        ("qwen2", json!({"use_sliding_window": 1}), "use_sliding_window: 1: must be true or false"),
        ("llama", json!({"rms_norm_eps": null}), "rms_norm_eps: null: must be a number above 0"),
        ("gemma2", json!({"query_pre_attn_scalar": null}), "query_pre_attn_scalar: null: must be a number above 0"),
        ("gemma3_text", json!({"sliding_window": null}), "sliding_window: null: must be a size"),
        ("gemma2", json!({"layer_types": ["full_attention"]}), "one for each of 6 layers, and lists 1"),
        ("gemma", json!({"hidden_act": "silu", "hidden_activation": "relu"}), "another function than hidden_act"),
        ("gpt_neox", json!({"num_key_value_heads": 2}), "num_key_value_heads: 2: gpt_neox has no such key"),
        ("gpt_neox", json!({"head_dim": 2}), "head_dim: 2: gpt_neox has no such key"),
        ("gpt_neox", json!({"rms_norm_eps": 1e-5}), "gpt_neox has no such key"),
        ("mistral", json!({"layer_types": ["full_attention"]}), "mistral has no such key"),
        (
            "llama",
            json!({"rope_scaling": {"type": "default"}, "rope_parameters": {}}),
            "rope_parameters, which replaces it",
        ),
        (
            "gemma3_text",
            json!({"rope_scaling": {"type": "default"}, "rope_parameters": {}}),
            "rope_parameters, which replaces it",
        ),
        ("llama", rope(json!({"partial_rotary_factor": 0.5})), "this architecture turns whole heads"),
        ("llama", rope(json!({"full_attention": {}})), "a scaling of rotary positions has no such key"),
        ("gemma3_text", rope(json!({"rope_theta": 5000.0})), "full_attention and sliding_attention has no such key"),
        ("gemma3_text", rope(json!({"sliding_attention": {"type": "linear", "factor": 2.0}})), "which are not known"),
        ("gemma3_text", rope(json!({"full_attention": {"partial_rotary_factor": 0.5}})), "which are not known"),
    ] {
        cases.push((architecture, changes, wanted.to_owned()));
    }
    for (architecture, changes, wanted) in cases {
        let read = config::parse("tiny/config.json", &file(architecture, &changes), "");
        let error = read.map(|model| model.parameter_elements()).unwrap_err().to_string();
        assert!(error.contains("tiny/config.json:") && error.contains(&wanted), "{architecture} {changes}: {error}");
    }
}
