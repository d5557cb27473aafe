//! The memory plan by hand and on random models: never below what is live, never above all tensors side by side.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Bucket, Job, Model, random_model};

fn tensor(bytes: u64, first: usize, last: usize) -> Tensor {
    Tensor { name: String::new(), bytes, first, last }
}

#[test]
fn tensors_that_never_meet_share_a_place() {
    // 8 and 6 never meet, 4 meets both: 12 in all, and the 2 goes into the gap that 6 leaves of 8.
    let tensors = [tensor(8, 0, 1), tensor(4, 1, 2), tensor(6, 2, 3), tensor(2, 2, 2)];
    let plan = arrange(&tensors);
    assert_eq!(plan.offsets, [0, 8, 0, 6]);
    assert_eq!((plan.bytes, live_bytes(&tensors)), (12, 12));
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
    // 15 + 8 parameters. With five samples: input 5·(4 + 1), a+r 5·3, b 5·2, probabilities 5·2; gradients 5·3 and 5·2.
    let job = Job::new(Arc::new(Model::parse("tiny.toml", TINY).unwrap()), 1, 5);
    let program = job.program().unwrap();
    let memory = Memory::of_role(&program, 0, 1).unwrap();
    assert_eq!((memory.weights, memory.gradients, memory.optimizer), (92, 92, 92));
    assert_eq!((memory.input, memory.communication), (100, 0));
    assert_eq!(memory.activations_unplanned, 4 * 5 * (3 + 2 + 2 + 3 + 2));
    // b is over after the loss has read it, where its gradient (2) comes; when dense b runs backward there are r (3), b's
    // gradient (2) and r's gradient (3); at the loss r (3), b (2), probabilities (2).
    assert_eq!(memory.activations_live, 4 * 5 * 8);
    assert_eq!(memory.activations, 4 * 5 * 8);
    assert_eq!(memory.total(), 92 * 3 + 100 + 160);
    assert_eq!(memory.total_unplanned(), 92 * 3 + 100 + 240);
}

#[test]
fn scratch_is_a_chunk_for_each_lane_of_the_exchanges_in_flight() {
    // A ring among four sums 23/4 elements at most: 6, in one lane; two exchanges of 15 (4) and 8 (2) in flight: 6.
    let model = Arc::new(Model::parse("tiny.toml", TINY).unwrap());
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
fn accumulation_costs_no_memory_and_samples_cost_in_proportion() {
    let model = Arc::new(Model::load("resnet-32").unwrap());
    let of = |samples, accumulate| {
        let program = Job { accumulate, ..Job::new(model.clone(), 1, samples) }.program().unwrap();
        Memory::of_role(&program, 0, 1).unwrap()
    };
    assert_eq!(of(8, 1), of(8, 4));
    assert_eq!(of(8, 1).activations * 4, of(32, 1).activations);
    // Activations that backward passes wait for cannot be given up, gradients can.
    assert!(of(8, 1).activations_live > of(8, 1).activations_unplanned / 3);
    assert!(of(8, 1).activations < of(8, 1).activations_unplanned);
}

/// Whether gradients flow into the chain that ends with `layer`, and not only into its neighbours.
fn runs_backward(program: &Program, layer: crate::LayerId) -> bool {
    let of = |task: &crate::Task| match task.op {
        Op::Compute { chain, phase, .. } => phase != crate::Phase::Forward && program.chains[chain].contains(&layer),
        _ => false,
    };
    program.roles[0].tasks.iter().any(of)
}

proptest! {
    #[test]
    fn no_plan_is_below_what_is_live_or_above_everything(
        sizes in prop::collection::vec((0u64..100, 0usize..20, 0usize..8), 0..30)
    ) {
        let tensors: Vec<Tensor> = sizes.into_iter().map(|(bytes, first, long)| tensor(bytes, first, first + long)).collect();
        let plan = arrange(&tensors);
        prop_assert!(plan.bytes >= live_bytes(&tensors));
        prop_assert!(plan.bytes <= tensors.iter().map(|tensor| tensor.bytes).sum());
        for (i, a) in tensors.iter().enumerate() {
            for (j, b) in tensors.iter().enumerate().skip(i + 1) {
                let together = (0..30).any(|at| (a.first..=a.last).contains(&at) && (b.first..=b.last).contains(&at));
                let apart = plan.offsets[i] + a.bytes <= plan.offsets[j] || plan.offsets[j] + b.bytes <= plan.offsets[i];
                prop_assert!(!together || apart || a.bytes == 0 || b.bytes == 0, "{a:?} over {b:?}");
            }
        }
    }

    #[test]
    fn random_models_keep_what_backward_passes_read(seed in 0u64..300, fuse: bool) {
        let job = Job { fuse, ..Job::new(Arc::new(random_model(seed, seed % 2 == 0)), 1, 3) };
        let program = job.program().unwrap();
        let memory = Memory::of_role(&program, 0, 1).unwrap();
        prop_assert!(memory.activations_live <= memory.activations && memory.activations <= memory.activations_unplanned);
        let role = &program.roles[0];
        let tensors = activations(&program, role);
        // Every chain's output is there when a consumer runs forward, its gradient from the consumer's to its own pass.
        for (position, task) in role.tasks.iter().enumerate() {
            let Op::Compute { chain, phase, .. } = task.op else { continue };
            let first = program.model.node(program.chains[chain][0]);
            for input in first.inputs.iter().filter(|id| id.0 > 0) {
                let name = &program.model.node(*input).name;
                let alive = |name: &String| tensors.iter().any(|t| &t.name == name && (t.first..=t.last).contains(&position));
                if phase == crate::Phase::Forward {
                    prop_assert!(alive(name), "{name} at {}", task.name);
                } else if phase != crate::Phase::BackwardWeight && runs_backward(&program, *input) {
                    prop_assert!(alive(&format!("{name} gradient")), "gradient of {name} at {}", task.name);
                }
            }
        }
    }
}
