//! Tests that training on a GPU equals training on the CPU up to rounding, and that it can be stopped and resumed
//! elsewhere.

use std::ops::Range;
use std::sync::Arc;

use lockstep_cuda::Gpus;
use lockstep_data::Dataset;
use lockstep_exec::device::Devices;
use lockstep_exec::{Evaluations, Run, RunOptions, run};
use lockstep_models::{Bucket, Job, Optimizer, Precision, Program, Target};
use lockstep_topology::Bytes;

use crate::{cpus, gentle, gpus, near, same, scene};

fn lenet(strategy: &str, ranks: u32, batch: u32) -> Program {
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
    // Several buckets, so that gradients reuse memory.
    let bucket = if ["zero-2", "zero-3"].contains(&strategy) { Bucket::Layer } else { Bucket::Size(Bytes(25 << 20)) };
    let strategy = strategy.parse().expect("a strategy");
    let nodes = if ranks == 4 { Some(vec![2, 2]) } else { None };
    Job { strategy, bucket, node_sizes: nodes, ..Job::new(model, ranks, batch) }.program().expect("a program")
}

fn digits(program: &Program) -> (Dataset, Dataset) {
    Dataset::load("mnist", program.whole_model()).expect("digits")
}

fn options(devices: &Arc<dyn Devices>, steps: u32) -> RunOptions<'static> {
    RunOptions { steps, warm_up: 0, seed: 7, devices: devices.clone(), optimizer: gentle(), ..RunOptions::default() }
}

fn train(program: &Program, options: &RunOptions<'_>) -> Run {
    run(program, &digits(program).0, options).expect("a run")
}

/// Strategies with ranks and samples of each. The first ones together cover everything that the others do on a device,
/// in another order.
const STRATEGIES: [(&str, u32, u32); 14] = [
    ("zero-2", 3, 4),
    ("zero-3", 3, 4),
    ("sma:reference-models", 4, 4),
    ("hybrid:c", 2, 4),
    ("megatron", 2, 4),
    ("first-device-table", 4, 4),
    ("ssgd", 2, 8),
    ("zero-1", 2, 8),
    ("sma", 3, 4),
    ("ea-sgd", 2, 4),
    ("local-sgd:tau=2", 3, 4),
    ("hybrid:a", 2, 4),
    ("hybrid:b", 2, 4),
    ("model-parallel", 2, 4),
];

/// The strategies of `chosen`, or all in a thorough run.
fn few_strategies(chosen: Range<usize>) -> &'static [(&'static str, u32, u32)] {
    if std::env::var_os("LOCKSTEP_THOROUGH").is_some() { &STRATEGIES } else { &STRATEGIES[chosen] }
}

/// Runs each strategy on two GPUs; parameters and losses differ from the CPU's by at most `bound`.
fn strategies_agree(strategies: &[(&str, u32, u32)], devices: &Arc<dyn Devices>, bound: f64) {
    for &(strategy, ranks, batch) in strategies {
        let program = lenet(strategy, ranks, batch);
        let cpu = train(&program, &options(&cpus(), 3));
        let gpu = train(&program, &options(devices, 3));
        near(bound, &gpu.parameters, &cpu.parameters, strategy);
        for (gpu, cpu) in gpu.losses.iter().zip(&cpu.losses) {
            assert!((gpu - cpu).abs() <= bound * cpu.abs(), "{strategy}: {gpu} for {cpu}");
        }
        assert_eq!(gpu.losses.len(), 3);
    }
}

#[test]
fn every_strategy_trains_as_on_the_cpu() {
    let name = "agreement::every_strategy_trains_as_on_the_cpu";
    scene(name, &[("PRETEND_DEVICES", "2")], || strategies_agree(few_strategies(0..6), &gpus(Precision::F32), 1e-5));
}

#[test]
fn every_strategy_trains_as_on_the_cpu_with_channels_last() {
    scene("agreement::every_strategy_trains_as_on_the_cpu_with_channels_last", &[("PRETEND_DEVICES", "2")], || {
        let last = Gpus::open(Precision::F32).expect("GPUs").with_channels(true);
        strategies_agree(few_strategies(1..5), &(Arc::new(last) as Arc<dyn Devices>), 1e-5);
    });
}

/// Activations and their messages are rounded in each layer.
#[test]
fn every_strategy_trains_nearly_as_on_the_cpu_in_bf16() {
    let name = "agreement::every_strategy_trains_nearly_as_on_the_cpu_in_bf16";
    scene(name, &[("PRETEND_DEVICES", "2")], || strategies_agree(few_strategies(1..5), &gpus(Precision::Bf16), 2e-2));
}

/// Factors have ten or seven bits of mantissa; with few samples the steps stay close.
#[test]
fn reduced_precision_trains_nearly_as_well() {
    scene("agreement::reduced_precision_trains_nearly_as_well", &[], || {
        let program = lenet("ssgd", 1, 16);
        let cpu = train(&program, &options(&cpus(), 4));
        for (precision, bound) in [(Precision::Tf32, 2e-3), (Precision::Bf16, 2e-2)] {
            let gpu = train(&program, &options(&gpus(precision), 4));
            near(bound, &gpu.parameters, &cpu.parameters, &format!("{precision:?}"));
            // With fewer bits of mantissa the bits differ.
            assert_ne!(gpu.weights_sha256, cpu.weights_sha256);
        }
    });
}

#[test]
fn an_interrupted_run_resumes_to_the_bit_and_on_cpus() {
    scene("agreement::an_interrupted_run_resumes_to_the_bit_and_on_cpus", &[("PRETEND_SEED", "4")], || {
        let devices = gpus(Precision::F32);
        for strategy in ["ssgd", "sma"] {
            let program = lenet(strategy, 2, 4);
            let whole = train(&program, &options(&devices, 5));
            let first = train(&program, &options(&devices, 2)).state();
            let rest = train(&program, &RunOptions { start: Some(&first), ..options(&devices, 3) });
            assert_eq!(rest.state_sha256, whole.state_sha256, "{strategy}");
            let elsewhere = train(&program, &RunOptions { start: Some(&first), ..options(&cpus(), 3) });
            near(1e-5, &elsewhere.parameters, &whole.parameters, strategy);
        }
    });
}

/// A timeline by the device's own clock: tasks are in order, none starts before it was submitted, and the training is
/// the same.
#[test]
fn a_timed_run_is_the_same_run() {
    scene("agreement::a_timed_run_is_the_same_run", &[], || {
        let devices = gpus(Precision::F32);
        let program = lenet("ssgd", 2, 4);
        let plain = train(&program, &options(&devices, 4));
        let timed = train(&program, &RunOptions { timed: true, ..options(&devices, 4) });
        same(&timed.parameters, &plain.parameters, "parameters");
        for run in [&plain, &timed] {
            let spans = &run.timeline.spans;
            assert!(spans.iter().all(|span| span.ready <= span.start && span.start <= span.end));
        }
        let compute = |rank: u32| {
            let role = &program.roles[program.role_of(rank)];
            let computes = move |task: u32| role.tasks[task as usize].stream == lockstep_models::Stream::Compute;
            timed.timeline.spans.iter().filter(move |span| span.rank == rank && computes(span.task))
        };
        for rank in 0..2 {
            let ends: Vec<_> = compute(rank).map(|span| span.end).collect();
            assert!(ends.len() > 20 && ends.is_sorted(), "rank {rank}: {ends:?}");
        }
    });
}

#[test]
fn models_are_evaluated_as_on_the_cpu() {
    scene("agreement::models_are_evaluated_as_on_the_cpu", &[("PRETEND_SEED", "6")], || {
        let program = lenet("ssgd", 2, 40);
        let (data, held_out) = Dataset::load("synthetic:100", &program.model).expect("samples");
        // An epoch of one step, then the model is evaluated twice, with a last batch that is not full.
        let judge = |devices: &Arc<dyn Devices>| {
            let when =
                Evaluations { held_out: &held_out, last_epochs: 1, recompute_bn: false, target: Target::default() };
            let options = RunOptions { evaluations: Some(when), ..options(devices, 1) };
            let mut run = run(&program, &data, &options).expect("a run");
            let last = run.evaluate(&held_out).expect("a judgement");
            assert_eq!(run.evaluations.len(), 1);
            (run.evaluations[0], last)
        };
        let ((gpu, gpu_last), (cpu, cpu_last)) = (judge(&gpus(Precision::F32)), judge(&cpus()));
        for (gpu, cpu) in [(gpu, cpu), (gpu_last, cpu_last)] {
            assert_eq!((gpu.samples, gpu.correct), (cpu.samples, cpu.correct));
            assert!((gpu.mean_loss - cpu.mean_loss).abs() <= 1e-5 * cpu.mean_loss, "{gpu:?} for {cpu:?}");
        }
    });
}

/// A loss that is not finite ends the run, as soon as on the CPU or a little later: cuDNN's rectified output is never
/// NaN.
#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    scene("agreement::a_loss_that_is_not_finite_ends_the_run", &[], || {
        let program = lenet("ssgd", 2, 4);
        let optimizer = Optimizer { learning_rate: 1e30, ..gentle() };
        let error = |devices: &Arc<dyn Devices>| {
            let options = RunOptions { optimizer: optimizer.clone(), ..options(devices, 8) };
            run(&program, &digits(&program).0, &options).err().expect("it diverges").to_string()
        };
        let step =
            |text: &str| text.split("in step ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        let (gpu, cpu) = (error(&gpus(Precision::F32)), error(&cpus()));
        assert!(gpu.contains("training has diverged") && gpu.contains("lower learning rate"), "{gpu}");
        let (gpu_step, cpu_step) = (step(&gpu).expect("a step"), step(&cpu).expect("a step"));
        assert!((cpu_step..=cpu_step + 2).contains(&gpu_step), "{gpu}\n{cpu}");
        assert!(
            gpu.contains("which layer did is not known") && cpu.contains("first output that is not finite"),
            "{gpu}\n{cpu}"
        );
    });
}
