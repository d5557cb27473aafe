//! Tests that a GPU's memory is known before the first step: a rank's needs are refused or allocated when its device is
//! made.

use std::ffi::{CString, c_char};
use std::sync::Arc;

use lockstep_cuda::LibraryFolders;
use lockstep_cuda::driver::{Context, Fill, GpuMemory};
use lockstep_data::Dataset;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::device::{DeviceError, Mode};
use lockstep_exec::replica::Replica;
use lockstep_exec::{Arenas, ExecError};
use lockstep_models::memory::Memory;
use lockstep_models::{
    Axis, Bucket, Job, Mesh, Model, Op, Phase, PipelineSchedule, Precision, Program, SgdStep, random_model,
};

use crate::{gpus, scene};

/// Injects a fault into the pretend device.
fn fault(text: &str) {
    let text = CString::new(text).expect("a text");
    // SAFETY: the pretend libraries are loaded and have this function, which reads a text.
    unsafe {
        let library = libloading::Library::new("libpretend.so").expect("the pretend libraries");
        library.get::<unsafe extern "C" fn(*const c_char)>(b"pretend_fault\0").expect("its function")(text.as_ptr());
    }
}

fn context() -> Arc<Context> {
    Context::open(&LibraryFolders::usual(), 0).expect("the pretend GPU")
}

fn program(model: Model, batch: u32, accumulate: u32) -> Program {
    Job { accumulate, ..Job::new(Arc::new(model), 1, batch) }.program().expect("a program")
}

/// Two micro-batches and an update.
fn step(replica: &mut Replica, program: &Program, data: &Dataset) -> Result<(), ExecError> {
    let indices: Vec<u32> = (0..program.batch_per_rank).collect();
    let tasks = || program.roles[0].tasks.iter().map(|task| &task.op);
    for accumulate in [false, true] {
        replica.load(data, &indices, 0)?;
        for op in tasks() {
            match op {
                Op::Compute { chain, phase: Phase::Forward, .. } => drop(replica.forward(*chain, Mode::Train)?),
                Op::Compute { chain, phase, .. } => drop(replica.backward(*chain, *phase, 0.1, accumulate)?),
                _ => {}
            }
        }
    }
    for of in tasks().filter_map(Op::update) {
        replica.update(of.range.start as usize..of.range.end as usize, &SgdStep::plain(1e-3, 0.9))?;
    }
    Ok(replica.parameters().map(drop)?)
}

/// After a rank has been created, any allocation of device memory would be refused.
#[test]
fn steps_allocate_no_memory() {
    scene("memory::steps_allocate_no_memory", &[("PRETEND_FAULT", "")], || {
        let mut workspaces = 0;
        for (seed, precision) in (0..24).zip([Precision::F32, Precision::Tf32, Precision::Bf16].into_iter().cycle()) {
            let program = program(random_model(seed, true), 4, 2);
            let data = Dataset::load("synthetic:8", &program.model).expect("samples").0;
            let devices = gpus(precision);
            let mut replica = Replica::of_rank(&*devices, 0, &program, 1).expect("a rank");
            let free = context().memory().expect("an answer").0;
            fault("oom:1");
            for number in 0..4 {
                step(&mut replica, &program, &data)
                    .unwrap_or_else(|error| panic!("model {seed} {precision:?}: {error}"));
                assert_eq!(context().memory().expect("an answer").0, free, "model {seed} {precision:?} step {number}");
            }
            let more = GpuMemory::new(&context(), "more", 8, Fill::Zeros);
            assert!(matches!(more, Err(DeviceError::OutOfMemory { .. })), "{more:?}");
            fault("");
            workspaces += u32::from(replica.scratch_bytes().1 > 0);
        }
        assert!(workspaces > 12, "{workspaces}");
    });
}

/// A refusal states the size that a rank allocates, and the number of samples that it suggests fits.
#[test]
fn ranks_allocate_what_the_plan_says() {
    scene("memory::ranks_allocate_what_the_plan_says", &[("PRETEND_FAULT", "")], || {
        let (context, devices) = (context(), gpus(Precision::F32));
        let free = || context.memory().expect("an answer").0;
        let of_batch = |batch| {
            Replica::of_rank(
                &*devices,
                0,
                &program(lockstep_readers::load_model("lenet").expect("a model"), batch, 1),
                1,
            )
        };
        let all = free();
        for batch in [64, 512] {
            let replica = of_batch(batch).expect("memory enough");
            let taken = all - free();
            drop(replica);
            devices.clear();
            assert_eq!(free(), all);
            // A sample takes more than the 32 KiB that are missing, and weights less than half of what many samples take.
            let little = (taken - (32 << 10), batch - 2);
            let much = (taken - (taken >> 2), batch / 8);
            for (left, least) in [little, much].into_iter().take(if batch > 64 { 2 } else { 1 }) {
                let others = GpuMemory::new(&context, "what others hold", all - left, Fill::Zeros).expect("memory");
                let Err(DeviceError::OutOfMemory { what, asked, .. }) = of_batch(batch) else { panic!("{left} bytes") };
                // Beside the plan there are labels, and gaps of less than 256 bytes between blocks.
                assert!(asked <= taken && taken - asked < 32 << 10, "{asked} of {taken} bytes");
                let fit = what.split("about ").nth(1).and_then(|rest| rest.split(' ').next());
                let fit: u32 = fit.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{what}"));
                assert!((least..batch).contains(&fit), "{fit}: {what}");
                of_batch(fit).unwrap_or_else(|error| panic!("{fit} samples fit: {error}"));
                devices.clear();
                drop(others);
            }
        }
    });
}

/// Gradients that share memory take that much less.
#[test]
fn shared_memory_is_allocated_once() {
    scene("memory::shared_memory_is_allocated_once", &[("PRETEND_FAULT", "")], || {
        let (context, devices) = (context(), gpus(Precision::F32));
        let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
        let program = |strategy: &str| {
            let strategy = strategy.parse().expect("a strategy");
            Job { strategy, bucket: Bucket::Layer, ..Job::new(model.clone(), 2, 16) }.program().expect("a program")
        };
        let taken = |program: &Program| {
            let all = context.memory().expect("an answer").0;
            let replica = Replica::of_rank(&*devices, 0, program, 1).expect("memory enough");
            let taken = all - context.memory().expect("an answer").0;
            drop(replica);
            devices.clear();
            taken
        };
        let (one, two) = (program("zero-1"), program("zero-2"));
        let gradients = |program: &Program| Memory::of_role(program, 0, 1).expect("a plan").gradients;
        let saved = gradients(&one) - gradients(&two);
        assert!(saved > 4096, "{saved} bytes");
        // Blocks begin at multiples of 256 bytes.
        assert!((taken(&one) - taken(&two)).abs_diff(saved) < 512, "{} for {saved}", taken(&one) - taken(&two));
    });
}

/// A stage allocates for each micro-batch in flight what the plan says, with the samples that passes need.
#[test]
fn stages_allocate_the_plan_of_each_micro_batch_in_flight() {
    scene("memory::stages_allocate_the_plan_of_each_micro_batch_in_flight", &[("PRETEND_FAULT", "")], || {
        let (context, devices) = (context(), gpus(Precision::F32));
        let model = Arc::new(lockstep_readers::load_model("lenet").expect("a model"));
        let stages = |accumulate| {
            let mesh = Some(Mesh::new(&[(Axis::Pipeline, 2)]).expect("a mesh"));
            let schedule = PipelineSchedule::GPipe;
            Job { mesh, accumulate, schedule, ..Job::new(model.clone(), 2, 16) }.program().expect("a program")
        };
        let taken = |program: &Program, role: usize| {
            let all = context.memory().expect("an answer").0;
            let (of, arenas) = (&program.roles[role], Arenas::default());
            let replica = Replica::on(&*devices, program, of, &arenas, 1, &Threads::one()).expect("memory enough");
            let taken = all - context.memory().expect("an answer").0;
            drop(replica);
            devices.clear();
            taken
        };
        for role in 0..2 {
            let (few, many) = (stages(2), stages(5));
            let plan = |program: &Program| {
                let memory = Memory::of_role(program, role, 1).expect("a plan");
                memory.activations + memory.input
            };
            let (more, planned) = (taken(&many, role) - taken(&few, role), plan(&many) - plan(&few));
            assert!(more.abs_diff(planned) < planned / 100, "stage {role}: {more} for {planned}");
        }
    });
}

/// As many ranks as the check reports train at once, each with its own arena; one more does not fit.
#[test]
fn as_many_ranks_train_as_are_reported_to_fit() {
    let settings = [("PRETEND_DEVICES", "2"), ("PRETEND_MEMORY_BYTES", "75497472")];
    scene("memory::as_many_ranks_train_as_are_reported_to_fit", &settings, || {
        let (context, devices) = (context(), gpus(Precision::F32));
        let program = program(lockstep_readers::load_model("lenet").expect("a model"), 64, 1);
        let data = Dataset::load("synthetic:64", &program.model).expect("samples").0;
        let most = devices.most_ranks(&program, 1).expect("an answer");
        assert!((4..12).contains(&most) && most.is_multiple_of(2), "{most} ranks on two GPUs of 72 MiB");
        let all = context.memory().expect("an answer").0;
        let made = |rank| Replica::of_rank(&*devices, rank, &program, 1).expect("it fits");
        let mut ranks: Vec<Replica> = (0..most).map(made).collect();
        let indices: Vec<u32> = (0..64).collect();
        for rank in &mut ranks {
            rank.load(&data, &indices, 0).expect("samples");
            rank.forward(0, Mode::Train).expect("an arena");
        }
        let left = context.memory().expect("an answer").0;
        assert!(left < (all - left) / u64::from(most / 2), "{left} of {all} bytes are left by {} ranks", most / 2);
    });
}

/// Learners that share a GPU do not wait for each other's arena where there is memory for another.
#[test]
fn overlapping_learners_have_separate_arenas() {
    scene("memory::overlapping_learners_have_separate_arenas", &[("PRETEND_FAULT", "")], || {
        let (context, devices) = (context(), gpus(Precision::F32));
        let program = program(lockstep_readers::load_model("lenet").expect("a model"), 16, 1);
        let data = Dataset::load("synthetic:16", &program.model).expect("samples").0;
        let indices: Vec<u32> = (0..16).collect();
        let made = |rank| {
            let mut replica = Replica::of_rank(&*devices, rank, &program, 1).expect("memory enough");
            replica.load(&data, &indices, 0).expect("samples");
            replica
        };
        let (mut first, mut second) = (made(0), made(1));
        let free = context.memory().expect("an answer").0;
        for task in &program.roles[0].tasks {
            match task.op {
                Op::Compute { chain, phase: Phase::Forward, .. } => {
                    first.forward(chain, Mode::Train).map(drop).expect("a pass");
                }
                Op::Compute { chain, phase, .. } => {
                    first.backward(chain, phase, 0.1, false).map(drop).expect("a pass");
                }
                _ => {}
            }
        }
        assert_eq!(context.memory().expect("an answer").0, free, "the first one has the arena that is there");
        // It has returned the arena, but its streams are not done with it.
        second.forward(0, Mode::Train).expect("a pass");
        let arena = second.scratch_bytes().0 as u64;
        let taken = free - context.memory().expect("an answer").0;
        assert!(taken >= arena, "{taken} bytes for an arena of {arena}");
    });
}
