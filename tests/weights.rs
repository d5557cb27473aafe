//! Tests that a file of weights that one run has written is what another begins with, and what is refused.

use std::fs;

use crate::commands::{folder, lockstep};

/// A small decoder of bytes.
const MODEL: &str = "gpt:vocabulary=256,positions=16,hidden=16,layers=2,heads=4";

/// Calls whose flags about weights are refused, and what the message says.
const REFUSED: [(&str, &[&str]); 8] = [
    ("exec run --model mlp --weights w.bin", &["--weights: w.bin:", "name a .safetensors"]),
    ("exec run --model mlp --weights absent.safetensors", &["mlp", "name a decoder such as gpt2"]),
    ("exec run --model gpt2-char --weights absent.safetensors", &["absent.safetensors", "name a file of weights"]),
    ("exec run --model mlp --save-weights w.safetensors", &["mlp", "name a decoder such as gpt2"]),
    ("exec run --model gpt2-char --save-weights w.bin", &["--save-weights: w.bin:", "must end in .safetensors"]),
    (
        "exec run --model gpt2-char --ranks 1,2 --save-weights w.safetensors",
        &["--save-weights: w.safetensors:", "use one configuration and one seed"],
    ),
    (
        "exec run --model gpt2-char --device null --save-weights w.safetensors",
        &["--save-weights: w.safetensors:", "the null device computes nothing"],
    ),
    (
        "exec run --model gpt2-char --weights empty",
        &["--weights: empty:", "has neither model.safetensors nor model.safetensors.index.json"],
    ),
];

#[test]
fn weights_that_do_not_fit_are_refused() {
    let folder = folder("weights-refused");
    fs::create_dir(folder.join("empty")).expect("a folder");
    for (words, wanted) in REFUSED {
        let output = lockstep(&folder, &words.split_whitespace().collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(wanted.iter().all(|part| said.contains(part)), "{words}: {said}");
    }
    assert!(!folder.join("w.safetensors").exists());
}

/// What two ranks have trained and written, another strategy begins with: without a rate it ends with the same bits, and writes the
/// same file. A model of other sizes refuses the file, and a cut file is named.
#[test]
fn a_run_begins_with_what_another_has_written() {
    let folder = folder("weights-written");
    let run = |model: &str, more: &str| {
        let words = format!(
            "exec run --model {model} --data synthetic:64 --batch-per-rank 2 --steps 3 --momentum 0 --format json {more}"
        );
        let output = lockstep(&folder, &words.split_whitespace().collect::<Vec<_>>());
        let rows: Option<serde_json::Value> = serde_json::from_slice(&output.stdout).ok();
        let digest = rows.and_then(|rows| rows["rows"][0]["weights_sha256"].as_str().map(str::to_owned));
        (digest, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (trained, said) = run(MODEL, "--ranks 2 --strategy zero-3 --learning-rate 0.1 --save-weights one.safetensors");
    assert!(trained.is_some(), "{said}");
    let (kept, said) = run(
        MODEL,
        "--mesh tensor=2 --strategy megatron --learning-rate 0 --weights one.safetensors --save-weights two.safetensors",
    );
    assert_eq!(kept, trained, "{said}");
    assert!(said.contains("weights of one.safetensors: 28 tensors"), "{said}");
    let [one, two] = ["one.safetensors", "two.safetensors"].map(|file| fs::read(folder.join(file)).expect("a file"));
    assert!(one == two && !one.is_empty());
    let (none, said) = run(&MODEL.replace("heads=4", "heads=4,feed_forward=24"), "--weights one.safetensors");
    let wanted = "one.safetensors: tensor \"transformer.h.0.mlp.c_fc.weight\": has the shape 16×64, and layers.0.up.weight of \
                  the model 16×24";
    assert!(none.is_none() && said.contains(wanted), "{said}");
    fs::write(folder.join("cut.safetensors"), &one[..one.len() - 100]).expect("a file");
    let (none, said) = run(MODEL, "--weights cut.safetensors");
    assert!(none.is_none() && said.contains("cut.safetensors: is cut: its tensors have"), "{said}");
}
