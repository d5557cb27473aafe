//! Tests the errors of runs whose GPU fails, and that such runs end.

use std::sync::Arc;
use std::time::Duration;

use lockstep_cuda::Gpus;
use lockstep_data::Dataset;
use lockstep_exec::device::{DeviceError, Devices};
use lockstep_exec::{ExecError, RunOptions, check_run, run};
use lockstep_models::{Job, Moments, Precision};

use crate::{gpus, scene};

fn outcome(ranks: u32, batch: u32, devices: &Arc<dyn Devices>) -> Result<(), ExecError> {
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
    let program = Job::new(model, ranks, batch).program().expect("a program");
    let (data, _) = Dataset::load("mnist", &program.model).expect("digits");
    let stall_limit = Duration::from_secs(30);
    run(&program, &data, &RunOptions { steps: 3, devices: devices.clone(), stall_limit, ..RunOptions::default() })
        .map(drop)
}

/// A batch that does not fit is refused with the plan's figure before the first step; the size that the message
/// suggests fits.
#[test]
fn oversized_batches_are_refused_with_a_size_that_fits() {
    let settings = [("PRETEND_MEMORY_BYTES", "25165824")];
    scene("errors::oversized_batches_are_refused_with_a_size_that_fits", &settings, || {
        let devices = gpus(Precision::F32);
        let Err(ExecError::Device(error)) = outcome(1, 512, &devices) else { panic!("24 MiB") };
        let DeviceError::OutOfMemory { what, asked, free, .. } = &error else { panic!("{error:?}") };
        assert!(asked > free && what.contains("memory plan of rank 0 for 512 samples"), "{error}");
        let fit: u32 = what
            .split("about ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{error}"));
        assert!((1..512).contains(&fit), "{error}");
        outcome(1, fit.min(64), &devices).expect("what is said to fit does");
    });
}

/// A lost device ends the run on all ranks, which report it; nothing hangs.
#[test]
fn a_lost_device_ends_the_run() {
    for fault in ["lost:10", "lost:90"] {
        let settings = [("PRETEND_FAULT", fault)];
        scene("errors::a_lost_device_ends_the_run", &settings, || {
            let Err(ExecError::Device(error)) = outcome(2, 4, &gpus(Precision::F32)) else { panic!("it is lost") };
            assert!(matches!(error, DeviceError::Lost { .. }), "{error:?}");
            assert!(error.to_string().contains("--resume"), "{error}");
        });
    }
}

/// If memory runs out later, taken by others, the error names what it was for.
#[test]
fn later_allocation_failures_name_the_use() {
    scene("errors::later_allocation_failures_name_the_use", &[("PRETEND_FAULT", "oom:9")], || {
        let Err(ExecError::Device(error)) = outcome(2, 4, &gpus(Precision::F32)) else { panic!("the ninth") };
        let DeviceError::OutOfMemory { what, .. } = &error else { panic!("{error:?}") };
        assert!(!what.is_empty(), "{error}");
    });
}

/// What updates on GPUs do not do is refused at its setting, before anything is allocated.
#[test]
fn what_updates_do_not_do_is_refused() {
    scene("errors::what_updates_do_not_do_is_refused", &[], || {
        let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
        let job = Job::new(model, 1, 4);
        for (job, wanted) in [
            (Job { moments: Moments::Bf16, ..job.clone() }, "--moments: bf16: is predicted on GPUs"),
            (Job { clips: true, ..job }, "--clip-norm: is predicted on GPUs"),
        ] {
            let program = job.program().expect("a program");
            let error = check_run(&program, 0..1, &*gpus(Precision::F32), 1, false).expect_err(wanted).to_string();
            assert!(error.starts_with(wanted) && error.contains("use device cpu"), "{error}");
        }
    });
}

/// A layer that CPUs alone compute is named before the first step.
#[test]
fn layers_without_a_kernel_are_refused() {
    scene("errors::layers_without_a_kernel_are_refused", &[], || {
        let layers = "{ kind = \"dense\", out_features = 8 },\n{ name = \"norm\", kind = \"rms_norm\" },\n\
                      { kind = \"dense\", out_features = 10 },\n{ kind = \"softmax_cross_entropy\" },\n";
        let text = format!("name = \"m\"\ninput = [1, 28, 28]\nlayer = [\n{layers}]\n");
        let model = lockstep_readers::parse_model("m.toml", &text).expect("a model");
        let program = Job::new(Arc::new(model), 1, 4).program().expect("a program");
        let (data, _) = Dataset::load("mnist", &program.model).expect("digits");
        let devices = gpus(Precision::F32);
        let Err(ExecError::Device(error)) =
            run(&program, &data, &RunOptions { steps: 1, devices, ..RunOptions::default() }).map(drop)
        else {
            panic!("it has no kernel")
        };
        assert!(error.to_string().contains("norm (rms_norm): GPUs compute no such layer"), "{error}");
    });
}

/// Missing prerequisites of a machine are named.
#[test]
fn an_old_driver_is_reported() {
    scene("errors::an_old_driver_is_reported", &[("PRETEND_FAULT", "driver:12080")], || {
        let error = Gpus::open(Precision::F32).expect_err("it is too old").to_string();
        assert!(error.contains("12.8") && error.contains("580"), "{error}");
    });
}
