//! Tests that models of tokens train alike on any number of ranks, wherever samples are kept, and learn.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_models::{Bucket, Job};
use lockstep_readers::parse_model;
use proptest::prelude::*;

use crate::commands::{folder, lockstep, number, rows};
use crate::equivalence::{assert_equal_bits, both, buckets, optimizers};

/// A decoder of one block, of 8 positions and 13 tokens.
const MODEL: &str = r#"
name = "decoder"
input = { positions = "$positions", tokens = 13 }
[size]
positions = 8
[[layer]]
name = "embedding"
kind = "embedding"
entries = 13
out_features = 16
weight_init = { gaussian = 0.1 }
[[layer]]
name = "positions"
kind = "position_embedding"
weight_init = { gaussian = 0.1 }
[[layer]]
name = "queries"
kind = "linear"
out_features = 16
[[layer]]
name = "keys"
kind = "linear"
out_features = 16
inputs = "positions"
[[layer]]
name = "values"
kind = "linear"
out_features = 16
inputs = "positions"
[[layer]]
name = "attention"
kind = "attention"
heads = 2
inputs = ["queries", "keys", "values"]
[[layer]]
name = "sum"
kind = "add"
inputs = ["positions", "attention"]
[[layer]]
kind = "layer_norm"
[[layer]]
kind = "linear"
out_features = 13
[[layer]]
kind = "softmax_cross_entropy"
"#;

/// A block of attention with two layers around it, of any sizes.
const RANDOM: &str = r#"
name = "random"
input = { positions = "$positions", tokens = "$tokens" }
layer = [
    { name = "embedding", kind = "embedding", entries = "$tokens", out_features = "$queries" },
    { name = "positions", kind = "position_embedding" },
    { name = "norm", kind = "layer_norm", epsilon = 0.01 },
    { name = "queries", kind = "linear", out_features = "$queries" },
    { name = "keys", kind = "linear", out_features = "$keys", inputs = "norm" },
    { name = "values", kind = "linear", out_features = "$keys", bias = false, inputs = "norm" },
    { name = "attention", kind = "attention", heads = "$heads", key_heads = "$key_heads", inputs = ["queries", "keys", "values"] },
    { name = "sum", kind = "add", inputs = ["positions", "attention"] },
    { kind = "gelu" },
    { kind = "linear", out_features = "$tokens" },
    { kind = "softmax_cross_entropy" },
]
[size]
SIZES"#;

/// The row of a run of this model on 192 synthetic samples.
fn run(name: &str, more: &str) -> serde_json::Value {
    let folder = folder(name);
    std::fs::write(folder.join("decoder.toml"), MODEL).expect("a file");
    let call = format!("exec run --model decoder.toml --data synthetic:192 --batch-per-rank 4 {more}");
    rows(&folder, "exec-run", &call.split_whitespace().collect::<Vec<_>>()).remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Ranks that read tokens train like one, to the bit, also where they share states and parameters.
    #[test]
    fn ranks_that_read_tokens_train_like_one(
        (positions, tokens, groups, each, width) in (1u32..9, 2u32..20, 1u32..3, 1u32..3, 1u32..5),
        workers in 1u32..=5,
        batch_per_rank in 1u32..=3,
        accumulate in 1u32..=2,
        bucket in buckets(),
        strategy in prop::sample::select(vec!["ssgd", "zero-1", "zero-2", "zero-3", "zero-3:no-reshard"]),
        algorithm in prop::sample::select(vec!["ring", "direct", "recursive-halving"]),
        optimizer in optimizers(),
        fuse: bool,
        seed: u64,
    ) {
        let sizes = [("positions", positions), ("tokens", tokens), ("queries", groups * each * width), ("keys", groups * width)];
        let heads = [("heads", groups * each), ("key_heads", groups)];
        let lines: String = sizes.iter().chain(&heads).map(|(name, size)| format!("{name} = {size}\n")).collect();
        let model = parse_model("m.toml", &RANDOM.replace("SIZES", &lines)).unwrap();
        let waits = matches!(strategy, "ssgd" | "zero-1");
        let bucket = if !waits && bucket == Bucket::Tensor { Bucket::Layer } else { bucket };
        let (algorithm, strategy) = (algorithm.parse().unwrap(), strategy.parse().unwrap());
        let job = Job { accumulate, bucket, algorithm, strategy, fuse, ..Job::new(Arc::new(model), workers, batch_per_rank) };
        let (distributed, expected) = both(&job, seed, &optimizer);
        assert_equal_bits(&distributed, &expected, &format!("{job:?}"));
    }
}

/// Ranks that keep parts of the samples in memory and exchange them: the same bits again, and others than those of ranks
/// that have them all.
#[test]
fn ranks_exchange_the_tokens_that_they_keep() {
    let sampling = "--learning-rate 0.05 --ranks 4 --steps 30";
    let parts = ["tokens-parts", "tokens-parts-again"]
        .map(|name| run(name, &format!("{sampling} --sampling partitioned:shuffle-every=4")));
    assert_eq!(parts[0]["weights_sha256"], parts[1]["weights_sha256"]);
    assert_ne!(parts[0]["weights_sha256"], run("tokens-whole", sampling)["weights_sha256"]);
}

/// A token is known with probability 3/4 + 1/52, else drawn: the loss of a token can fall to
/// −(3/4 + 1/52) ln(3/4 + 1/52) − 12 · 1/52 · ln(1/52) = 1.11, and is ln 13 = 2.56 before.
#[test]
fn a_decoder_learns_which_token_follows() {
    let row = run("tokens-learn", "--ranks 2 --optimizer adam --learning-rate 0.01 --epochs 12");
    let known: f64 = 3.0 / 4.0 + 1.0 / 52.0;
    let least = -known * known.ln() - 12.0 / 52.0 * (1.0f64 / 52.0).ln();
    let loss = number(&row, "held_out_loss");
    assert!((least - 0.1..least + 0.3).contains(&loss), "{loss} beside {least}");
    assert!((number(&row, "perplexity") - loss.exp()).abs() < 1e-12 * loss.exp());
    assert!((number(&row, "accuracy") - known).abs() < 0.05, "{row}");
    let (samples, tokens) = (number(&row, "images_per_s"), number(&row, "tokens_per_s"));
    assert!((tokens / samples - 8.0).abs() < 1e-9, "{row}");
}

#[test]
fn predictions_of_tokens_count_them() {
    let folder = folder("tokens-predicted");
    std::fs::write(folder.join("decoder.toml"), MODEL).expect("a file");
    let call = "sim predict --model decoder.toml:positions=32 --cluster workstation --ranks 1,2 --batch-per-rank 4";
    for row in rows(&folder, "sim-predict", &call.split_whitespace().collect::<Vec<_>>()) {
        assert!((number(&row, "tokens_per_s") / number(&row, "images_per_s") - 32.0).abs() < 1e-9, "{row}");
    }
}

/// A decoder of two layers trains on the text of the binary where no data are named: its loss falls below that of the frequencies
/// of single characters, about 3.1, and far below ln 256 = 5.5. Its positions follow from `--seq-length`.
#[test]
fn a_decoder_trains_on_the_text() {
    let folder = folder("tokens-text");
    let call = "exec run --model gpt2-char:layers=2,hidden=32,heads=2 --seq-length 32 --batch-per-rank 16 --ranks 2 --steps 300 \
                --optimizer adamw --learning-rate 0.002";
    let row = rows(&folder, "exec-run", &call.split_whitespace().collect::<Vec<_>>()).remove(0);
    assert_eq!(
        (row["data"].as_str(), row["model"].as_str()),
        (Some("text"), Some("gpt2-char:layers=2,hidden=32,heads=2,positions=32"))
    );
    let loss = number(&row, "held_out_loss");
    assert!((1.5..2.6).contains(&loss), "{row}");
    assert!((number(&row, "tokens_per_s") / number(&row, "images_per_s") - 32.0).abs() < 1e-9, "{row}");
    let refused = lockstep(&folder, &["exec", "run", "--model", "mlp", "--seq-length", "32"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(errors.contains("--seq-length: 32: is of models of tokens, and mlp is none"), "{errors}");
}

/// A model of as many tokens as the tokenizer in the binary has trains on the text in these tokens where no data are named, and what it
/// writes is text. Texts that are packed with another tokenizer are other data, and those of other weights are refused.
#[test]
fn a_decoder_trains_on_tokens_of_a_tokenizer_and_writes_text() {
    let folder = folder("tokens-bpe");
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/data/new-testament-tokenizer.json");
    let shorter = include_str!("../data/new-testament-tokenizer.json").replace(",[\"Ġj\",\"o\"]]", "]");
    std::fs::create_dir(folder.join("weights")).expect("a folder");
    std::fs::write(folder.join("other.json"), shorter).expect("a file");
    std::fs::write(folder.join("one.txt"), "In the beginning was the Word. ".repeat(90)).expect("a file");
    let call = |line: &str| {
        let output = lockstep(&folder, &line.split_whitespace().collect::<Vec<_>>());
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let done = |line: &str| {
        let (is_done, said) = call(line);
        assert!(is_done, "{line}: {said}");
        said
    };
    let refused = |line: &str, wanted: &str| {
        let (is_done, said) = call(line);
        assert!(!is_done && said.contains(wanted), "{line}: {said} lacks {wanted}");
    };
    let run = "exec run --model gpt2-char:vocabulary=1030,layers=1,hidden=16,heads=1 --seq-length 8 --batch-per-rank 4 --steps 2";
    let said = done(&format!("{run} --generate 3 --prompt beginning"));
    assert!(said.contains("text-bpe") && said.contains("writes: \"beginning"), "{said}");
    let said = done(&format!("data pack --text one.txt --tokenizer {own} --out one.pack"));
    assert!(said.contains("each document ends with <|endoftext|>, its token 0"), "{said}");
    assert!(done("data check one.pack").contains("tokenizer with SHA-256"));
    assert!(done("data show one.pack").contains("In the beginning was"));
    let said =
        done(&format!("{run} --data one.pack --generate 3 --checkpoint kept --save-weights weights/model.safetensors"));
    assert!(said.contains("writes: \"\\n"), "{said}");
    let smaller = run.replace("1030", "1023");
    refused(&format!("{smaller} --data one.pack"), "a vocabulary of 1024: the model gpt2-char:vocabulary=1023");
    refused(
        &format!("{run} --data synthetic:64 --generate 3 --prompt a"),
        "the tokens of the data synthetic:64 are no bytes",
    );
    // The same weights beside the tokenizer of their data, and beside another.
    std::fs::copy(own, folder.join("weights/tokenizer.json")).expect("a file");
    done(&format!("{run} --data one.pack --weights weights"));
    refused(&format!("{run} --data text --weights weights/model.safetensors"), "another tokenizer than the data text");
    std::fs::copy(folder.join("other.json"), folder.join("weights/tokenizer.json")).expect("a file");
    refused(
        &format!("{run} --data one.pack --weights weights"),
        "weights/tokenizer.json: the weights have another tokenizer",
    );
    // The same file with other tokens.
    done("data pack --text one.txt --tokenizer other.json --out one.pack");
    let longer = run.replace("--steps 2", "--steps 4");
    refused(&format!("{longer} --data one.pack --resume kept"), "was trained with one.pack (tokenizer");
    refused("data pack --text one.txt --tokenizer . --out two.pack", "name a tokenizer.json");
}

/// The scores after each prefix of a sample are those of its loss: −ln softmax at the labels is what an evaluation finds. Of more
/// tokens than positions the last ones count. What is drawn follows from the seed.
#[test]
fn scores_of_generated_tokens_are_those_of_the_loss() {
    let fused = MODEL.replace(
        "kind = \"linear\"\nout_features = 13\n[[layer]]\nkind = \"softmax_cross_entropy\"",
        "kind = \"linear_cross_entropy\"\nout_features = 13\nbias = true\nsoft_cap = 2.0",
    );
    assert_ne!(fused, MODEL);
    for text in [MODEL.to_owned(), fused] {
        let model = Arc::new(parse_model("m.toml", &text).expect("a model"));
        let program = Job::new(model.clone(), 1, 3).program().expect("a program");
        let mut replica = Replica::new(&program, 5, &Threads::one());
        let (data, _) = Dataset::load("synthetic:6", &model).expect("tokens");
        let wanted = replica.evaluate(&data).expect("an evaluation").mean_loss;
        let (positions, dtype) = (8, model.sample().dtype);
        let (mut loss, mut sample) = (0.0, Vec::new());
        for index in 0..6 {
            let (mut bytes, mut labels) = (vec![0u8; dtype.bytes(positions) as usize], vec![0u32; positions as usize]);
            data.draw(&[index], 0, 0, &mut bytes, &mut labels).expect("a sample");
            sample = vec![u32::from(bytes[0]) | u32::from(bytes[1]) << 8];
            for label in labels {
                let scores = replica.scores_after(&sample).expect("scores");
                let sum: f64 = scores.iter().map(|score| f64::from(*score).exp()).sum();
                loss += sum.ln() - f64::from(scores[label as usize]);
                sample.push(label);
            }
        }
        let mean = loss / (6 * positions) as f64;
        assert!((mean - wanted).abs() < 1e-5, "{mean} is not {wanted}");
        let [longer, own] = [&sample[..], &sample[1..]].map(|tokens| replica.scores_after(tokens).expect("scores"));
        assert_eq!((sample.len(), longer), (9, own));
        let written = replica.generate(&sample, 20, 7).expect("tokens");
        assert_eq!(written, replica.generate(&sample, 20, 7).expect("tokens"));
        assert_ne!(written, replica.generate(&sample, 20, 8).expect("tokens"));
        for (prompt, wanted) in [(&[][..], "empty prompt"), (&[13], "no token of decoder, which has 13")] {
            let error = replica.generate(prompt, 1, 7).expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
