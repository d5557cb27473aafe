//! Tests that learners of a process share arenas, and that a run's memory needs are known before it starts.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::{Mode, Threads, workspace_bytes};
use lockstep_exec::replica::Replica;
use lockstep_exec::{Arenas, ExecError, RunOptions, run};
use lockstep_models::memory::{Memory, Plan, Reuse};
use lockstep_models::{Gradients, Job, Op, Phase, Precision, Program, random_model};
use lockstep_topology::ErrorPlace;

fn learn(replica: &mut Replica, program: &Program, half: bool) {
    for task in &program.roles[0].tasks {
        match task.op {
            Op::Compute { chain, phase: Phase::Forward, .. } => {
                replica.forward(chain, Mode::Train).unwrap();
            }
            Op::Compute { chain, phase, .. } if !half => drop(replica.backward(chain, phase, 1.0, false).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn learners_that_alternate_share_an_arena() {
    let program = Job::new(Arc::new(random_model(5, true)), 1, 4).program().unwrap();
    let (data, held_out) = Dataset::load("synthetic:40", &program.model).unwrap();
    let arenas = Arenas::default();
    let learner = |seed| Replica::of_role(&program, &program.roles[0], &arenas, seed, &Threads::one());
    let mut learners: Vec<Replica> = (0..4).map(learner).collect();
    assert_eq!(arenas.pool.made(), 0, "none before there is work");
    for _ in 0..2 {
        for replica in &mut learners {
            replica.load(&data, &[0, 1, 2, 3], 0).unwrap();
            learn(replica, &program, false);
            replica.evaluate(&held_out).unwrap();
        }
    }
    assert_eq!(arenas.pool.made(), 1);
    // A learner between forward and backward pass keeps its arena.
    for replica in &mut learners[..3] {
        replica.load(&data, &[0, 1, 2, 3], 0).unwrap();
        learn(replica, &program, true);
    }
    assert_eq!(arenas.pool.made(), 3);
}

/// The estimate used for refusals is not below what a run allocates: arena and workspace are as long as the plan says.
#[test]
fn a_run_allocates_what_its_plan_says() {
    let numbers =
        [(Precision::F32, Gradients::F32), (Precision::Bf16, Gradients::F32), (Precision::Bf16, Gradients::Half)];
    let names = ["lenet", "resnet-32", "googlenet:image=64,classes=10", "gpt2-char:layers=2,positions=16"];
    for (name, (precision, gradients)) in names.into_iter().flat_map(|name| numbers.map(|numbers| (name, numbers))) {
        let model = Arc::new(lockstep_readers::load_model(name).unwrap());
        let program = Job { precision, gradients, ..Job::new(model, 1, 2) }.program().unwrap();
        let arena = Plan::of_role(&program, &program.roles[0], Reuse::Full).bytes;
        let memory = Memory::of_role(&program, 0, 1).unwrap();
        assert!(arena as u64 <= memory.activations, "{name}: what kernels keep comes on top");
        let (data, _) = Dataset::load("synthetic:10", &program.model).unwrap();
        let mut replica = Replica::new(&program, 1, &Threads::one());
        replica.load(&data, &[0, 1], 0).unwrap();
        learn(&mut replica, &program, false);
        let (of_arena, of_workspace) = replica.scratch_bytes();
        assert_eq!(of_arena, arena, "{name}");
        assert!(of_workspace > 0 && of_workspace <= workspace_bytes(&program, &Threads::one()), "{name}");
    }
}

/// In bf16 the arena is half of that in fp32, up to the cache lines on which tensors begin, and gradients are half as long;
/// what tasks widen is far less than that.
#[test]
fn numbers_of_two_bytes_take_half_the_memory() {
    let model = Arc::new(lockstep_readers::load_model("resnet-32").unwrap());
    let of = |precision, gradients| {
        let program = Job { precision, gradients, ..Job::new(model.clone(), 1, 16) }.program().unwrap();
        let arena = Plan::of_role(&program, &program.roles[0], Reuse::Full).bytes;
        (arena, Memory::of_role(&program, 0, 1).unwrap().gradients, workspace_bytes(&program, &Threads::one()))
    };
    let (wide, narrow) = (of(Precision::F32, Gradients::F32), of(Precision::Bf16, Gradients::Half));
    assert!(wide.0.abs_diff(2 * narrow.0) < wide.0 / 100, "{wide:?} {narrow:?}");
    assert_eq!(narrow.1, wide.1.div_ceil(2));
    assert!(narrow.0 + narrow.2 < wide.0 + wide.2, "{wide:?} {narrow:?}");
}

#[test]
fn a_run_that_does_not_fit_is_refused_before_any_allocation() {
    let program = Job::new(Arc::new(lockstep_readers::load_model("vgg-16").unwrap()), 8, 1 << 16).program().unwrap();
    let (data, _) = Dataset::load("synthetic:10", &program.model).unwrap();
    let error = run(&program, &data, &RunOptions::default()).err().expect("terabytes");
    let ExecError::Input(error) = error else { panic!("{error}") };
    assert_eq!((&error.place, error.value.as_str()), (&ErrorPlace::Flag("batch_per_rank"), "65536"));
    assert!(error.message.contains("memory plan of 8 ranks takes") && error.message.contains("fit"), "{error}");
}

/// A collective whose simulation does not fit is refused before it begins, also by the limit of the process's own.
#[test]
fn a_collective_that_does_not_fit_is_refused_early() {
    let binary = env!("CARGO_BIN_EXE_lockstep");
    let run = |algorithm: &str, ranks: u32| {
        let line = format!(
            "ulimit -v 4000000; exec timeout 120 {binary} sim collective --algorithm {algorithm} --ranks {ranks} --bytes 1MiB --cluster dgx-h100:{}",
            ranks / 8
        );
        let output = std::process::Command::new("bash").args(["-c", &line]).output().expect("bash runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, errors) = run("direct", 65_536);
    assert!(
        code == Some(2) && errors.contains("--ranks: 65536: ") && errors.contains("use fewer ranks"),
        "{code:?} {errors}"
    );
    assert_eq!(run("halving-doubling", 4_096).0, Some(0));
}
