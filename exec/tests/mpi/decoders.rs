//! Tests that small decoders over processes train the same bits as on threads: twelve fixed combinations of strategy, mesh,
//! schedule and activations that are computed again.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::{RunOptions, run, run_processes};
use lockstep_models::{Job, Mesh, Optimizer, UpdateRule};

/// Learned positions, biases, an output layer that reads the embedding's weight.
const GPT: &str = "gpt2-char:vocabulary=33,layers=4,hidden=16,heads=4,positions=8";
/// Rotary positions, two query heads for each key head, a gated unit, the same tie.
const LLAMA: &str = "llama-3.2-1b:vocabulary=41,layers=4,hidden=16,heads=4,key_heads=2,feed_forward=24,positions=8";

/// A model, a strategy, a mesh, a pipeline's schedule, and what is computed again.
type Combination = [&'static str; 5];

/// Six on two ranks, six on four.
const ALL: [Combination; 12] = [
    [GPT, "ssgd", "data=2", "1f1b", "none"],
    [LLAMA, "zero-1", "data=2", "1f1b", "full"],
    [GPT, "zero-3", "data=2", "1f1b", "selective"],
    [LLAMA, "megatron", "tensor=2", "1f1b", "none"],
    [GPT, "sequence-parallel", "tensor=2", "1f1b", "full:every=2"],
    [LLAMA, "ssgd", "pipeline=2", "zb-h1", "selective:layernorm+mlp"],
    [GPT, "zero-1", "data=2,pipeline=2", "gpipe", "full"],
    [LLAMA, "megatron:zero-1", "data=2,tensor=2", "1f1b", "selective"],
    [GPT, "sequence-parallel:zero-1", "data=2,tensor=2", "1f1b", "none"],
    [LLAMA, "zero-1", "data=2,pipeline=2", "interleaved:2", "none"],
    [GPT, "megatron:zero-1", "pipeline=2,tensor=2", "zb-h1", "full"],
    [LLAMA, "sequence-parallel", "pipeline=2,tensor=2", "1f1b", "selective:core_attn+mlp"],
];

/// One process's part of the combinations that have as many ranks.
pub(crate) fn decoders(processes: &mut Processes, hosts: &[u32]) {
    let mut trained = 0;
    for of @ [model, strategy, mesh, schedule, recompute] in ALL {
        let mesh: Mesh = mesh.parse().unwrap();
        if mesh.ranks() != hosts.len() as u32 {
            continue;
        }
        let job = Job {
            strategy: strategy.parse().unwrap(),
            schedule: schedule.parse().unwrap(),
            recompute: recompute.parse().unwrap(),
            rule: UpdateRule::AdamW,
            clips: true,
            accumulate: 4,
            mesh: Some(mesh),
            ..Job::new(Arc::new(lockstep_readers::load_model(model).unwrap()), hosts.len() as u32, 2)
        };
        let program = job.program().unwrap_or_else(|error| panic!("{of:?}: {error}"));
        let (data, _) = Dataset::load("synthetic:100", &job.model).unwrap();
        let optimizer =
            Optimizer { rule: job.rule, clip_norm: Some(0.5), learning_rate: 0.002, ..Optimizer::default() };
        let options = RunOptions { steps: 3, warm_up: 0, seed: 3, optimizer, ..RunOptions::default() };
        let done = run_processes(processes, hosts, &program, &data, &options).unwrap();
        trained += 1;
        let Some(done) = done else { continue };
        let on_threads = run(&program, &data, &options).unwrap();
        assert_eq!((&done.weights_sha256, &done.losses), (&on_threads.weights_sha256, &on_threads.losses), "{of:?}");
        let (first, last) = (done.losses[0], done.losses[done.losses.len() - 1]);
        assert!(first.is_finite() && last != first, "{of:?} learns: {:?}", done.losses);
    }
    assert_eq!(trained, 6, "on {} ranks", hosts.len());
}
