//! Tests names, layouts and bits of weights against files that transformers wrote, plain loops and broken files.

mod broken;

use std::collections::BTreeMap;

use lockstep_models::InitialValues;
use lockstep_topology::ErrorPlace;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::names::architectures;
use super::shard::{bf16, f16};
use super::*;
use crate::tests::configs::file;
use crate::tests::decoders::decoders;
use crate::{decoder, read_config};

/// Names and shapes in the file that `save_pretrained` of transformers 5.24 writes for the small model of each architecture here.
const NAMES: &str = include_str!("tests/names.txt");

/// The small model of an architecture, with one layer and `changes` of its `config.json`.
fn small(architecture: &str, changes: &Value) -> Model {
    let text = if architecture == "gpt2" {
        let mut keys =
            json!({"model_type": "gpt2", "vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 4});
        for (key, value) in changes.as_object().unwrap() {
            keys[key] = value.clone();
        }
        keys.to_string()
    } else {
        let mut all = json!({"num_hidden_layers": 1});
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        file(architecture, &all)
    };
    read_config("tiny/config.json", &text).unwrap_or_else(|error| panic!("{architecture}: {error}"))
}

/// What the model in `NAMES` states beside the sizes.
fn changes(architecture: &str) -> Value {
    match architecture {
        "llama" => json!({"attention_bias": true, "mlp_bias": true}),
        "qwen2" => json!({"tie_word_embeddings": true, "head_dim": "absent"}),
        _ => json!({}),
    }
}

/// A distinct number for each element.
fn ramp(model: &Model) -> Vec<f32> {
    (0..model.parameter_elements()).map(|at| at as f32).collect()
}

fn written(model: &Model, values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    WeightLayout::of(model).unwrap().write(values, &mut bytes).unwrap();
    bytes
}

/// The parameters that a file gives.
fn loaded(model: &Model, bytes: Vec<u8>) -> Result<Vec<f32>, InputError> {
    let (weights, _) = read("w.safetensors", bytes, model)?;
    let mut values = vec![-1.0; model.parameter_elements() as usize];
    weights.put(model, &mut values, &mut [])?;
    Ok(values)
}

/// Shapes and numbers of all tensors of a file in fp32, read without this module.
fn tensors(bytes: &[u8]) -> BTreeMap<String, (Vec<u64>, Vec<f32>)> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let (header, data) = (header.as_object().unwrap(), &bytes[8 + length..]);
    let of = |(name, entry): (&String, &Value)| {
        let numbers =
            |key: &str| entry[key].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect::<Vec<_>>();
        let offsets = numbers("data_offsets");
        let values = data[offsets[0] as usize..offsets[1] as usize].chunks(4);
        let values = values.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        (name.clone(), (numbers("shape"), values))
    };
    header.iter().filter(|(name, _)| *name != "__metadata__").map(of).collect()
}

/// The numbers of a parameter in `ramp`, by row and column.
fn number(model: &Model, name: &str, row: u64, column: u64) -> f32 {
    let of = model.layers().iter().flat_map(|node| &node.parameters).find(|of| of.name == name);
    let of = of.unwrap_or_else(|| panic!("no {name}"));
    let columns = of.elements() / u64::from(of.shape.sizes().next().unwrap());
    (of.range.start + row * columns + column) as f32
}

#[test]
fn names_and_shapes_are_those_of_files_of_transformers() {
    for architecture in architectures() {
        let model = small(architecture, &changes(architecture));
        assert_eq!(model.architecture(), Some(architecture));
        let wanted: Vec<&str> =
            NAMES.lines().filter_map(|line| line.strip_prefix(architecture)?.strip_prefix(' ')).collect();
        let found: Vec<String> = tensors(&written(&model, &ramp(&model)))
            .into_iter()
            .map(|(name, (shape, _))| format!("{name} {}", shard::shown(&shape)))
            .collect();
        assert_eq!(found, wanted, "{architecture}");
    }
    assert_eq!(architectures().count(), 12);
}

/// The tensors of several of our layers, element by element, as each architecture's code takes them apart again.
#[test]
fn parts_of_a_tensor_lie_as_the_architecture_reads_them() {
    let of = |architecture: &str, changes: Value| {
        let model = small(architecture, &changes);
        let tensors = tensors(&written(&model, &ramp(&model)));
        (model, tensors)
    };
    // Inputs are rows; queries, keys and values are thirds of the columns.
    let (model, all) = of("gpt2", json!({}));
    let (fused, bias) = (&all["transformer.h.0.attn.c_attn.weight"].1, &all["transformer.h.0.attn.c_attn.bias"].1);
    let inner = &all["transformer.h.0.mlp.c_fc.weight"].1;
    for (third, part) in ["query", "key", "value"].into_iter().enumerate() {
        for output in 0..16 {
            let at = third * 16 + output;
            assert_eq!(bias[at], number(&model, &format!("layers.0.{part}.bias"), output as u64, 0));
            for input in 0..16 {
                let own = number(&model, &format!("layers.0.{part}.weight"), output as u64, input as u64);
                assert_eq!(fused[input * 48 + at], own, "{part} {output} {input}");
            }
        }
    }
    (0..64)
        .for_each(|output| assert_eq!(inner[3 * 64 + output], number(&model, "layers.0.up.weight", output as u64, 3)));
    // Of each of four heads of eight features the queries, the keys, the values.
    let (model, all) = of("gpt_neox", json!({}));
    let name = "gpt_neox.layers.0.attention.query_key_value";
    let (fused, bias) = (&all[&format!("{name}.weight")].1, &all[&format!("{name}.bias")].1);
    for (third, part) in ["query", "key", "value"].into_iter().enumerate() {
        for (head, feature) in (0..4).flat_map(|head| (0..8).map(move |feature| (head, feature))) {
            let (at, own) = (head * 24 + third * 8 + feature, (head * 8 + feature) as u64);
            assert_eq!(bias[at], number(&model, &format!("layers.0.{part}.bias"), own, 0));
            assert_eq!(fused[at * 32 + 5], number(&model, &format!("layers.0.{part}.weight"), own, 5), "{part} {head}");
        }
    }
    // Sixteen rows of queries, eight of keys, eight of values; gates before the products that they multiply.
    let (model, all) = of("phi3", json!({}));
    let (fused, gated) =
        (&all["model.layers.0.self_attn.qkv_proj.weight"].1, &all["model.layers.0.mlp.gate_up_proj.weight"].1);
    for (first, rows, part) in [(0, 16, "query"), (16, 8, "key"), (24, 8, "value")] {
        (0..rows).for_each(|row| {
            assert_eq!(
                fused[(first + row) * 16 + 2],
                number(&model, &format!("layers.0.{part}.weight"), row as u64, 2)
            );
        });
    }
    let glm = of("glm4", json!({}));
    for (model, gated) in [(&model, gated), (&glm.0, &glm.1["model.layers.0.mlp.gate_up_proj.weight"].1)] {
        for (first, part) in [(0, "gate"), (24, "up")] {
            (0..24).for_each(|row| {
                assert_eq!(
                    gated[(first + row) * 16 + 2],
                    number(model, &format!("layers.0.{part}.weight"), row as u64, 2)
                );
            });
        }
    }
}

proptest! {
    /// What is written is read again to the bit, for any decoder whose layers an architecture has; norms of both kinds among them
    /// are refused, and so are layers that none has.
    #[test]
    fn weights_are_read_to_the_bit(of in decoders(), seed: u64) {
        let model = decoder::build(&of, ("d".to_owned(), String::new()), &ErrorPlace::None).unwrap();
        let Ok(layout) = WeightLayout::of(&model) else {
            let message = WeightLayout::of(&model).unwrap_err().to_string();
            prop_assert!(message.contains("has layers that no decoder of transformers has"), "{}", message);
            return Ok(());
        };
        let bits = |at: u64| (at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let values: Vec<f32> = (0..model.parameter_elements()).map(|at| f32::from_bits(bits(at) as u32 & 0xbfff_ffff)).collect();
        let mut bytes = Vec::new();
        layout.write(&values, &mut bytes).unwrap();
        let back = loaded(&model, bytes).unwrap();
        prop_assert!(values.iter().zip(&back).all(|(own, back)| own.to_bits() == back.to_bits()));
    }

    /// The same for each architecture, of several layers.
    #[test]
    fn files_of_each_architecture_are_read_to_the_bit(layers in 1u32..12, tied: bool, at in 0usize..12) {
        let architecture = architectures().nth(at).unwrap();
        let key = if architecture == "gpt2" { "n_layer" } else { "num_hidden_layers" };
        let model = small(architecture, &json!({key: layers, "tie_word_embeddings": tied}));
        let values = ramp(&model);
        prop_assert_eq!(loaded(&model, written(&model, &values)).unwrap(), values);
    }
}

/// A decoder without a file has the first names that fit; convolutions have none.
#[test]
fn models_without_a_file_have_the_names_of_their_layers() {
    let first = |name: &str| {
        let model = crate::load_model(name).unwrap();
        WeightLayout::of(&model).map(|layout| layout.names.architectures[0])
    };
    let cases = [
        ("gpt2-char", "gpt2"),
        ("gpt3-175b", "gpt2"),
        ("llama-3.2-1b", "llama"),
        ("qwen3-0.6b", "qwen3"),
        ("mistral-7b", "llama"),
    ];
    for (name, architecture) in cases {
        assert_eq!(first(name).unwrap(), architecture, "{name}");
    }
    let message = first("lenet").unwrap_err().to_string();
    assert!(message.contains("lenet") && message.contains("name a decoder such as gpt2 or a config.json"), "{message}");
}

/// All numbers of 16 bits against their definition: (−1)^s · 2^(e − bias) · (1 + fraction), and 2^(1 − bias) · fraction below.
#[test]
fn narrow_numbers_are_widened_exactly() {
    let value = |bits: u16, fraction_bits: u32, bias: i32| {
        let exponent_bits = 15 - fraction_bits;
        let exponent = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1u32 << fraction_bits);
        let magnitude = match exponent {
            0 => f64::powi(2.0, 1 - bias) * fraction,
            all if all == (1 << exponent_bits) - 1 => {
                if fraction == 0.0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            _ => f64::powi(2.0, exponent - bias) * (1.0 + fraction),
        };
        if bits >> 15 == 1 { -magnitude } else { magnitude }
    };
    for bits in 0..=u16::MAX {
        for (found, wanted) in
            [(f16(bits.to_le_bytes()), value(bits, 10, 15)), (bf16(bits.to_le_bytes()), value(bits, 7, 127))]
        {
            let found = f64::from(found);
            assert!(
                found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()),
                "{bits:#x}: {found} {wanted}"
            );
        }
    }
}
