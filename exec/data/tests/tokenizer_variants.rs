//! Tests files of tokenizers that differ in one place: whether their tokens are those of Hugging Face's library, and what is refused.

use lockstep_data::Tokenizer;
use serde_json::{Value, json};

/// The tokenizer that is part of the binary.
const SHIPPED: &str = include_str!("../../../data/new-testament-tokenizer.json");

/// The shipped file with one change.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, String> {
    let mut value: Value = serde_json::from_str(SHIPPED).unwrap();
    change(&mut value);
    Tokenizer::parse("t.json", value.to_string().into_bytes()).map_err(|error| error.to_string())
}

/// The number of a token of the shipped vocabulary.
fn number(name: &str) -> u32 {
    let value: Value = serde_json::from_str(SHIPPED).unwrap();
    value["model"]["vocab"][name].as_u64().unwrap() as u32
}

/// A token that is spelled in other characters than those of bytes is never a piece.
#[test]
fn whole_pieces_are_tokens_of_bytes_alone() {
    let of = |name: &str| {
        let whole = changed(|file| {
            file["model"]["ignore_merges"] = json!(true);
            file["model"]["vocab"][name] = json!(1024);
        });
        whole.unwrap()
    };
    for _ in 0..8 {
        assert_eq!(of(" the").encode("in the"), [number("in"), number("Ġthe")]);
    }
    let without = changed(|file| file["model"]["ignore_merges"] = json!(true)).unwrap();
    assert_eq!(of("日本").encode("日本"), without.encode("日本"));
    assert_eq!(without.encode("日本").len(), 6);
}

/// Of tokenizers whose tokens differ for some text none encodes as another.
#[test]
fn tokenizers_that_encode_otherwise_are_others() {
    let pair = |file: &Value| file["model"]["merges"].as_array().unwrap().last().cloned();
    let alike = changed(|_| ()).unwrap();
    let without_last = |whole: bool| {
        changed(|file| {
            assert!(pair(file).is_some());
            file["model"]["merges"].as_array_mut().unwrap().pop();
            file["model"]["ignore_merges"] = json!(whole);
        })
    };
    let added = |name: &str| {
        let token = json!({ "id": number(name), "content": name, "special": false });
        changed(move |file| file["added_tokens"].as_array_mut().unwrap().push(token))
    };
    let all = [Ok(alike), without_last(false), without_last(true), added("th"), added("in")].map(Result::unwrap);
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            assert_eq!(one.encodes_as(other), at == other_at, "{at} {other_at}");
        }
    }
    // Written otherwise it is the same.
    let value: Value = serde_json::from_str(SHIPPED).unwrap();
    let indented = serde_json::to_string_pretty(&value).unwrap().into_bytes();
    assert!(Tokenizer::parse("t.json", indented).unwrap().encodes_as(&all[0]));
}

/// Added tokens beyond the vocabulary have the next numbers, in their order; those of the vocabulary stand for what they do there.
#[test]
fn added_tokens_have_the_numbers_that_they_are_given() {
    let with = |tokens: Value| {
        changed(|file| file["added_tokens"].as_array_mut().unwrap().extend(tokens.as_array().unwrap().clone()))
    };
    let added = with(json!([{ "id": 1024, "content": "<|x|>" }, { "id": 1025, "content": "<|y|>" }])).unwrap();
    assert_eq!(added.encode("<|y|><|x|>"), [1025, 1024]);
    for wrong in [
        json!([{ "id": 1074, "content": "<|x|>" }]),
        json!([{ "id": 1025, "content": "<|x|>" }, { "id": 1024, "content": "<|y|>" }]),
        json!([{ "id": 5, "content": "<|x|>" }]),
    ] {
        let refused = with(wrong.clone()).unwrap_err();
        assert!(refused.contains("the added token \"<|x|>\"") && refused.contains("1024"), "{wrong}: {refused}");
    }
    let space = with(json!([{ "id": number("Ġthe"), "content": "Ġthe" }])).unwrap();
    assert_eq!(space.decode(&[number("Ġthe")]), b" the");
}

/// Values of another type, and steps that are none, are refused by their key.
#[test]
fn values_of_another_type_are_refused() {
    let bytes = || json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": true });
    for (key, value, says) in [
        ("pre_tokenizer", json!({ "type": "ByteLevel", "add_prefix_space": "false" }), "add_prefix_space"),
        ("pre_tokenizer", json!({ "type": "Sequence", "pretokenizers": ["Digits", bytes()] }), "pretokenizers"),
        ("pre_tokenizer", json!({ "type": "Sequence" }), "pretokenizers"),
        ("normalizer", json!({ "type": "Sequence", "normalizers": ["x", { "type": "NFC" }] }), "normalizers"),
        ("normalizer", json!({ "type": "Lowercase" }), "Lowercase"),
    ] {
        let refused = changed(|file| file[key] = value.clone()).unwrap_err();
        assert!(refused.contains(says), "{value}: {refused}");
    }
    // Sequences of one step, or none, are that step.
    for (key, value) in [
        ("pre_tokenizer", json!({ "type": "Sequence", "pretokenizers": [bytes()] })),
        ("normalizer", json!({ "type": "Sequence", "normalizers": [] })),
        ("normalizer", json!({ "type": "Sequence", "normalizers": [{ "type": "NFC" }] })),
    ] {
        assert!(changed(|file| file[key] = value.clone()).is_ok(), "{value}");
    }
}
