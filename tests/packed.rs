//! Tests training from packed files: arrays give the same bits as the same set in memory, JPEG files the same as one
//! thread decoding them in order, for any ranks, strategies and threads, interrupted or not.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use lockstep_data::Dataset;
use lockstep_data::generate::{Like, generate};
use lockstep_data::{Packing, SetPart, Source, idx, pack};
use lockstep_exec::{RunOptions, run};
use lockstep_models::{Augmentation, Job, Model, Optimizer, Program, Sampling, TransformAt, random_model};
use proptest::prelude::*;

use crate::commands::{folder, lockstep, rows, stdout};

const STEPS: u32 = 6;

pub(crate) fn options(seed: u64, steps: u32) -> RunOptions<'static> {
    let stall_limit = std::time::Duration::from_secs(20);
    let optimizer = Optimizer { learning_rate: 0.002, ..Optimizer::default() };
    RunOptions { steps, warm_up: 0, seed, optimizer, stall_limit, ..RunOptions::default() }
}

/// Random bytes.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// Writes the IDX files of a part: images of the model's shape, labels of its classes.
fn write_idx(folder: &Path, prefix: &str, model: &Model, samples: u32, seed: u64) {
    let image = model.input().image();
    let pixels = bytes(seed, samples as usize * model.input().elements() as usize);
    let images = idx::encode(&[samples, image.channels, image.height, image.width], &pixels);
    // The last class always occurs, so that both readers find the same number of classes.
    let label =
        |sample: u32| if sample == 0 { model.classes() - 1 } else { (sample * 7 + seed as u32) % model.classes() };
    let labels: Vec<u8> = (0..samples).map(|sample| label(sample) as u8).collect();
    let labels = idx::encode(&[samples], &labels);
    fs::write(folder.join(format!("{prefix}-images-idx4-ubyte")), images).unwrap();
    fs::write(folder.join(format!("{prefix}-labels-idx1-ubyte")), labels).unwrap();
}

/// Packs a part of a folder.
fn packed(source: &Path, part: SetPart, out: &Path) {
    let packing = Packing { out: out.to_owned(), short_side: 0, threads: 2, skip_bad: false, shuffle_seed: None };
    pack(&Source::open(source, part).unwrap(), &packing, |_| true).unwrap();
}

/// The names of the set in `folder` as IDX files, and packed.
fn both(folder: &Path, model: &Model, samples: u32, seed: u64) -> [String; 2] {
    write_idx(folder, "train", model, samples, seed);
    write_idx(folder, "t10k", model, 5, seed ^ 1);
    let [train, held_out] = ["train.pack", "held-out.pack"].map(|name| folder.join(name));
    packed(folder, SetPart::Train, &train);
    packed(folder, SetPart::HeldOut, &held_out);
    [folder.display().to_string(), format!("{}+{}", train.display(), held_out.display())]
}

/// A generated set of 60 JPEG files, packed with a short side of 40 pixels.
pub(crate) fn pictures() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let folder = folder("packed-pictures");
        let (source, out) = (folder.join("pictures"), folder.join("pictures.pack"));
        generate((Like::Imagenet, 3), (60, 1), &source, 2, |_| true).unwrap();
        let packing = Packing { out: out.clone(), short_side: 40, threads: 2, skip_bad: false, shuffle_seed: Some(1) };
        pack(&Source::open(&source, SetPart::Train).unwrap(), &packing, |_| true).unwrap();
        out.display().to_string()
    });
    &NAME
}

/// The same number of samples for the same model in every form: JPEG files, arrays of bytes and values in memory.
pub(crate) fn every_form() -> [&'static str; 3] {
    static NAMES: LazyLock<[String; 2]> = LazyLock::new(|| {
        let folder = folder("packed-forms");
        both(&folder, &coloured(), 54, 5)
    });
    let [values, arrays] = &*NAMES;
    [pictures(), arrays, values]
}

/// A small model of coloured images.
pub(crate) fn coloured() -> Arc<Model> {
    let text = include_str!("../models/zoo/mlp.toml").replace("[1, 28, 28]", "[3, 16, 20]");
    Arc::new(lockstep_readers::parse_model("coloured.toml", &text).unwrap())
}

/// A job on a random model, or on LeNet where layers are split.
fn job(strategy: &str, workers: u32, accumulate: u32, seed: u64) -> Job {
    let splits = ["hybrid:b", "megatron"].contains(&strategy);
    let model = if splits { lockstep_readers::load_model("lenet").unwrap() } else { random_model(seed, false) };
    let accumulate = if strategy == "sma" || splits { 1 } else { accumulate };
    let workers = if splits { workers.max(2) } else { workers };
    let (name, sampling) = match strategy {
        "partitioned" => ("ssgd", Sampling::Partitioned { groups: 1, shuffle_every: Some(2) }),
        "partitioned:whole" => ("ssgd", Sampling::Partitioned { groups: workers, shuffle_every: Some(1) }),
        name => (name, Sampling::default()),
    };
    let node_sizes = (name != strategy).then(|| vec![1; workers as usize]);
    let strategy = name.parse().unwrap();
    Job { strategy, accumulate, sampling, node_sizes, ..Job::new(Arc::new(model), workers, 3) }
}

/// The program with shuffles that send each sample from its place in memory, or pack all.
fn shuffling(mut program: Program, in_place: bool) -> Program {
    program.partition.iter_mut().for_each(|partition| partition.packed_below = if in_place { 0 } else { u64::MAX });
    program
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Drawn by the ranks in their loads, or prepared by threads.
    #[test]
    fn packed_arrays_train_as_the_same_set_in_memory(
        strategy in prop::sample::select(vec!["ssgd", "partitioned", "partitioned:whole", "zero-2", "hybrid:b", "megatron", "sma"]),
        (workers, accumulate) in (1u32..=4, 1u32..=2),
        augment in prop::sample::select(vec!["none", "scale,crop=1,flip"]),
        (subset, in_place) in any::<(bool, bool)>(),
        (threads, ahead) in (1u32..4, 0u32..4),
        stop in 1..STEPS,
        seed: u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let job = job(strategy, workers, accumulate, seed);
        let program = shuffling(job.program().unwrap(), in_place);
        let samples = program.global_batch() as u32 * 3 + 1;
        let names = both(folder.path(), &job.model, samples, seed);
        let behind = if subset { format!(":{}+4", samples - 1) } else { String::new() };
        let augment: Augmentation = augment.parse().unwrap();
        let sets = names.map(|name| Dataset::load_augmented(&(name + &behind), &job.model, augment).unwrap());
        let prepared = shuffling(Job { ahead: Some(ahead), ..job }.program().unwrap(), in_place);
        let [values, arrays] = sets.clone().map(|set| Dataset::decoded_by(set, Some(threads)));
        let all = [(&program, &sets[0]), (&program, &sets[1]), (&prepared, &values), (&prepared, &arrays)];
        let runs = all.map(|(program, (train, held_out))| {
            let mut run = run(program, train, &options(seed, STEPS)).unwrap();
            let judged = run.evaluate(held_out).unwrap();
            (run.losses.clone(), run.state_sha256.clone(), (judged.correct, judged.mean_loss.to_bits()))
        });
        prop_assert!(runs.iter().all(|run| *run == runs[0]), "{}: {:?}", strategy, runs);
        // Stopped, then resumed with the other set. The rate is constant, so that the first part does not depend on the
        // length.
        let first = run(&program, &sets[0].0, &options(seed, stop)).unwrap().state();
        let rest = RunOptions { start: Some(&first), ..options(seed, STEPS - stop) };
        prop_assert_eq!(run(&program, &sets[1].0, &rest).unwrap().state_sha256, runs[0].1.clone(), "{}", strategy);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// The samples are also drawn one by one in the calling thread: threads change when a sample is made, and nothing
    /// else.
    #[test]
    fn pictures_are_the_same_for_any_threads_ranks_and_interruption(
        strategy in prop::sample::select(vec!["ssgd", "partitioned", "hybrid:b", "sma:first-come"]),
        workers in 1u32..=3,
        augment in prop::sample::select(vec!["none", "scale,flip", "patch,flip", "patch,scale,crop=2"]),
        (threads, ahead) in (1u32..5, prop::option::of(0u32..4)),
        transform_at in prop::sample::select(vec![TransformAt::Host, TransformAt::Device, TransformAt::WhenLate]),
        in_place: bool,
        stop in 1..STEPS,
        seed: u64,
    ) {
        let partitioned = strategy == "partitioned";
        let sampling = Sampling::Partitioned { groups: 1, shuffle_every: Some(2) };
        let job = Job {
            strategy: if partitioned { "ssgd" } else { strategy }.parse().unwrap(),
            sampling: if partitioned { sampling } else { Sampling::default() },
            node_sizes: partitioned.then(|| vec![1; workers as usize]),
            ahead,
            transform_at,
            ..Job::new(coloured(), if strategy == "hybrid:b" { workers.max(2) } else { workers }, 4)
        };
        let program = shuffling(job.program().unwrap(), in_place);
        let augment: Augmentation = augment.parse().unwrap();
        let load = |threads| {
            Dataset::decoded_by(Dataset::load_augmented(pictures(), &job.model, augment).unwrap(), Some(threads))
        };
        let (data, held_out) = load(threads);
        let whole = run(&program, &data, &options(seed, STEPS)).unwrap();
        let (alone, _) = load(1);
        let optimizer = options(seed, 1).optimizer;
        let expected = crate::reference::train_as_claimed(&program, &alone, STEPS, seed, &optimizer, &whole.claims).unwrap();
        let same = whole.parameters.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
        prop_assert!(same, "{}", strategy);
        if !program.claims() {
            let mut first = run(&program, &alone, &options(seed, stop)).unwrap();
            prop_assert!(first.evaluate(&held_out).unwrap().mean_loss.is_finite());
            let state = first.state();
            let rest = RunOptions { start: Some(&state), ..options(seed, STEPS - stop) };
            prop_assert_eq!(run(&program, &data, &rest).unwrap().state_sha256, whole.state_sha256, "{}", strategy);
        }
    }
}

/// LeNet on IDX files (as for Fashion-MNIST) and on the same set packed by the command line, on ranks that hold parts
/// and on ranks that do not.
#[test]
fn lenet_trains_equally_from_packed_and_idx_files() {
    let folder = folder("packed-lenet");
    stdout(&folder, &["data", "generate", "--shape", "mnist", "--samples", "400", "--out", "in"]);
    stdout(&folder, &["data", "pack", "in", "--out", "train.pack"]);
    stdout(&folder, &["data", "pack", "in", "--part", "held-out", "--out", "test.pack"]);
    for sampling in ["one-shuffle", "partitioned:shuffle-every=2"] {
        let run = |data: &str| {
            let flags = ["--model", "lenet", "--data", data, "--ranks", "2", "--batch-per-rank", "16", "--steps", "5"];
            let row =
                rows(&folder, "exec-run", &[&["exec", "run", "--sampling", sampling], &flags[..]].concat()).remove(0);
            ["weights_sha256", "accuracy", "held_out_loss", "train_loss"].map(|column| row[column].clone())
        };
        assert_eq!(run("in"), run("train.pack+test.pack"), "{sampling}");
    }
}

/// A batch takes whole samples of a file, whichever ranks hold them: each occurs once per epoch.
#[test]
fn each_packed_sample_occurs_once_per_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let model = Arc::new(lockstep_readers::load_model("mlp").unwrap());
    let [_, name] = both(folder.path(), &model, 48, 5);
    let (data, _) = Dataset::load(&name, &model).unwrap();
    let sampler = lockstep_data::Sampler::new(data.len(), 4, 1, &[3], 7).unwrap();
    let mut seen: Vec<Vec<u32>> = Vec::new();
    for (batch, rank) in (0..4).flat_map(|batch| (0..3).map(move |rank| (batch, rank))) {
        let (mut indices, mut images, mut labels) = (Vec::new(), vec![0.0; 4 * 784], vec![0; 4]);
        let place = sampler.micro_batch(batch, rank, 0, &mut indices);
        data.draw(&indices, 7, place, &mut images, &mut labels).unwrap();
        seen.extend(images.chunks(784).map(|image| image.iter().map(|value| value.to_bits()).collect()));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 48);
}

/// A prediction takes the samples' sizes from a packed file and their costs from the profile, or reports what is
/// missing.
#[test]
fn predictions_read_the_sizes_of_packed_samples() {
    let folder = folder("packed-predicted");
    stdout(
        &folder,
        &["data", "generate", "--shape", "imagenet", "--samples", "30", "--classes", "3", "--out", "images"],
    );
    stdout(&folder, &["data", "pack", "images", "--out", "train.pack", "--short-side", "40"]);
    let goldens = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/profile.json");
    let mut profile: serde_json::Value = serde_json::from_str(&fs::read_to_string(goldens).unwrap()).unwrap();
    let ask = |profile: &serde_json::Value, transform_at: &str| {
        fs::write(folder.join("profile.json"), profile.to_string()).unwrap();
        let asked = "sim predict --model resnet-32 --cluster this-machine --ranks 2 --batch-per-rank 4 --data train.pack \
                     --profile profile.json --trace trace.json --format json --transform-at";
        lockstep(&folder, &asked.split_whitespace().chain([transform_at]).collect::<Vec<_>>())
    };
    let refused = |profile: &serde_json::Value, transform_at: &str| {
        let refused = ask(profile, transform_at);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && errors.contains("lockstep calibrate"), "{errors}");
    };
    refused(&profile, "host");
    let figure = |value: f64| serde_json::json!({ "value": value, "low": value, "high": value });
    let entry = serde_json::json!({ "bytes": 1000, "pixels": 1600, "elements": 3072, "seconds": figure(1e-3), "slowdown": 1.0 });
    profile["decode"] = serde_json::json!([entry]);
    let [sequential, random, cached] = [2e9, 5e8, 8e9].map(figure);
    profile["storage"] =
        serde_json::json!({ "sequential": sequential, "random": random, "cached": cached, "page_cache": 0 });
    let takes = |profile: &serde_json::Value, transform_at: &str| {
        let predicted = ask(profile, transform_at);
        assert!(predicted.status.success(), "{}", String::from_utf8_lossy(&predicted.stderr));
        let trace: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("trace.json")).unwrap()).unwrap();
        ["read", "decode", "load"].map(|kind| {
            let of = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == kind);
            let times: Vec<f64> = of.map(|event| event["dur"].as_f64().unwrap()).collect();
            times.iter().sum::<f64>() / times.len() as f64
        })
    };
    let [read, decode, _] = takes(&profile, "host");
    assert!(read > 0.0 && decode > read, "{read} {decode}");
    // A profile of an earlier build does not know what transforming takes.
    refused(&profile, "device");
    profile["decode"][0]["transform"] = figure(2.5e-4);
    let [_, again, _] = takes(&profile, "host");
    let [_, alone, load] = takes(&profile, "device");
    assert!(again == decode && alone < decode, "{decode} {again} {alone}");
    // Four samples of 250 µs, in microseconds; threads that decode use the cores, too.
    assert!((1000.0..1100.0).contains(&load), "{load}");
}

#[test]
fn unusable_packs_are_refused() {
    let folder = folder("packed-refused");
    let refused = |arguments: &[&str], message: &str| {
        let output =
            lockstep(&folder, &[&["exec", "run", "--steps", "9", "--batch-per-rank", "4"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    };
    for (shape, samples) in [("mnist", "40"), ("cifar", "40"), ("imagenet", "30")] {
        stdout(
            &folder,
            &["data", "generate", "--shape", shape, "--samples", samples, "--classes", "3", "--out", shape],
        );
        let out = format!("{shape}.pack");
        let mut pack = vec!["data", "pack", shape, "--out", &out];
        pack.extend(["--short-side", "20"].iter().filter(|_| shape == "imagenet"));
        stdout(&folder, &pack);
    }
    refused(&["--model", "lenet", "--data", "nothing.pack"], "no such folder or file");
    refused(&["--model", "lenet", "--data", "mnist.pack", "--transform-at", "device"], "these data need no decoding");
    refused(&["--model", "lenet", "--transform-at", "gpu"], "write host, device or when-late");
    refused(&["--model", "lenet", "--data", "cifar.pack"], "images of 3×32×32");
    refused(&["--model", "lenet", "--data", "imagenet.pack"], "images of 3×28×28: the model lenet takes 1×28×28");
    refused(&["--model", "lenet", "--data", "mnist.pack+cifar.pack"], "both parts must have one shape");
    refused(&["--model", "resnet-32", "--data", "imagenet.pack", "--augment", "patch"], "too small for patches");
    // Calibration takes images of any size: larger ones than the model's input, and pictures that are smaller.
    let model = lockstep_readers::load_model("resnet-32").unwrap();
    let (train, _) = Dataset::load_of_any_size(folder.join("imagenet.pack").to_str().unwrap(), &model).unwrap();
    assert_eq!(train.in_memory(1 << 20).unwrap().shape(), model.input());
    stdout(&folder, &["data", "generate", "--shape", "mnist", "--samples", "20", "--out", "few"]);
    stdout(&folder, &["data", "pack", "few", "--out", "few.pack"]);
    refused(&["--model", "lenet", "--data", "few.pack"], "TRAIN.pack+HELD_OUT.pack");
    for pack in ["mnist", "imagenet"] {
        let path = folder.join(format!("{pack}.pack"));
        let mut bytes = fs::read(&path).expect("the file");
        bytes[4096 + 300] ^= 4;
        fs::write(&path, bytes).expect("the file");
    }
    refused(&["--model", "lenet", "--data", "mnist.pack"], "do not have their checksum");
    refused(&["--model", "resnet-32", "--data", "imagenet.pack"], "sample 0: bytes 4096 to");
}
