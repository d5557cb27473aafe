//! Tests `lockstep memory`: published runs beside the account, the questions of docs/memory.md, answers in all forms, refusals.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::commands::{folder, lockstep, number, rows, stdout};

/// Published runs in `experiments/memory`, with the mean and the worst error of what is allocated, of what is reserved, and the runs
/// that are called wrongly at most.
const RUNS: [(&str, f64, f64, f64); 2] = [("simumax_b200", 0.5, 1.0, 3.0), ("litgpt_a100", 2.5, 5.0, 0.0)];

fn runs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("experiments/memory/{name}.csv"))
}

#[test]
fn published_runs_are_met() {
    let folder = folder("memory-runs");
    for (name, mean, worst, reserved) in RUNS {
        let file = runs(name).display().to_string();
        let rows = rows(&folder, "memory-beside", &["memory", "--beside", &file]);
        assert!(rows.len() >= 19, "{name}");
        let errors =
            |column: &str| -> Vec<f64> { rows.iter().filter_map(|row| row[column].as_f64()).map(f64::abs).collect() };
        let allocated = errors("allocated_error_pct");
        let of = allocated.iter().sum::<f64>() / allocated.len() as f64;
        assert!(of <= mean, "{name}: mean {of}");
        assert!(allocated.iter().all(|error| *error <= worst), "{name}: {allocated:?}");
        assert!(errors("reserved_error_pct").iter().all(|error| *error <= reserved), "{name}");
        for row in rows.iter().filter(|row| row["ran"].is_boolean()) {
            assert_eq!(row["ran"], row["fits"], "{name}: {row}");
        }
    }
}

/// The commands of the page below a heading, each with the lines of output that it shows.
fn shown(page: &str, heading: &str) -> Vec<(String, Vec<String>)> {
    let section = page.split(heading).nth(1).expect(heading).split("\n## ").next().unwrap_or_default();
    let blocks = section.split("\n```").skip(1).step_by(2);
    let of = |block: &str| {
        let block = block.replace("\\\n", " ");
        let mut lines = block.lines().filter(|line| !line.is_empty());
        let command = lines.find(|line| line.starts_with("lockstep memory"))?.to_owned();
        Some((command, lines.map(str::to_owned).collect()))
    };
    blocks.filter_map(of).collect()
}

#[test]
fn questions_of_the_page_are_answered_as_it_says() {
    let folder = folder("memory-page");
    let page = include_str!("../docs/memory.md");
    let all = shown(page, "\n## Will it fit?");
    assert!(all.len() >= 10, "{} questions", all.len());
    // The picture has a test of its own.
    for (command, lines) in all.into_iter().filter(|(command, _)| !command.contains("--plot")) {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let said = stdout(&folder, &words);
        assert!(!lines.is_empty(), "{command} shows no answer");
        for line in lines {
            assert!(
                said.lines().any(|one| one.trim_end() == line.trim_end()),
                "{command}\nshows: {line}\nsays:\n{said}"
            );
        }
    }
}

#[test]
fn picture_of_the_page_is_current() {
    let folder = folder("memory-picture");
    let page = include_str!("../docs/memory.md");
    let command =
        shown(page, "\n## Will it fit?").into_iter().map(|(command, _)| command).find(|of| of.contains("--plot"));
    let command = command.expect("a picture").replace("docs/", "");
    stdout(&folder, &command.split_whitespace().skip(1).collect::<Vec<_>>());
    let drawn = fs::read_to_string(folder.join("fit.svg")).expect("a picture");
    let kept = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fit.svg")).unwrap_or_default();
    assert!(drawn == kept, "draw it again: {command}");
}

#[test]
fn parts_add_up_and_forms_agree() {
    let folder = folder("memory-forms");
    let words = "memory --model llama-3-70b --gpus 64xh100-80 --stack megatron --tp 8 --pp 4 --sequence-parallel";
    let words: Vec<&str> = words.split(' ').collect();
    let rows = rows(&folder, "memory", &words);
    assert_eq!(rows.len(), 4, "a row for each stage");
    for row in &rows {
        let parts = row.as_object().unwrap().iter().filter(|(name, _)| name.ends_with("_gib"));
        let not = ["allocated_gib", "reserved_gib", "context_gib", "usable_gib", "margin_gib"];
        let sum: f64 =
            parts.filter(|(name, _)| !not.contains(&name.as_str())).map(|(_, of)| of.as_f64().unwrap()).sum();
        assert!((sum - number(row, "allocated_gib")).abs() < 1e-6, "{row}");
        let free = number(row, "usable_gib") - number(row, "reserved_gib") - number(row, "context_gib");
        assert!((free - number(row, "margin_gib")).abs() < 1e-9, "{row}");
        assert_eq!(row["fits"], Value::Bool(free >= 0.0));
        assert_eq!(number(row, "ranks"), 16.0);
    }
    assert!(number(&rows[0], "in_flight") > number(&rows[3], "in_flight"));
    let advice = "memory --model llama-3-8b --gpus 2xa100-80 --strategy fsdp --micro-batch-size 4 --advise";
    let advice = crate::commands::rows(&folder, "memory-advice", &advice.split(' ').collect::<Vec<_>>());
    assert!(advice.len() > 3 && advice.iter().any(|row| row["together_fit"] == true), "{advice:?}");
}

/// A file of another framework stands for our flags, and flags beside it replace it; what is not understood is named.
#[test]
fn files_of_other_frameworks_stand_for_our_flags() {
    let folder = folder("memory-from");
    let text = "base_model: NousResearch/Llama-2-7b-hf\nadapter: qlora\nlora_r: 16\nlora_target_linear: true\nsequence_len: 2048\n\
                micro_batch_size: 2\nbf16: auto\noptimizer: adamw_torch\ngradient_checkpointing: true\nlora_dropout: 0.05\n";
    fs::write(folder.join("qlora.yml"), text).expect("a file");
    let said = |words: &str| stdout(&folder, &words.split(' ').collect::<Vec<_>>());
    let ours = "memory --stack trl --strategy ddp --model llama-2-7b --lora r=16,modules=all --quantize nf4-dq --seq-length 2048 \
                --micro-batch-size 2 --precision bf16 --optimizer adamw --recompute full --gpus 1xl4";
    assert_eq!(said("memory --from qlora.yml --gpus 1xl4"), said(ours));
    let replaced = "memory --from qlora.yml --gpus 1xl4 --micro-batch-size 1 --model llama-2-13b";
    let ours = ours.replace("size 2", "size 1").replace("2-7b", "2-13b");
    assert_eq!(said(replaced), said(&ours));
    fs::write(folder.join("more.yml"), format!("{text}relora_steps: 100\n")).expect("a file");
    let refused = lockstep(&folder, &["memory", "--from", "more.yml", "--gpus", "1xl4"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.starts_with("more.yml: relora_steps 100: may change"), "{error}");
    assert_eq!(said("memory --from more.yml --gpus 1xl4 --ignore"), said("memory --from qlora.yml --gpus 1xl4"));
    // Wherever the flags of all commands stand.
    assert_eq!(said("--columns 400 memory --from=qlora.yml --gpus 1xl4"), said("memory --from qlora.yml --gpus 1xl4"));
    // Megatron-LM's arguments are those of a prediction too; what is written reads back.
    let layout = "--model llama-3-8b --tp 2 --strategy megatron --sequence-parallel --micro-batch-size 1 --global-batch-size 8 --seq-length 2048";
    let flags = said(&format!("memory {layout} --gpus 8xh100-80 --print-flags megatron"));
    let megatron = |command: &[&str]| {
        let words = [command, &["--from-megatron", flags.trim()]].concat();
        stdout(&folder, &words)
    };
    let back = megatron(&["memory", "--model", "llama-3-8b", "--gpus", "8xh100-80"]);
    assert_eq!(back, said(&format!("memory {layout} --gpus 8xh100-80")));
    let predict = "sim predict --model llama-3-8b --cluster dgx-h100 --ranks 8 --format csv";
    let back = megatron(&predict.split(' ').collect::<Vec<_>>());
    let ours = "--tp 2 --strategy sequence-parallel:zero-1 --micro-batch-size 1 --global-batch-size 8 --seq-length 2048 --dtype bf16";
    assert_eq!(back, said(&format!("{predict} {ours} --optimizer adamw")));
}

/// An experiment that names a file of another framework is what its flags are, where it says nothing itself.
#[test]
fn experiments_take_files_of_other_frameworks() {
    let folder = folder("memory-experiments");
    let flags = "--micro-batch-size 2 --global-batch-size 32 --seq-length 512 --tensor-model-parallel-size 2 --bf16 \
                 --pipeline-model-parallel-size 2 --use-distributed-optimizer --lr 1e-4 --hidden-dropout 0 --attention-dropout 0";
    let quoted = |flags: &str| -> String {
        let words: Vec<&str> = flags.split(" --").map(|one| one.trim().trim_start_matches("--")).collect();
        let line = |one: &&str| {
            let (key, value) = one.split_once(' ').unwrap_or((one, "true"));
            format!("\"{}\": \"{}\"", key.replace('-', "_"), value.trim())
        };
        format!("{{{}}}", words.iter().map(line).collect::<Vec<_>>().join(","))
    };
    fs::write(folder.join("args.json"), quoted(flags)).unwrap();
    let start = "name = \"e\"\nmodel = \"llama-3.2-1b\"\ncluster = \"dgx-h100\"\nranks = 8\n";
    let predicted = |name: &str, rest: &str| {
        fs::write(folder.join(name), format!("{start}{rest}")).unwrap();
        rows(&folder, "sim-predict", &["sim", "predict", name])
    };
    let by_file = predicted("by-file.toml", "from = \"args.json\"\n");
    let words =
        ["sim", "predict", "--model", "llama-3.2-1b", "--cluster", "dgx-h100", "--ranks", "8", "--from", "args.json"];
    assert_eq!(by_file, rows(&folder, "sim-predict", &words));
    assert_eq!((by_file[0]["batch_per_rank"].as_u64(), by_file[0]["global_batch"].as_u64()), (Some(2), Some(32)));
    // What the experiment says itself stands.
    let own =
        predicted("own.toml", "batch_per_rank = 4\nfrom = \"args.json\"\nmesh = \"data=8\"\nstrategy = \"zero-3\"\n");
    assert_eq!((own[0]["batch_per_rank"].as_u64(), own[0]["strategy"].as_str()), (Some(4), Some("zero-3 over data=8")));
    // Ranks too: they are not those of the file's axes.
    fs::write(folder.join("ranks.json"), "{\"micro_batch_size\": 2, \"seq_length\": 512, \"bf16\": true}").unwrap();
    let several = predicted("ranks.toml", "from = \"ranks.json\"\n[sweep]\nranks = [1, 2, 4]\n");
    assert_eq!(several[0]["ranks"].as_u64(), Some(8));
    // What of the file is not counted is said by every command.
    for command in ["predict", "sweep"] {
        let said = lockstep(&folder, &["sim", command, "ranks.toml"]);
        let said = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
        assert!(said.contains("ranks.json: not counted: dropout"), "{command}: {said}");
    }
    fs::write(folder.join("wrong.json"), "{\"micro_batch_size\": \"two\", \"bf16\": true}").unwrap();
    fs::write(folder.join("wrong.toml"), format!("{start}from = \"wrong.json\"\n")).unwrap();
    let refused = lockstep(&folder, &["sim", "predict", "wrong.toml"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.starts_with("wrong.json: two: must be a whole number"), "{said}");
    // What is not understood is refused, unless that is asked for.
    fs::write(folder.join("more.json"), quoted(&format!("{flags} --made-up-flag 3"))).unwrap();
    fs::write(folder.join("more.toml"), format!("{start}from = \"more.json\"\n")).unwrap();
    let refused = lockstep(&folder, &["sim", "predict", "more.toml"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(2) && said.contains("made-up-flag") && said.contains("ignore = true"),
        "{said}"
    );
    assert_eq!(predicted("ignored.toml", "from = { file = \"more.json\", ignore = true }\n"), by_file);
}

#[test]
fn bad_input_names_the_flag_and_the_cure() {
    let folder = folder("memory-bad");
    for (words, says) in [
        ("--model llama-3-8b", "--gpus"),
        ("--gpus 8xh100-80", "--model"),
        ("--model llama-3-8b --gpus 8xh100", "did you mean h100-80"),
        ("--model lenet --gpus 8xh100-80", "--model: lenet: has no layers of a decoder"),
        ("--model llama-3-8b --gpus 8xh100-80 --tp 3", "--gpus: 8xh100-80: must be a multiple of tp 3"),
        ("--model llama-3-8b --gpus 9xh100-80 --tp 3", "--tp: 3: does not divide 32 heads"),
        ("--model llama-3-8b --gpus 8xh100-80 --dp 4", "--dp: 4: makes other than 8 GPUs"),
        ("--model llama-3-8b --gpus 8xh100-80 --global-batch-size 9", "--global-batch-size: 9: must be a multiple"),
        ("--model llama-3-8b --gpus 8xh100-80 --strategy zero-4", "--strategy: zero-4: must be ddp"),
        ("--model llama-3-8b --gpus 8xh100-80 --stack nemo", "--stack: nemo: there is no such stack"),
        ("--model llama-3-8b --gpus 8xh100-80 --stack trl --tp 2", "--tp: 2: is not part of the account of trl"),
        (
            "--model llama-3-8b --gpus 1xl4 --quantize nf4 --stack trl",
            "--quantize: nf4: quantised weights do not train",
        ),
        ("--model llama-3-70b --gpus 1xl4 --find micro-batch-size", "--find: micro-batch-size: nothing of it fits"),
        ("--model llama-3-8b --gpus 8xh100-80 --recompute some", "--recompute"),
        ("--beside no.csv", "no.csv"),
        ("--from no.yml --gpus 1xl4", "no.yml: cannot be read"),
        ("--model gpt2 --gpus 1xl4 --ignore --from-megatron bf16", "--from-megatron: bf16: must be a flag"),
        (
            "--model gpt2 --seq-length 1024 --gpus 1xl4 --print-flags torchtitan",
            "--model: gpt2: has no flag of torchtitan",
        ),
        (
            "--model gpt2 --seq-length 1024 --gpus 1xl4 --print-flags megatron --stack trl --strategy ddp --half-gradients",
            "--half-gradients: is not part of the account of trl",
        ),
        (
            "--model llama-3-8b --gpus 8xh100-80 --print-flags torchtitan --strategy megatron --half-gradients",
            "--half-gradients: is not part of the account of torchtitan",
        ),
        (
            "--model llama-3-8b:window=64 --strategy megatron --gpus 8xh100-80 --print-flags megatron",
            "as no arguments of megatron describe it",
        ),
        ("--model gpt2 --gpus 1xl4 --accumulate 2 --global-batch-size 2", "cannot be combined"),
        ("", "--model"),
    ] {
        let words: Vec<&str> = std::iter::once("memory").chain(words.split_whitespace()).collect();
        let output = lockstep(&folder, &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    for (line, says) in [
        ("worst,1GB", "runs.csv:2: worst,1GB: must have the columns"),
        ("worst,1,,yes,--model llama-3-8b --gpus 1xl4", "must be a size such as"),
        ("best,1GB,,yes,--model llama-3-8b --gpus 1xl4", "must be first, last or worst"),
        ("worst,1GB,,maybe,--model llama-3-8b --gpus 1xl4", "must be yes, no or empty"),
        ("worst,1GB,,yes,--model llama-3-8b --gpus 1xl5", "l5"),
    ] {
        fs::write(folder.join("runs.csv"), format!("rank,allocated,reserved,ran,flags\n{line}\n")).expect("a file");
        let output = lockstep(&folder, &["memory", "--beside", "runs.csv"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{line}: {said}");
    }
}
