//! Tests the memory plan by hand and on random models: never below what is live, never above the sum of all tensors.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use lockstep_models::memory::live_by_task;
use lockstep_models::{Bucket, ByCoordinate, Gradients, Job, Precision, Recompute, Turns, random_model};

mod symbolic;

fn piece(bytes: u64, first: usize, last: usize) -> Allocation {
    Allocation { bytes, first, last, again: None }
}

#[test]
fn pieces_that_are_never_live_together_share_memory() {
    // 8 and 6 are never live together, 4 overlaps both: 12 in all, and the 2 goes into the gap that 6 leaves of 8.
    let pieces = [piece(8, 0, 1), piece(4, 1, 2), piece(6, 2, 3), piece(2, 2, 2)];
    let plan = arrange(&pieces);
    assert_eq!(plan.offsets, [0, 8, 0, 6]);
    assert_eq!((plan.bytes, live_bytes(&pieces)), (12, 12));
    assert_eq!(arrange(&[]).bytes, 0);
}

/// input 1x2x2 → dense 3 → relu → dense 2 → loss.
const TINY: &str = r#"
name = "tiny"
input = [1, 2, 2]
[[layer]]
name = "a"
kind = "dense"
out_features = 3
[[layer]]
name = "r"
kind = "relu"
[[layer]]
name = "b"
kind = "dense"
out_features = 2
[[layer]]
name = "loss"
kind = "softmax_cross_entropy"
"#;

#[test]
fn a_tiny_model_by_hand() {
    // 15 + 8 parameters. With five samples: input 5·(4 + 1); a+r (5·3), b (5·2), probabilities (5·2) and the gradients
    // of a+r and b take a cache line each.
    let job = Job::new(Arc::new(parse_model("tiny.toml", TINY).unwrap()), 1, 5);
    let program = job.program().unwrap();
    let memory = Memory::of_role(&program, 0, 1).unwrap();
    assert_eq!((memory.weights, memory.gradients, memory.optimizer), (92, 92, 92));
    assert_eq!((memory.input, memory.communication), (100, 0));
    assert_eq!(memory.activations_unplanned, 5 * 64);
    // Three lines are live in three tasks: r, b and probabilities in the loss, then b's gradient for b, then
    // r's for them.
    assert_eq!(memory.activations_live, 3 * 64);
    // Three lines of the arena, since b's gradient is where b was, and one that the loss keeps.
    assert_eq!(memory.activations, 4 * 64);
    assert_eq!(memory.total(), 92 * 3 + 100 + 256);
    assert_eq!(memory.total_unplanned(), 92 * 3 + 100 + 320);
}

/// In bf16 outputs and gradients take whole lines of half as many bytes; what the loss keeps stays fp32.
#[test]
fn a_tiny_model_by_hand_in_bf16() {
    // With nine samples: a+r 27 elements, 54 bytes, and its gradient a line each (108 bytes and two lines in fp32); b 18
    // elements and its gradient a line each; probabilities 72 bytes, two lines. Live in the loss: 4 lines.
    let model = Arc::new(parse_model("tiny.toml", TINY).unwrap());
    let job = Job { precision: Precision::Bf16, ..Job::new(model, 1, 9) };
    let memory = Memory::of_role(&job.program().unwrap(), 0, 1).unwrap();
    assert_eq!((memory.activations_unplanned, memory.activations_live, memory.activations), (6 * 64, 4 * 64, 5 * 64));
    assert_eq!((memory.weights, memory.gradients, memory.optimizer), (92, 92, 92));
}

/// Activations take 16 bits, the optimizer's state 32, gradients what is asked for.
#[test]
fn memory_sizes_follow_the_precision() {
    let model = Arc::new(load_model("resnet-50").unwrap());
    let of = |precision, gradients| {
        let job = Job { precision, gradients, ..Job::new(model.clone(), 2, 8) };
        Memory::of_role(&job.program().unwrap(), 0, 1).unwrap()
    };
    let single = of(Precision::F32, Gradients::F32);
    assert_eq!(of(Precision::Tf32, Gradients::F32), single);
    let half = of(Precision::F16, Gradients::F32);
    // What kernels keep (places of maxima, probabilities) is unchanged.
    let kept = 8 * 4 * (64 * 56 * 56 + 1000);
    let halved = |bytes: u64| (bytes - kept) / 2 + kept;
    assert_eq!(half.activations, halved(single.activations));
    assert_eq!(half.activations_unplanned, halved(single.activations_unplanned));
    let (activations, activations_unplanned, activations_live) =
        (single.activations, single.activations_unplanned, single.activations_live);
    assert_eq!(Memory { activations, activations_unplanned, activations_live, ..half }, single);
    let short = of(Precision::F16, Gradients::Half);
    assert_eq!((2 * short.gradients, 2 * short.communication), (half.gradients, half.communication));
    assert_eq!((short.weights, short.optimizer, short.activations), (half.weights, half.optimizer, half.activations));
    let refused = Job { gradients: Gradients::Half, ..Job::new(model.clone(), 2, 8) }.program().unwrap_err();
    assert!(refused.to_string().starts_with("--gradients: half") && refused.message.contains("bf16"), "{refused}");
}

#[test]
fn scratch_has_a_chunk_for_each_lane_of_the_exchanges_in_flight() {
    // A ring among four sums 23/4 elements at most: 6, in one lane; two exchanges of 15 (4) and 8 (2) in flight: 6.
    let model = Arc::new(parse_model("tiny.toml", TINY).unwrap());
    let of = |bucket, concurrent_exchanges| {
        let program = Job { bucket, concurrent_exchanges, ..Job::new(model.clone(), 4, 5) }.program().unwrap();
        Memory::of_role(&program, 0, 0).unwrap().communication
    };
    assert_eq!(of(Bucket::Whole, 1), 4 * 6);
    assert_eq!(of(Bucket::Layer, 1), 4 * 4);
    assert_eq!(of(Bucket::Layer, 2), 4 * 6);
    let algorithm = "parameter-server:1:dedicated".parse().unwrap();
    let program = Job { algorithm, ..Job::new(model.clone(), 2, 5) }.program().unwrap();
    let server = Memory::of_role(&program, 1, 1).unwrap();
    assert_eq!((server.weights, server.gradients, server.activations), (0, 92, 0));
    assert!(server.communication > 0);
}

#[test]
fn accumulation_needs_no_memory_and_samples_need_it_in_proportion() {
    let model = Arc::new(load_model("resnet-32").unwrap());
    let of = |samples, accumulate| {
        let program = Job { accumulate, ..Job::new(model.clone(), 1, samples) }.program().unwrap();
        Memory::of_role(&program, 0, 1).unwrap()
    };
    assert_eq!(of(8, 1), of(8, 4));
    assert_eq!(of(8, 1).activations * 4, of(32, 1).activations);
    // Activations that backward passes wait for cannot be freed, gradients can.
    assert!(of(8, 1).activations_live > of(8, 1).activations_unplanned / 3);
    assert!(of(8, 1).activations < of(8, 1).activations_unplanned);
}

proptest! {
    #[test]
    fn no_plan_is_below_what_is_live_or_above_everything(
        sizes in prop::collection::vec((0u64..100, 0usize..20, 0usize..8), 0..30)
    ) {
        let pieces: Vec<Allocation> = sizes.into_iter().map(|(bytes, first, long)| piece(bytes, first, first + long)).collect();
        let plan = arrange(&pieces);
        prop_assert!(plan.bytes >= live_bytes(&pieces));
        prop_assert!(plan.bytes <= pieces.iter().map(|piece| piece.bytes).sum());
        for (i, a) in pieces.iter().enumerate() {
            for (j, b) in pieces.iter().enumerate().skip(i + 1) {
                let together = (0..30).any(|at| (a.first..=a.last).contains(&at) && (b.first..=b.last).contains(&at));
                let apart = plan.offsets[i] + a.bytes <= plan.offsets[j] || plan.offsets[j] + b.bytes <= plan.offsets[i];
                prop_assert!(!together || apart || a.bytes == 0 || b.bytes == 0, "{a:?} over {b:?}");
            }
        }
    }

    #[test]
    fn data_that_tasks_of_random_models_read_is_live(
        seed in 0u64..400, fuse: bool, accumulate in 1u32..3, half: bool, every in 0u32..4,
    ) {
        let precision = if half { Precision::Bf16 } else { Precision::F32 };
        let job = Job { fuse, accumulate, precision, ..Job::new(Arc::new(random_model(seed, seed % 2 == 0)), 1, 3) };
        // Of some models nothing is dropped.
        let again = Job { recompute: if every > 0 { Recompute::Full { every } } else { Recompute::None }, ..job.clone() };
        let program = again.program().or_else(|_| job.program()).unwrap();
        let memory = Memory::of_role(&program, 0, 1).unwrap();
        let by_task = live_by_task(&program, &program.roles[0]);
        let most = by_task.iter().map(|at| at.iter().sum::<u64>()).max();
        prop_assert_eq!(most, Some(memory.activations_live));
        prop_assert!(memory.activations_live <= memory.activations && memory.activations <= memory.activations_unplanned);
        let length = |reuse| symbolic::run(&program, reuse).map_err(TestCaseError::fail);
        let all = [Reuse::Nothing, Reuse::InPlace, Reuse::Shared, Reuse::Counted, Reuse::Full].map(length);
        let [nothing, in_place, shared, counted, full] = all;
        let (nothing, in_place, shared, counted, full) = (nothing?, in_place?, shared?, counted?, full?);
        prop_assert!(full <= in_place && in_place <= nothing, "{full} {in_place} {nothing}");
        prop_assert!(shared <= nothing && counted <= nothing, "{shared} {counted} {nothing}");
        // A tensor takes the bytes of its elements: three samples in the precision's format.
        let plan = Plan::of_role(&program, &program.roles[0], Reuse::Full);
        for (place, node) in plan.outputs.iter().chain(&plan.gradients).zip(program.model.layers().iter().cycle()) {
            let elements = 3 * node.output.elements();
            let bytes = place.as_ref().map(|range| (plan.elements(range), range.len() as u64, range.start % 64));
            prop_assert!(bytes.is_none_or(|of| of == (elements, if half { 2 } else { 4 } * elements, 0)), "{bytes:?}");
        }
    }
}

#[test]
fn data_that_tasks_of_the_zoo_read_is_live() {
    for name in zoo() {
        for fuse in [false, true] {
            // All blocks of a decoder are alike.
            let model = load_model(&format!("{name}:layers=2,positions=8,vocabulary=64"))
                .or_else(|_| load_model(&name))
                .unwrap();
            let job = Job { fuse, ..Job::new(Arc::new(model), 1, 1) };
            let program = job.program().unwrap();
            let of = Activations::of_role(&program, &program.roles[0]);
            assert!(of.live <= of.planned && of.planned <= of.unplanned, "{name}: {of:?}");
            if fuse && let Ok(again) = (Job { recompute: Recompute::Full { every: 1 }, ..job }).program() {
                let less = Activations::of_role(&again, &again.roles[0]);
                let is_decoder = program.model.tokens().is_some();
                let saves = less.live < of.live || !is_decoder && less.live == of.live;
                assert!(saves, "{name}: {less:?} beside {of:?}");
                symbolic::run(&again, Reuse::Full).unwrap_or_else(|error| panic!("{name}, again: {error}"));
            }
            symbolic::run(&program, Reuse::Full).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn a_plan_that_frees_too_early_is_found() {
    let program = Job::new(Arc::new(load_model("resnet-32").unwrap()), 1, 2).program().unwrap();
    let plan = Plan::of_role(&program, &program.roles[0], Reuse::Full);
    let held: Vec<usize> = (0..plan.outputs.len()).filter(|layer| plan.outputs[*layer].is_some()).collect();
    let mut found = 0;
    for pair in held.windows(2) {
        // An output in the memory of its neighbour in the DAG.
        let mut broken = plan.clone();
        let (from, to) = (plan.outputs[pair[0]].clone().unwrap(), plan.outputs[pair[1]].clone().unwrap());
        if from != to && from.len() == to.len() {
            broken.outputs[pair[1]] = Some(from);
            found += usize::from(symbolic::follow(&program, &broken).is_err());
        }
    }
    assert!(found > 40, "{found} of {} faults found", held.len());
}

/// The tiny model, its second dense layer and the loss repeated, then a copy that reads the first one's output.
#[test]
fn data_that_a_repetition_reads_stays_live_until_its_end() {
    let job = Job::new(Arc::new(parse_model("tiny.toml", TINY).unwrap()), 1, 5);
    let mut program = job.program().unwrap();
    let tasks = &mut program.roles[0].tasks;
    let names = |tasks: &[Task]| tasks.iter().map(|task| task.name.clone()).collect::<Vec<String>>();
    assert_eq!(
        names(&tasks[1..7]).join(", "),
        "forward a+r, forward b, forward loss, backward-data loss, backward b, backward-weight a+r"
    );
    let again = |op| Task { op, ..tasks[0].clone() };
    let (repeat, from) = (again(Op::Repeat { count: 2, body: 4, claimed: false }), LayerId(2));
    let to = Area::Buffer(Buffer::Declared(0));
    let copy = Copy { from: Area::Activation(from), to, rows: Vec::new(), add: false, clear: false, turns: Turns::ONE };
    let copy = again(Op::Copy(ByCoordinate::same(copy)));
    tasks.insert(2, repeat);
    tasks.push(copy);
    let end = tasks.len() - 1;
    let tensors = activations(&program, &program.roles[0], Dtype::F32);
    let span = |name: &str| tensors.iter().find(|tensor| tensor.name == name).map(|tensor| (tensor.first, tensor.last));
    // Tasks 3 to 6 repeat. r is made before them and copied at the end; its gradient is filled in them and read after.
    assert_eq!((span("r"), span("r gradient")), (Some((1, end)), Some((3, 7))));
    assert_eq!((span("b"), span("b gradient")), (Some((3, 4)), Some((5, 6))));
    // Without the copy, r ends with its own backward pass; without that too, after the last repetition.
    let role = &mut program.roles[0];
    role.tasks.truncate(7);
    let tensors = activations(&program, &program.roles[0], Dtype::F32);
    let r = tensors.iter().find(|tensor| tensor.name == "r").unwrap();
    assert_eq!((r.first, r.last), (1, 7));
    // The copy of activations decides when an arena is free, not the last layer.
    assert_eq!(Plan::of_role(&program, &program.roles[0], Reuse::Full).last, Some((1, Phase::Backward)));
}
