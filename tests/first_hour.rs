//! Tests the names that engineers type who know PyTorch, Megatron and nccl-tests: each is taken and printed under our own
//! name, or refused with an error that names ours.

use std::path::PathBuf;

use serde_json::Value;

use crate::commands::{folder, lockstep, rows};

/// Calls that are taken, and the column that shows our name.
const TAKEN: &[(&str, &str, &str)] = &[
    ("sim predict --model lenet --cluster dgx-h100 --ranks 8 --strategy fsdp --dtype bfloat16", "strategy", "zero-3"),
    ("sim predict --model LeNet --cluster DGX-H100 --gpus 8 --strategy DDP --dtype BF16", "model", "lenet in bf16"),
    ("sim predict --model resnet50 --cluster dgx_a100 --world-size 8 --strategy ZeRO_3", "strategy", "zero-3"),
    (
        "sim predict --model lenet --cluster dgx-a100 --ranks 4 --strategy zero3 --algorithm nccl",
        "algorithm",
        "library:nccl",
    ),
    ("sim predict --model lenet --cluster mi300x-8 --ranks 8 --algorithm rccl", "algorithm", "library:rccl"),
    ("sim predict --model lenet --cluster mi300x-8 --ranks 8", "algorithm", "library:rccl"),
    ("sim predict --model vgg-16 --cluster dgx-h100:8 --ranks 64", "algorithm", "library:nccl"),
    ("sim predict --model lenet --cluster dgx-h100:8 --ranks 64", "cluster", "dgx-h100:8@infiniband-ndr"),
    (
        "sim predict --model lenet --cluster ethernet-4 --ranks 2 --micro-batch-size 8 --grad-accum 2",
        "global_batch",
        "32",
    ),
    ("sim predict --model lenet --cluster ethernet-4 --ranks 2 --global-batch-size 64", "batch_per_rank", "32"),
    (
        "sim predict --model lenet --cluster ethernet-4 --ranks 2 --global-batch-size 64 --micro-batch-size 8",
        "accumulate",
        "4",
    ),
    (
        "sim predict --model alexnet:ungrouped --cluster dgx-a100 --tp 2 --pp 2 --dp 2 --interleave 2 --micro-batch-size 4 \
         --global-batch-size 32",
        "accumulate",
        "4",
    ),
    ("sim predict --model alexnet:ungrouped --cluster dgx-a100 --tp 2 --pp 2 --dp 2 --accumulate 4", "ranks", "8"),
    (
        "sim predict --model alexnet:ungrouped --cluster dgx-a100 --ranks 8 --tp 2",
        "strategy",
        "megatron over data=4,tensor=2",
    ),
    ("sim predict --model lenet --cluster ethernet-4 --dp 4", "ranks", "4"),
    ("sim collective --collective all_reduce --bytes 1G --ranks 8 --cluster dgx-h100", "bytes", "1073741824"),
    ("sim collective --collective AllGather --bytes 512M --ranks 8 --cluster dgx-h100", "collective", "allgather"),
    ("sim collective --collective reduce_scatter --bytes 100k --ranks 8 --cluster dgx-h100", "bytes", "102400"),
    (
        "sim collective --collective all_to_all --bytes 1g --ranks 8 --cluster dgx-h100 --algorithm pairwise",
        "bytes",
        "1073741824",
    ),
    (
        "exec run --model mlp --data synthetic:64 --lr 0.5 --batch-per-gpu 4 --max-steps 2 --device CPU",
        "learning_rate",
        "0.5",
    ),
    ("exec collective --collective all-gather --ranks 2 --bytes 1K --algorithm Ring", "collective", "allgather"),
];

/// Calls that are refused, and the parts of their errors.
const REFUSED: &[(&str, &[&str])] = &[
    ("sim predict --model lenet --cluster h100", &["h100", "dgx-h100", "dgx-h100:8"]),
    ("sim predict --model lenet --cluster 8xH100", &["dgx-h100"]),
    ("sim predict --model lenet --cluster a100-80gb", &["dgx-a100"]),
    ("sim predict --model lenet --cluster dgx-h100 --ranks 64", &["--ranks: 64:", "write cluster dgx-h100:8"]),
    ("sim collective --cluster dgx-a100 --ranks 128 --bytes 1M", &["--ranks: 128:", "write cluster dgx-a100:16"]),
    ("sim predict --model bert-base --cluster dgx-h100", &["bert-base", ".onnx", "config.json"]),
    ("sim predict --model lenet --strategy deepspeed", &["zero-1", "zero-2", "zero-3"]),
    ("sim predict --model lenet --strategy sharded", &["zero-1", "zero-2", "zero-3"]),
    (
        "sim predict --model lenet --micro-batch-size 6 --global-batch-size 100 --ranks 4",
        &["--global-batch: 100:", "multiple of 24"],
    ),
    (
        "sim predict --model lenet --micro-batch-size 6 --global-batch-size 48 --accumulate 2",
        &["--accumulate: 2:", "follows from"],
    ),
    (
        "sim predict --model lenet --micro-batch-size 6,8 --global-batch-size 48",
        &["--batch-per-rank: 6,8:", "give one"],
    ),
    ("sim predict --model lenet --strategy tp", &["--tp 2", "megatron"]),
    ("sim predict --model lenet --strategy pipeline", &["--pp 2"]),
    ("sim predict --model lenet --strategy ps", &["parameter-server:1"]),
    ("sim predict --model lenet --cluster dgx-h100:8@hdr", &["did you mean", "infiniband-hdr"]),
    ("sim predict --model vgg --cluster dgx-h100", &["did you mean", "vgg-16", "vgg-19"]),
    ("sim predict --model lenet,vgg-16 --cluster dgx-h100", &["name one", "sim sweep"]),
    ("sim predict --model lenet --cluster dgx-h100 --precision fp32,bf16", &["fp32,bf16", "one value", "sim sweep"]),
    ("sim predict --model net.pt --cluster dgx-h100", &["net.pt", ".onnx", "export"]),
    ("sim predict --model lenet --cluster dgx-h100 dgx-a100", &["EXPERIMENT: dgx-a100:", "with commas"]),
    ("sim predict --model lenet --lamb", &["--optimizer adamw"]),
    ("sim predict --model lenet --optimizer lamb", &["adamw"]),
    ("sim predict --model lenet -n 8", &["--ranks"]),
    ("sim collective -b 8 -e 128M -g 8", &["-b:", "--bytes 8..128MiB"]),
    ("sim collective --ranks 8 --bytes 1M --size 1G", &["--bytes"]),
    ("sim collective --ranks 8 --bytes 1M --batch-size 32", &["not an argument of this command", "in others"]),
    ("sim collective --ranks 8 --bytes 1M --cluster dgx-h100,dgx-a100", &["name one", "sim sweep"]),
    ("sim predict listed.toml", &["listed.toml:3", "[sweep]"]),
    ("sim predict --model lenet --cluster dgx-h100 --ranks 1..8", &["1..8:", "with commas"]),
    ("sim predict --model lenet --cluster dgx-h100 --network infiniband-hdr", &["@infiniband-hdr"]),
    ("sim predict --model lenet --json", &["--format json"]),
    ("train --model lenet", &["did you mean exec run"]),
    ("compare", &["experiments/quickstart.toml"]),
    ("sim predict --model lenet --precision amp", &["bf16 or fp16"]),
    ("sim predict --model lenet --algorithm gloo", &["use ring"]),
    ("sim predict --model lenet --batch-size 32", &["--batch-per-rank", "--global-batch"]),
    ("sim predict --model lenet --bs 32", &["--batch-per-rank", "--global-batch"]),
    ("sim predict --model lenet --nodes 8", &["dgx-h100:8"]),
    ("sim predict --model lenet --backend nccl", &["--algorithm library:nccl", "--transport"]),
    ("sim predict --model lenet --bf16", &["--precision bf16"]),
    ("sim predict --model lenet --cp 2", &["not supported yet", "--dp", "--tp", "--pp"]),
    ("sim predict --model lenet --ep 2", &["not supported yet"]),
    ("sim predict --model lenet --seq-length 4096", &["--seq-length", "is of models of tokens", "lenet"]),
    ("sim predict --model lenet --cluster dgx-a100 --ranks 6 --tp 4", &["--ranks: 6:", "multiple of the 4"]),
    ("sim predict --model alexnet:ungrouped --cluster dgx-a100 --ranks 4,8 --tp 2", &["--ranks: 4,8:", "give one"]),
    ("sim predict --model lenet --epochs 3", &["exec run"]),
    ("sim predict --model lenet --lr 0.1", &["--learning-rate", "exec run"]),
    ("exec run --model mlp --transport nccl", &["threads or mpi", "library:nccl"]),
    ("exec run --model mlp --cluster ethernet-4,workstation", &["--cluster", "name one", "sim predict"]),
    ("sim collective --bytes 1GiBB --ranks 2", &["--bytes", "25MiB"]),
    ("sim predict words.toml", &["words.toml:3", "precision"]),
];

#[test]
fn names_of_other_programs_are_taken() {
    let folder = folder("first-hour");
    for (line, column, value) in TAKEN {
        let words: Vec<&str> = line.split(' ').collect();
        let schema = if words[1] == "collective" { "collective".to_owned() } else { words[..2].join("-") };
        let row = rows(&folder, &schema, &words).remove(0);
        let shown = match &row[*column] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert_eq!(shown, *value, "{line}");
    }
}

#[test]
fn errors_name_our_names() {
    let folder = folder("first-hour-errors");
    std::fs::write(folder.join("words.toml"), "name = \"e\"\nmodel = \"lenet\"\ndtype = \"bf16\"\n").expect("a file");
    let listed = "name = \"e\"\nmodel = \"lenet\"\nprecision = [\"fp32\", \"bf16\"]\n";
    std::fs::write(folder.join("listed.toml"), listed).expect("a file");
    let mut faults = Vec::new();
    for (line, words) in REFUSED {
        let output = lockstep(&folder, &line.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        if output.status.code() != Some(2) || words.iter().any(|word| !last.contains(word)) {
            faults.push(format!("{line}: {words:?}: {said}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The strategies of the help are those of the registry.
#[test]
fn help_lists_every_strategy() {
    let output = lockstep(&folder("first-hour-help"), &["sim", "predict", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for form in lockstep_models::Strategy::forms() {
        let name = form.split(':').next().unwrap_or(form);
        assert!(help.contains(&format!(" {name}")), "{form}");
    }
}

/// Several clusters and strategies are rows of one table, in the given order, each cluster compared within itself; one
/// that is too small is a note.
#[test]
fn lists_of_clusters_and_strategies_give_rows_for_each() {
    let folder: PathBuf = folder("first-hour-lists");
    let file = "name = \"e\"\nmodel = \"lenet\"\ncluster = [\"dgx-h100:8\", \"dgx-a100:16\"]\nranks = 16\n\
                strategy = [\"ddp\", \"zero-3\"]\n";
    std::fs::write(folder.join("e.toml"), file).expect("a file");
    let of = |words: &str| rows(&folder, "sim-predict", &words.split(' ').collect::<Vec<_>>());
    let text = |rows: &[Value]| -> Vec<String> {
        rows.iter().map(|row| format!("{} {}", row["cluster"], row["strategy"]).replace('"', "")).collect()
    };
    let found = of("sim predict e.toml");
    let [h100, a100] = ["dgx-h100:8@infiniband-ndr", "dgx-a100:16@infiniband-hdr"];
    let expected = [(h100, "ssgd"), (h100, "zero-3"), (a100, "ssgd"), (a100, "zero-3")];
    let expected = expected.map(|(cluster, strategy)| format!("{cluster} {strategy}"));
    assert_eq!(text(&found), expected);
    let alone = of("sim predict --model lenet --cluster dgx-a100:16 --ranks 16 --strategy zero-3");
    assert_eq!(found[3]["step_time_s"], alone[0]["step_time_s"]);
    let flags = of("sim predict --model lenet --cluster dgx-h100:8,dgx-a100:16 --ranks 16 --strategy ssgd,zero-3");
    assert_eq!(flags, found);
    let call = [
        "sim",
        "predict",
        "--model",
        "lenet",
        "--cluster",
        "dgx-h100,dgx-a100:16",
        "--ranks",
        "128",
        "--format",
        "json",
    ];
    let output = lockstep(&folder, &call);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(1));
    assert!(json["notes"].to_string().contains("write cluster dgx-h100:16"), "{}", json["notes"]);
}

/// What is taken in another sense than elsewhere, or stands for more than the row says, is in a note.
#[test]
fn notes_say_what_a_row_does_not() {
    let folder: PathBuf = folder("first-hour-notes");
    for (line, words) in [
        ("sim predict --model lenet --cluster dgx-h100 --ranks 8 --bucket 25", &["in bytes", "25MiB"][..]),
        ("sim collective --cluster dgx-h100:2 --ranks 16 --bytes 1M", &["dgx-h100:2@infiniband-ndr"]),
        (
            "sim predict --model resnet-50 --cluster dgx-h100:2 --ranks 16 --batch-per-rank 32,64 --dtype bf16",
            &["row 2", "--profile h100-resnet-50-bf16", "data sheet", "± 4 %"],
        ),
    ] {
        let output = lockstep(&folder, &line.split(' ').chain(["--format", "json"]).collect::<Vec<_>>());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let notes: Vec<&str> = json["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let says = |note: &str| words.iter().all(|word| note.contains(word));
        assert!(notes.iter().any(|note| says(note)), "{line}: {words:?}: {notes:?}");
    }
}
