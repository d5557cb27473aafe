//! Tests files that lack tensors, have others, or are cut, and those that name things in another way and are read.

use super::*;

/// Shapes and numbers by name.
type Tensors = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

/// Changes a file.
type Change = fn(&mut Tensors);

/// A file with these entries of its header, and bytes.
fn of_parts(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A file of tensors in a format, each number written by `write`.
fn file_of<const N: usize>(tensors: &Tensors, format: &str, write: fn(f32) -> [u8; N]) -> Vec<u8> {
    let (mut header, mut data) = (json!({}), Vec::new());
    for (name, (shape, values)) in tensors {
        let start = data.len();
        values.iter().for_each(|value| data.extend(write(*value)));
        header[name] = json!({"dtype": format, "shape": shape, "data_offsets": [start, data.len()]});
    }
    of_parts(&header, &data)
}

fn plain(tensors: &Tensors) -> Vec<u8> {
    file_of(tensors, "F32", f32::to_le_bytes)
}

fn gpt2(changes: &Value) -> (Model, Tensors) {
    let model = small("gpt2", changes);
    let tensors = tensors(&written(&model, &ramp(&model)));
    (model, tensors)
}

/// Files of models without scores, of masks and frequencies, of scores that are tied, of more positions, of narrow numbers.
#[test]
fn what_files_name_in_another_way_is_read() {
    let (model, own) = gpt2(&json!({}));
    let mut bare: BTreeMap<_, _> =
        own.iter().map(|(name, of)| (name.trim_start_matches("transformer.").to_owned(), of.clone())).collect();
    bare.insert("h.0.attn.bias".to_owned(), (vec![1, 1, 2, 2], vec![f32::NAN; 4]));
    assert_eq!(loaded(&model, plain(&bare)).unwrap(), ramp(&model));
    let mut tied = own.clone();
    tied.insert("lm_head.weight".to_owned(), own["transformer.wte.weight"].clone());
    assert_eq!(loaded(&model, plain(&tied)).unwrap(), ramp(&model));
    let mut long = own.clone();
    let positions = long.get_mut("transformer.wpe.weight").unwrap();
    positions.0[0] = 18;
    positions.1.extend([9.0; 32]);
    let (_, text) = read("w", plain(&long), &model).unwrap();
    assert_eq!(
        text,
        "weights of w: 16 tensors, 4080 numbers in F32; the first 16 of 18 rows of transformer.wpe.weight"
    );
    assert_eq!(loaded(&model, plain(&long)).unwrap(), ramp(&model));
    // Numbers of eight bits fit into bf16, those to 2048 into fp16.
    let small_numbers = |of: &Tensors, below: f32| {
        let mut of = of.clone();
        of.values_mut().for_each(|(_, values)| values.iter_mut().for_each(|value| *value %= below));
        of
    };
    let upper = |value: f32| ((value.to_bits() >> 16) as u16).to_le_bytes();
    let wanted: Vec<f32> = ramp(&model).iter().map(|value| value % 256.0).collect();
    assert_eq!(loaded(&model, file_of(&small_numbers(&own, 256.0), "BF16", upper)).unwrap(), wanted);
    let neox = small("gpt_neox", &json!({}));
    let mut renamed = tensors(&written(&neox, &ramp(&neox)));
    let head = renamed.remove("embed_out.weight").unwrap();
    renamed.insert("lm_head.weight".to_owned(), head);
    renamed.insert("gpt_neox.layers.0.attention.rotary_emb.inv_freq".to_owned(), (vec![1], vec![1.0]));
    assert_eq!(loaded(&neox, plain(&renamed)).unwrap(), ramp(&neox));
}

/// Weights of another model: which tensor, which shape, and what to do.
#[test]
fn weights_of_another_model_are_refused() {
    let (model, own) = gpt2(&json!({}));
    let changed = |change: Change| {
        let mut of: Tensors = own.clone();
        change(&mut of);
        loaded(&model, plain(&of)).unwrap_err().to_string()
    };
    let nan = |of: &mut Tensors| of.get_mut("transformer.ln_f.bias").unwrap().1[3] = f32::NAN;
    let cases: [(Change, &str); 6] = [
        (
            |of: &mut Tensors| drop(of.remove("transformer.h.0.ln_2.bias")),
            "tensor \"transformer.h.0.ln_2.bias\": is missing, which the model needs for layers.0.feed_forward_norm.beta",
        ),
        (
            |of: &mut Tensors| drop(of.insert("transformer.h.1.ln_1.bias".to_owned(), (vec![1], vec![0.0]))),
            "tensor \"transformer.h.1.ln_1.bias\": is of no layer of the model: give the model",
        ),
        (
            |of: &mut Tensors| of.get_mut("transformer.wte.weight").unwrap().0 = vec![16, 32],
            "tensor \"transformer.wte.weight\": has the shape 16×32, and embedding.weight of the model 32×16: give",
        ),
        (
            |of: &mut Tensors| drop(of.insert("transformer.wpe.weight".to_owned(), (vec![15, 16], vec![0.0; 240]))),
            "tensor \"transformer.wpe.weight\": has the shape 15×16, and positions.weight of the model 16×16",
        ),
        (nan, "tensor \"transformer.ln_f.bias\": has NaN as its number 3: train it again"),
        (
            |of: &mut Tensors| drop(of.insert("lm_head.weight".to_owned(), (vec![32, 16], vec![0.0; 512]))),
            "tensor \"lm_head.weight\": differs from the embedding, and the model's scores have its vectors",
        ),
    ];
    for (change, wanted) in cases {
        let message = changed(change);
        assert!(message.starts_with("w.safetensors: ") && message.contains(wanted), "{message}");
    }
    let llama = small("llama", &json!({}));
    let message = loaded(&llama, plain(&own)).unwrap_err().to_string();
    let wanted = "tensor \"embed_tokens.weight\": is missing, and 11 more, which the model needs for embedding.weight; \
                  \"transformer.h.0.attn.c_attn.bias\" is there instead: give weights of llama, mistral, qwen2, gemma, or the \
                  model of these weights";
    assert!(message.contains(wanted), "{message}");
    let wide = file_of(&own, "F64", |value| f64::from(value).to_le_bytes());
    assert!(loaded(&model, wide).unwrap_err().to_string().contains("is in F64: write it in F32, BF16 or F16"));
}

/// A file that is cut anywhere is refused, and so are headers that do not describe what follows them.
#[test]
fn cut_and_broken_files_are_refused() {
    let (model, own) = gpt2(&json!({}));
    let whole = plain(&own);
    for end in (0..whole.len()).step_by(97).chain([7, 8, whole.len() - 1]) {
        let message = loaded(&model, whole[..end].to_vec()).unwrap_err().to_string();
        assert!(message.contains("copy it again"), "{end}: {message}");
    }
    let tensor = |start: u64, end: u64| json!({"dtype": "F32", "shape": [2], "data_offsets": [start, end]});
    let cases = [
        (json!([]), 0, "its header is no object"),
        (json!({"a": tensor(0, 8)}), 12, "its tensors have 8 bytes, and 12 are there"),
        (json!({"a": tensor(0, 8)}), 4, "is cut: its tensors have 8 bytes, and 4 are there"),
        (
            json!({"a": tensor(4, 12)}),
            12,
            "tensor \"a\": begins at byte 4 of the tensors, and the one before ends at 0",
        ),
        (json!({"a": tensor(0, 8), "b": tensor(4, 12)}), 12, "tensor \"b\": begins at byte 4"),
        (json!({"a": tensor(0, 4)}), 4, "tensor \"a\": is from byte 0 to 4, which is not 2 of F32"),
        (json!({"a": tensor(8, 0)}), 8, "tensor \"a\": is from byte 8 to 0"),
        (json!({"a": {"dtype": "F32", "shape": [u64::MAX, 2], "data_offsets": [0, 8]}}), 8, "tensor \"a\": is from"),
        (json!({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}), 8, "tensor \"a\": needs dtype, shape"),
        (json!({"a": {"dtype": "F32", "shape": [2]}}), 8, "tensor \"a\": needs dtype, shape"),
    ];
    for (header, length, wanted) in cases {
        let message = loaded(&model, of_parts(&header, &vec![0; length])).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
    let long = [u64::MAX.to_le_bytes().to_vec(), vec![b'{'; 20]].concat();
    assert!(loaded(&model, long).unwrap_err().to_string().contains("is no file of safetensors"));
}

/// A folder with a file, one with an index of two, and what is wrong with either.
#[test]
fn folders_and_indices_are_read() {
    let kept = tempfile::tempdir().unwrap();
    let at = |name: &str| kept.path().join(name);
    let shown = kept.path().display().to_string();
    let (model, own) = gpt2(&json!({}));
    let open = |path: &str| {
        let (weights, _) = open(path, &model)?;
        let mut values = vec![-1.0; model.parameter_elements() as usize];
        weights.put(&model, &mut values, &mut []).map(|()| values)
    };
    let refused = |wanted: &str| {
        let message = open(&shown).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    };
    refused("has neither model.safetensors nor model.safetensors.index.json");
    let (mut first, mut second) = (own.clone(), own.clone());
    first.retain(|name, _| name.contains(".h."));
    second.retain(|name, _| !name.contains(".h."));
    let file = |name: &String| if first.contains_key(name) { "one.safetensors" } else { "two.safetensors" };
    let map: BTreeMap<&String, &str> = own.keys().map(|name| (name, file(name))).collect();
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string();
    std::fs::write(at("model.safetensors.index.json"), &index).unwrap();
    refused("one.safetensors");
    std::fs::write(at("one.safetensors"), plain(&first)).unwrap();
    std::fs::write(at("two.safetensors"), plain(&second)).unwrap();
    assert_eq!(open(&shown).unwrap(), ramp(&model));
    assert_eq!(open(&at("model.safetensors.index.json").display().to_string()).unwrap(), ramp(&model));
    std::fs::write(at("two.safetensors"), plain(&own)).unwrap();
    refused("is in ");
    std::fs::write(at("two.safetensors"), plain(&first)).unwrap();
    refused("is to be in two.safetensors, which has no such tensor: copy both again");
    for (broken, wanted) in [
        (index.replace("one.safetensors", "../one.safetensors"), "is no name of a file in this folder"),
        (index.replace("weight_map", "map"), "has no weight_map with a file for each tensor"),
        (index[1..].to_owned(), "is no JSON"),
    ] {
        std::fs::write(at("model.safetensors.index.json"), broken).unwrap();
        refused(wanted);
    }
    std::fs::write(at("model.safetensors"), plain(&own)).unwrap();
    assert_eq!(open(&shown).unwrap(), ramp(&model));
}
