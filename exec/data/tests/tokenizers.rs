//! Tests tokenizers and the sets that are packed with them: against a slow reference, round trips, and bad files.

use std::collections::HashMap;
use std::path::PathBuf;

use lockstep_data::{BYTES, Dataset, Spelling, TokenFile, Tokenizer, pack_texts, read_text_file};
use lockstep_models::SetSizes;
use lockstep_readers::parse_model;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The tokenizer that is part of the binary.
const SHIPPED: &str = include_str!("../../../data/new-testament-tokenizer.json");

fn shipped() -> Tokenizer {
    Tokenizer::parse("shipped", SHIPPED.as_bytes()).unwrap()
}

/// A file of its own name.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lockstep-tokenizers-{name}-{}", std::process::id()))
}

/// The shipped file with one change.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, String> {
    let mut value: Value = serde_json::from_str(SHIPPED).unwrap();
    change(&mut value);
    Tokenizer::parse("t.json", value.to_string().into_bytes()).map_err(|error| error.to_string())
}

/// The names of bytes in vocabularies, from the definition: printable ones are themselves, the others follow from U+0100 on.
fn names() -> Vec<char> {
    let printable =
        |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || (174..=255).contains(&byte);
    let mut next = 255;
    let name = |byte| {
        if printable(byte) {
            byte
        } else {
            next += 1;
            next
        }
    };
    (0..256u32).map(name).map(|code| char::from_u32(code).unwrap()).collect()
}

/// Slow and obvious: the tokens of a text that is one piece of bytes.
fn reference(tokenizer: &Value, piece: &str) -> Vec<u32> {
    let names = names();
    joined(tokenizer, piece.bytes().map(|byte| names[usize::from(byte)].to_string()).collect())
}

/// The first pair of the list that occurs is joined where it first occurs, until none does.
fn joined(tokenizer: &Value, mut parts: Vec<String>) -> Vec<u32> {
    let merges = tokenizer["model"]["merges"].as_array().unwrap();
    let next = |parts: &[String]| {
        merges
            .iter()
            .find_map(|pair| parts.windows(2).position(|two| pair[0] == two[0].as_str() && pair[1] == two[1].as_str()))
    };
    while let Some(at) = next(&parts) {
        let second = parts.remove(at + 1);
        parts[at] += &second;
    }
    parts.iter().map(|part| tokenizer["model"]["vocab"][part].as_u64().unwrap() as u32).collect()
}

/// A tokenizer of all bytes, or of the letters a to d, the mark of a space and all bytes, and of random pairs of what is there before.
fn random_tokenizer(pairs: &[(usize, usize)], by_characters: bool) -> Value {
    let mut tokens: Vec<String> = match by_characters {
        false => names().iter().map(char::to_string).collect(),
        true => "abcd▁".chars().map(String::from).chain((0..256).map(|byte| format!("<0x{byte:02X}>"))).collect(),
    };
    let mut merges = Vec::new();
    // Of few letters and of what is made of them, so that texts of them have the pairs.
    let mut known = ["a", "b", "c", if by_characters { "▁" } else { "d" }].map(str::to_owned).to_vec();
    for (first, second) in pairs {
        let (first, second) = (known[first % known.len()].clone(), known[second % known.len()].clone());
        let joined = format!("{first}{second}");
        if !known.contains(&joined) {
            known.push(joined.clone());
            tokens.push(joined);
        }
        merges.push(json!([first, second]));
    }
    let vocabulary: serde_json::Map<String, Value> = tokens.into_iter().zip((0..).map(Value::from)).collect();
    let step = match by_characters {
        false => json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false }),
        true => json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false }),
    };
    let model = json!({ "type": "BPE", "vocab": vocabulary, "merges": merges, "byte_fallback": by_characters });
    json!({ "pre_tokenizer": step, "model": model })
}

/// The tokens of a text with marks before any are joined: characters that are tokens, else bytes.
fn characters(tokenizer: &Value, text: &str) -> Vec<String> {
    let parts = |one: char| match tokenizer["model"]["vocab"].get(one.to_string()) {
        Some(_) => vec![one.to_string()],
        None => one.to_string().bytes().map(|byte| format!("<0x{byte:02X}>")).collect(),
    };
    text.chars().flat_map(parts).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The tokens of any text decode to it, and each is below the vocabulary.
    #[test]
    fn texts_survive_the_round_trip(text in "\\PC{0,40}|(In the |beginning|\\s|'ll|\u{1F600}|<\\|endoftext\\|>|[0-9a-zß語]){0,30}") {
        let tokenizer = shipped();
        let tokens = tokenizer.encode(&text);
        prop_assert!(tokens.iter().all(|token| *token < tokenizer.vocabulary()));
        prop_assert_eq!(tokenizer.decode(&tokens), text.as_bytes());
    }

    /// Pairs are joined as the slow reference joins them, also where lists have a pair twice and pairs overlap.
    #[test]
    fn tokens_are_those_of_the_slow_reference(
        pairs in prop::collection::vec((0usize..12, 0usize..12), 0..14), text in "[abcd é]{0,24}", by_characters: bool,
    ) {
        let mut pairs = pairs;
        pairs.dedup();
        let value = random_tokenizer(&pairs, by_characters);
        let tokenizer = Tokenizer::parse("t.json", value.to_string().into_bytes()).unwrap();
        // Of a pair that is listed twice the last place counts.
        let mut last = value;
        let merges = last["model"]["merges"].as_array_mut().unwrap();
        *merges = (0..merges.len()).filter(|at| !merges[at + 1..].contains(&merges[*at])).map(|at| merges[at].clone()).collect();
        let wanted = match by_characters {
            false => reference(&last, &text),
            true if text.is_empty() => Vec::new(),
            true => {
                let marked = text.replace(' ', "▁");
                let before = if marked.starts_with('▁') { "" } else { "▁" };
                joined(&last, characters(&last, &format!("{before}{marked}")))
            }
        };
        let tokens = tokenizer.encode(&text);
        prop_assert_eq!(&tokens, &wanted);
        // A space at the beginning is taken for the one that is put there.
        let decoded = if by_characters { text.strip_prefix(' ').unwrap_or(&text) } else { &text };
        prop_assert_eq!(tokenizer.decode(&tokens), decoded.as_bytes());
    }
}

/// The same of words of the shipped text, with the shipped tokenizer.
#[test]
fn words_of_the_text_have_the_tokens_of_the_slow_reference() {
    let (tokenizer, value) = (shipped(), serde_json::from_str::<Value>(SHIPPED).unwrap());
    let text = read_text_file(&PathBuf::from("../../data/new-testament.txt.gz")).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut count = 0;
    for word in text.split(|one: char| !one.is_alphabetic()).filter(|word| !word.is_empty()).step_by(997) {
        for piece in [word.to_owned(), format!(" {word}")] {
            assert_eq!(tokenizer.encode(&piece), reference(&value, &piece), "{piece}");
            count += 1;
        }
    }
    assert!(count > 300, "{count}");
}

/// A long piece of one letter, which a search of all pairs for each would take hours for.
#[test]
fn long_pieces_take_no_square_of_their_length() {
    let text = "a".repeat(1 << 20);
    let tokenizer = shipped();
    assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text.as_bytes());
}

#[test]
fn the_text_in_the_binary_has_the_documented_tokens() {
    let tokenizer = shipped();
    assert_eq!((tokenizer.vocabulary(), tokenizer.end()), (SetSizes::BPE, Some(("<|endoftext|>", 0))));
    let model = parse_model(
        "m.toml",
        "name = \"m\"\ninput = { positions = 64, tokens = 2000 }\nlayer = [{ kind = \"embedding\", entries = 2000, \
         out_features = 2 }, { kind = \"linear\", out_features = 2000 }, { kind = \"softmax_cross_entropy\" }]",
    )
    .unwrap();
    let (train, held_out) = Dataset::load("text-bpe", &model).unwrap();
    let sizes = SetSizes::of("text-bpe", model.input()).unwrap();
    assert_eq!((sizes.train, sizes.held_out), (train.len() as u64, held_out.len() as u64));
    assert_eq!((train.len() + held_out.len()) as u64, (SetSizes::TEXT_BPE.1 - 1) / 64);
    // The same text packed with the same tokenizer is the same set.
    let (path, json) = (file("packed"), file("tokenizer.json"));
    std::fs::write(&json, SHIPPED).unwrap();
    let texts = [PathBuf::from("../../data/new-testament.txt.gz")];
    let header = pack_texts(&texts, Some(&Tokenizer::open(&json).unwrap()), &path, |_| {}).unwrap();
    assert_eq!((header.tokens, header.vocabulary, header.width()), (SetSizes::TEXT_BPE.1, SetSizes::BPE, 2));
    let (packed, _) = Dataset::load(&path.display().to_string(), &model).unwrap();
    assert_eq!(packed.len(), train.len());
    (0..train.len() as u32).for_each(|window| assert_eq!(packed.labels_of(&[window]), train.labels_of(&[window])));
    // What it is packed with can be read back; windows of the text begin as it does.
    let set = TokenFile::open(&path).unwrap();
    assert_eq!(set.tokenizer_json(), SHIPPED.as_bytes());
    for what in ["text-bpe", &path.display().to_string()] {
        let Spelling::Tokenizer(spelling) = Dataset::spelling(what).unwrap() else { panic!("{what}: no tokenizer") };
        assert!(spelling.encodes_as(&tokenizer) && spelling.sha256() == tokenizer.sha256());
        assert!(spelling.decode(&train.labels_of(&[0])).starts_with(b"atthew 1\n\nThe book of the generation"));
    }
    [path, json].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

/// Documents end with the token for it; numbers of four bytes where the vocabulary is large; texts that are no UTF-8 are refused.
#[test]
fn documents_end_with_their_token_and_large_vocabularies_are_wide() {
    let wide = changed(|value| {
        value["added_tokens"] = json!([{ "id": 70_000, "content": "</s>", "special": true }]);
        value["model"]["vocab"]["</s>"] = json!(70_000);
        value["model"]["vocab"].as_object_mut().unwrap().remove("<|endoftext|>");
    })
    .unwrap();
    assert_eq!(wide.end(), Some(("</s>", 70_000)));
    let without = changed(|value| value["added_tokens"] = json!([])).unwrap();
    assert_eq!(without.end(), None);
    let texts = ["one.txt", "empty.txt", "two.txt"].map(file);
    let contents = ["In the beginning", "", "was</s> the Word"];
    texts.iter().zip(contents).for_each(|(path, text)| std::fs::write(path, text).unwrap());
    let out = file("wide.pack");
    for (tokenizer, width) in [(&wide, 4), (&shipped(), 2), (&without, 2)] {
        let header = pack_texts(&texts, Some(tokenizer), &out, |_| {}).unwrap();
        let set = TokenFile::open(&out).unwrap();
        let end: Vec<u32> = tokenizer.end().map(|(_, token)| token).into_iter().collect();
        let parts = [0, 2].map(|number| [tokenizer.encode(contents[number]), end.clone()].concat());
        assert_eq!((header.width(), set.documents()), (width, &[0, parts[0].len() as u64][..]));
        let mut tokens = vec![0; header.tokens as usize];
        set.verify(0..header.tokens).unwrap();
        set.copy(0, &mut tokens);
        assert_eq!(tokens, parts.concat());
        assert!(set.tokenizer().unwrap().unwrap().encodes_as(tokenizer));
    }
    std::fs::write(&texts[2], b"ab\xff").unwrap();
    let error = pack_texts(&texts, Some(&wide), &out, |_| {}).unwrap_err().to_string();
    assert!(error.contains("two.txt") && error.contains("byte 2: is no UTF-8"), "{error}");
    // A set that ends before its tokenizer does, and one whose tokenizer has changed.
    let whole = std::fs::read(&out).unwrap();
    let mut spoiled = whole.clone();
    *spoiled.last_mut().unwrap() ^= 1;
    for (bytes, wanted) in [(&whole[..whole.len() - 1], "it is cut"), (&spoiled, "the index is damaged")] {
        std::fs::write(&out, bytes).unwrap();
        let error = TokenFile::open(&out).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    texts.iter().chain([&out]).for_each(|path| std::fs::remove_file(path).unwrap());
}

/// Two files of a set have one tokenizer; bytes and numbers are spelt otherwise.
#[test]
fn sets_of_two_tokenizers_are_refused() {
    let (text, own, other, bytes) = (file("text.txt"), file("own.pack"), file("other.pack"), file("bytes.pack"));
    std::fs::write(&text, "In the beginning was the Word. ".repeat(20)).unwrap();
    let changed = changed(|value| value["model"]["merges"].as_array_mut().unwrap().truncate(300)).unwrap();
    for (out, tokenizer) in [(&own, Some(&shipped())), (&other, Some(&changed)), (&bytes, None)] {
        pack_texts(std::slice::from_ref(&text), tokenizer, out, |_| {}).unwrap();
    }
    let model = parse_model(
        "m.toml",
        "name = \"m\"\ninput = { positions = 4, tokens = 1024 }\nlayer = [{ kind = \"embedding\", entries = 1024, out_features = 2 }, \
         { kind = \"linear\", out_features = 1024 }, { kind = \"softmax_cross_entropy\" }]",
    )
    .unwrap();
    let error = Dataset::load(&format!("{}+{}", own.display(), other.display()), &model).unwrap_err().to_string();
    assert!(error.contains("other.pack") && error.contains("was not packed with the tokenizer of"), "{error}");
    assert!(matches!(Dataset::spelling(&bytes.display().to_string()), Ok(Spelling::Bytes)) && BYTES == 256);
    assert!(matches!(Dataset::spelling("text"), Ok(Spelling::Bytes)));
    assert!(matches!(Dataset::spelling("synthetic:8"), Ok(Spelling::Numbers)));
    [text, own, other, bytes].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

/// Llama 3 and Qwen cut before digits, compose characters, add a space or take whole pieces as tokens; all of it is read.
#[test]
fn the_kinds_of_published_tokenizers_are_read() {
    let digits = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let steps = |expression: &str| {
        json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false }] })
    };
    // A pair that the expression separates.
    let joins = |value: &mut Value| {
        value["model"]["vocab"]["34"] = json!(1024);
        value["model"]["merges"].as_array_mut().unwrap().push(json!("3 4"));
    };
    let llama = changed(|value| {
        joins(value);
        value["pre_tokenizer"] = steps(digits);
    })
    .unwrap();
    let own = changed(joins).unwrap();
    assert_eq!((own.encode("1234").len(), llama.encode("1234").len()), (3, 4));
    // Composed before: e and an accent are the one character.
    let composing = changed(|value| value["normalizer"] = json!({ "type": "NFC" })).unwrap();
    assert_eq!(composing.decode(&composing.encode("e\u{301}")), "é".as_bytes());
    let spaced = changed(|value| value["pre_tokenizer"]["add_prefix_space"] = json!(true)).unwrap();
    assert_eq!(spaced.encode("the"), shipped().encode(" the"));
    // A token that no pairs make is one all the same.
    let whole = |ignores: bool| {
        changed(|value| {
            value["model"]["vocab"]["qqq"] = json!(1024);
            value["model"]["ignore_merges"] = json!(ignores);
        })
    };
    assert_eq!(whole(true).unwrap().encode("qqq"), [1024]);
    assert_ne!(whole(false).unwrap().encode("qqq"), [1024]);
    // Of two names that begin alike the longer one.
    let names = changed(|value| {
        value["added_tokens"] = json!([{ "id": 1024, "content": "<a" }, { "id": 1025, "content": "|n|", "normalized": true },
                                       { "id": 1026, "content": "<abc" }]);
    })
    .unwrap();
    assert_eq!(names.encode("<abc<a|n|"), [1026, 1024, 1025]);
    assert_eq!(names.decode(&[1025, 5000]), "|n|\u{fffd}".as_bytes());
}

/// Llama 2 and Gemma mark spaces when they normalise a text, Mistral when it cuts it, with a mark before all of it or none.
#[test]
fn the_kinds_with_marks_are_read() {
    let of = |normalizer: Value, step: Value, text: &str| {
        let mut value = random_tokenizer(&[(3, 0), (1, 2)], true);
        value["normalizer"] = normalizer;
        value["pre_tokenizer"] = step;
        value["added_tokens"] = json!([{ "id": 263, "content": "<s>", "special": true },
                                       { "id": 264, "content": "</s>", "special": true, "normalized": true }]);
        let tokenizer = Tokenizer::parse("t.json", value.to_string().into_bytes()).unwrap();
        assert_eq!(tokenizer.end(), Some(("</s>", 264)));
        tokenizer.encode(text)
    };
    // a, b, c, d and the mark are 0 to 4, bytes 5 to 260, ▁a is 261, bc 262.
    let replace = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let prepend = json!({ "type": "Prepend", "prepend": "▁" });
    let llama = json!({ "type": "Sequence", "normalizers": [prepend, replace] });
    assert_eq!(of(llama, Value::Null, "a bc\n<s>d a"), [261, 4, 262, 15, 263, 4, 3, 261]);
    let split =
        json!({ "type": "Split", "pattern": { "String": " " }, "behavior": "MergedWithPrevious", "invert": false });
    assert_eq!(of(replace, split, "a bc</s> a"), [0, 4, 262, 264, 261]);
    let metaspace = |scheme: &str, splits: bool| json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": splits });
    assert_eq!(of(Value::Null, metaspace("first", false), "a<s>a"), [261, 263, 0]);
    assert_eq!(of(Value::Null, metaspace("always", true), "a<s>a  a"), [261, 263, 261, 4, 261]);
    assert_eq!(of(Value::Null, metaspace("never", true), "a a"), [0, 261]);
}

#[test]
fn bad_files_are_refused_with_place_and_cure() {
    let folder = Tokenizer::open(&std::env::temp_dir()).unwrap_err().to_string();
    assert!(folder.contains("name a tokenizer.json"), "{folder}");
    let missing = Tokenizer::open(&file("missing.json")).unwrap_err().to_string();
    assert!(missing.contains("missing.json") && missing.contains("cannot be read"), "{missing}");
    let of = |text: &[u8]| Tokenizer::parse("t.json", text).unwrap_err().to_string();
    let of_change = |change: &dyn Fn(&mut Value)| changed(change).unwrap_err();
    let model = |key: &'static str, value: Value| of_change(&move |all| all["model"][key] = value.clone());
    let removed =
        |key: &'static str| of_change(&move |all| drop(all["model"]["vocab"].as_object_mut().unwrap().remove(key)));
    let many = |number: u64| of_change(&move |all| all["added_tokens"][0] = json!({ "id": number, "content": "<x>" }));
    let numbered = |number: u64| of_change(&move |all| all["model"]["vocab"]["zz"] = json!(number));
    let other = |step: Value| of_change(&move |all| all["pre_tokenizer"] = step.clone());
    let errors: HashMap<String, &str> = [
        (of(b""), "is empty"),
        (of(&SHIPPED.as_bytes()[..9000]), "is cut"),
        (of(b"[1]"), "is no tokenizer of Hugging Face"),
        (of(b"\xff\xfe"), "is no tokenizer of Hugging Face"),
        (of(b"{}"), "missing field `model`"),
        (model("type", json!("Unigram")), "with a model of Unigram"),
        (model("byte_fallback", json!(true)), "has a pre_tokenizer ByteLevel that is not read beside its model"),
        (model("dropout", json!(0.1)), "sets dropout"),
        (model("end_of_word_suffix", json!("</w>")), "sets end_of_word_suffix"),
        (model("odd", json!(1)), "unknown field `odd`"),
        (model("merges", json!([["a", "zzz"]])), "pair 1 of merges"),
        (model("merges", json!(["a b c"])), "pair 1 of merges is not two tokens"),
        (removed("Ġ"), "of the byte 0x20"),
        (many(1 << 33), "is no tokenizer of Hugging Face"),
        (numbered((1 << 32) - 1), "16777215 is the most"),
        (many(7), "has the number of another"),
        (numbered(7), "have the number 7"),
        (of_change(&|all| all["normalizer"] = json!({ "type": "Lowercase" })), "has a normalizer Lowercase"),
        (of_change(&|all| all["pre_tokenizer"] = Value::Null), "has no pre_tokenizer"),
        (of_change(&|all| all["added_tokens"][0]["lstrip"] = json!(true)), "sets lstrip of the token"),
        (other(json!({ "type": "Metaspace" })), "has a pre_tokenizer Metaspace that is not read"),
        (
            other(json!({ "type": "Sequence", "pretokenizers": [{ "type": "Digits" }, { "type": "ByteLevel" }] })),
            "of 2 steps",
        ),
    ]
    .into();
    assert_eq!(errors.len(), 22);
    for (error, wanted) in errors {
        assert!(
            error.starts_with("t.json: ") && error.contains(wanted) && error.contains(": "),
            "{error} lacks {wanted}"
        );
    }
}
