//! Tests that a GPU which transforms decoded pictures trains to the bits of one whose samples threads transform.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_data::generate::{Like, generate};
use lockstep_data::{Packing, SetPart, Source, pack};
use lockstep_exec::{RunOptions, run};
use lockstep_models::{Job, Precision, TransformAt};

use crate::{gentle, gpus, scene};

#[test]
fn a_gpu_transforms_pictures_as_threads_do() {
    scene("pictures::a_gpu_transforms_pictures_as_threads_do", &[("PRETEND_SEED", "9")], || {
        let folder = std::env::temp_dir().join(format!("lockstep-gpu-pictures-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let (source, out) = (folder.join("pictures"), folder.join("pictures.pack"));
        generate((Like::Imagenet, 3), (24, 1), &source, 2, |_| true).expect("pictures");
        let packing = Packing { out: out.clone(), short_side: 40, threads: 2, skip_bad: false, shuffle_seed: Some(1) };
        pack(&Source::open(&source, SetPart::Train).expect("a source"), &packing, |_| true).expect("a pack");
        let text = include_str!("../../../../models/zoo/mlp.toml").replace("[1, 28, 28]", "[3, 16, 20]");
        let model = Arc::new(lockstep_readers::parse_model("coloured.toml", &text).expect("a model"));
        let name = format!("{0}+{0}", out.display());
        for (precision, augment) in [
            (Precision::F32, "none"),
            (Precision::F32, "patch,scale,crop=2,flip"),
            (Precision::Tf32, "scale,flip"),
            (Precision::Bf16, "crop=1"),
        ] {
            let augmentation = augment.parse().expect("an augmentation");
            let (data, _) = Dataset::load_augmented(&name, &model, augmentation).expect("pictures");
            let devices = gpus(precision);
            let trained = |transform_at| {
                let job =
                    Job { precision, accumulate: 2, ahead: Some(2), transform_at, ..Job::new(model.clone(), 1, 4) };
                let options = RunOptions {
                    steps: 4,
                    warm_up: 0,
                    seed: 7,
                    devices: devices.clone(),
                    optimizer: gentle(),
                    ..RunOptions::default()
                };
                run(&job.program().expect("a program"), &data, &options).expect("a run").parameters
            };
            let bits = |parameters: Vec<f32>| parameters.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(trained(TransformAt::Device)), bits(trained(TransformAt::Host)), "{precision} {augment}");
        }
        std::fs::remove_dir_all(folder).expect("its own folder");
    });
}
