//! Tests that GPUs copy batches from the page-locked memory in which threads prepare them, and train to the bits of loads
//! that draw their samples themselves.

use std::path::Path;
use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_data::generate::{Like, generate};
use lockstep_data::{Packing, SetPart, Source, pack};
use lockstep_exec::{Run, RunOptions, run};
use lockstep_models::{Job, Model, Precision};

use crate::{gentle, gpus, scene};

const STEPS: u32 = 5;
/// Samples of a micro-batch.
const BATCH: u32 = 4;

/// Packs the training part of `source`.
fn packed(source: &Path, short_side: u16, out: &Path) -> String {
    let packing = Packing { out: out.to_owned(), short_side, threads: 2, skip_bad: false, shuffle_seed: Some(1) };
    pack(&Source::open(source, SetPart::Train).expect("a source"), &packing, |_| true).expect("a pack");
    format!("{0}+{0}", out.display())
}

/// JPEG files, arrays of bytes and values in memory, for `model`.
fn every_form(folder: &Path, model: &Model) -> [Dataset; 3] {
    let [pictures, arrays] = ["pictures", "arrays"].map(|name| folder.join(name));
    generate((Like::Imagenet, 3), (24, 1), &pictures, 2, |_| true).expect("pictures");
    generate((Like::Cifar, 3), (24, 1), &arrays, 2, |_| true).expect("arrays");
    let names = [packed(&pictures, 40, &folder.join("jpeg.pack")), packed(&arrays, 0, &folder.join("bytes.pack"))];
    let [jpeg, bytes] = names.map(|name| Dataset::load(&name, model).expect("a set").0);
    let (values, _) = Dataset::load("synthetic:24", model).expect("a set");
    [jpeg, bytes, values]
}

/// Page-locked bytes at most so far; `None` on a GPU.
fn most_pinned() -> Option<u64> {
    // SAFETY: the pretend libraries have this function; other libraries do not have its name.
    unsafe {
        let library = libloading::Library::new("libpretend.so").ok()?;
        library.get::<unsafe extern "C" fn() -> u64>(b"pretend_most_pinned\0").ok().map(|most| most())
    }
}

fn train(job: &Job, data: &Dataset, like: Option<&Run>) -> Run {
    let options = RunOptions {
        steps: STEPS,
        warm_up: 0,
        seed: 7,
        devices: gpus(job.precision),
        optimizer: gentle(),
        replay: like.filter(|run| !run.claims.is_empty()).map(|run| &run.claims[..]),
        ..RunOptions::default()
    };
    run(&job.program().expect("a program"), data, &options).expect("a run")
}

#[test]
fn gpus_copy_batches_from_where_threads_prepare_them() {
    for seed in ["1", "2"] {
        scene("batches::gpus_copy_batches_from_where_threads_prepare_them", &[("PRETEND_SEED", seed)], || {
            let folder = std::env::temp_dir().join(format!("lockstep-gpu-batches-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            let text = include_str!("../../../../models/zoo/mlp.toml").replace("[1, 28, 28]", "[3, 32, 32]");
            let text = text.replace("out_features = 128", "out_features = 8");
            let model = Arc::new(lockstep_readers::parse_model("coloured.toml", &text).expect("a model"));
            for data in every_form(&folder, &model) {
                // What loads draw: the same samples as values.
                let drawn = data.clone().in_memory(u64::MAX).expect("values");
                for (strategy, ranks) in [("ssgd", 1), ("sma:round-robin", 2), ("sma:tau=2:first-come", 2)] {
                    let accumulate = if strategy == "ssgd" { 2 } else { 1 };
                    let job = Job {
                        strategy: strategy.parse().expect("a strategy"),
                        accumulate,
                        precision: Precision::F32,
                        ..Job::new(model.clone(), ranks, BATCH)
                    };
                    let ahead = Job { ahead: Some(2), ..job.clone() };
                    let prepared = train(&ahead, &data, None);
                    let alone = train(&job, &drawn, Some(&prepared));
                    let bits = |run: &Run| run.parameters.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    assert!(bits(&prepared) == bits(&alone), "{strategy} {:?}", data.form());
                }
            }
            std::fs::remove_dir_all(folder).expect("its own folder");
        });
    }
}

/// A rank has two batches ahead, and at most two from which its GPU has yet to copy. A CPU's are in ordinary memory.
#[test]
fn batches_for_gpus_are_page_locked() {
    scene("batches::batches_for_gpus_are_page_locked", &[("PRETEND_SEED", "4")], || {
        let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
        let (data, _) = Dataset::load("synthetic:64", &model).expect("a set");
        let Some(_) = most_pinned() else { return eprintln!("SKIPPED on a GPU: page-locked bytes are not counted") };
        let job = Job { precision: Precision::F32, ..Job::new(model.clone(), 1, BATCH) };
        train(&job, &data, None);
        let drawn = most_pinned().expect("counted");
        train(&Job { ahead: Some(2), ..job }, &data, None);
        let batch = u64::from(BATCH) * model.input().elements() * 4;
        let more = most_pinned().expect("counted") - drawn;
        assert!((2 * batch..=4 * (batch + 256)).contains(&more), "{more} bytes for batches of {batch}");
    });
}
