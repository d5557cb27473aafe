//! Tests strategies that split a batch's samples between some layers and features between others: they train like synchronous
//! SGD up to rounding, on meshes, with stages, and with shared optimizer state, and send what their layouts need.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, RunOptions, run};
use lockstep_models::{Axis, Bucket, Job, Mesh, Op, Optimizer, Program};
use lockstep_topology::Collective;
use proptest::prelude::*;

use crate::hybrid::{distance, nets, optimizer, train};
use crate::stages::schedules;

const STEPS: u32 = 3;

/// Whether some steps of `split` end where those of `ssgd` do, up to rounding.
pub(crate) fn trains_like(ssgd: &Job, split: &Job, seed: u64) -> Result<(), TestCaseError> {
    let (data, _) = Dataset::load("synthetic:400", &ssgd.model).unwrap();
    // Dead memory is NaN, so that no layer reads what a change of layout has not written.
    let arenas = Arenas { poison: true, ..Arenas::default() };
    let of = Optimizer { clip_norm: ssgd.clips.then_some(0.5), ..optimizer() };
    let options = RunOptions { steps: STEPS, warm_up: 0, seed, optimizer: of.clone(), arenas, ..RunOptions::default() };
    let one = train(ssgd, STEPS, of, seed);
    let other = run(&split.program().unwrap(), &data, &options).unwrap_or_else(|error| panic!("{split:?}: {error}"));
    let apart = distance(&ssgd.model, &one.parameters, &other.parameters);
    prop_assert!(apart < 1e-5, "{apart:e} apart");
    for (a, b) in one.losses.iter().zip(&other.losses) {
        prop_assert!((a - b).abs() < 1e-4 * a.abs(), "losses {a} and {b}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Groups of ranks along `tensor` that share samples train like one rank with all of them, dropout included: each
    /// sample draws as on one rank.
    #[test]
    fn samples_split_between_layers_train_like_ssgd(
        net in nets(),
        (data, tensor, stages) in (1u32..=3, 1u32..=4, 1u32..=2),
        (accumulate, schedule) in (1u32..=3, schedules()),
        (strategy, shares_state, norm) in (prop::sample::select(vec!["sequence-parallel", "all-to-all"]), any::<bool>(), any::<bool>()),
        each in 1u32..=3,
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor)],
        algorithm in prop::sample::select(vec!["ring", "direct", "rings:2"]),
        fuse: bool,
        seed: u64,
    ) {
        let mut net = net;
        net.norm = norm;
        let model = net.model();
        let accumulate = if schedule.chunks() > 1 { accumulate.min(2) * stages } else { accumulate };
        let ssgd = Job {
            bucket, fuse, accumulate, algorithm: algorithm.parse().unwrap(), ..Job::new(Arc::clone(&model), data, each * tensor)
        };
        let mut axes = vec![(Axis::Data, data), (Axis::Tensor, tensor), (Axis::Pipeline, stages)];
        let shares_state = shares_state && stages == 1;
        axes.truncate(if stages == 1 { 2 } else { 3 });
        let mesh = Mesh::new(&axes).unwrap();
        let strategy = format!("{strategy}{}", if shares_state { ":zero-1" } else { "" }).parse().unwrap();
        let split = Job { strategy, workers: mesh.ranks(), mesh: Some(mesh), schedule, ..ssgd.clone() };
        // Small models do not have enough layers for all cuts.
        prop_assume!(split.program().map_err(|error| error.to_string()).map_or_else(
            |error| !error.contains("layers, and") && !error.contains("read the samples"), |_| true));
        trains_like(&ssgd, &split, seed)?;
    }
}

fn program(strategy: &str, ranks: u32, batch: u32) -> Program {
    let dense =
        |name: &str, features: u32| format!("{{ name = \"{name}\", kind = \"dense\", out_features = {features} }},\n");
    let norm = "{ kind = \"layer_norm\" },\n";
    let text = format!(
        "name = \"m\"\ninput = [24, 1, 1]\nlayer = [\n{}{}{norm}{}{}{norm}{}{{ kind = \"softmax_cross_entropy\" }},\n]\n",
        dense("one", 48),
        dense("two", 24),
        dense("three", 48),
        dense("four", 24),
        dense("scores", 12),
    );
    let model = Arc::new(lockstep_readers::parse_model("m.toml", &text).unwrap());
    let mesh = Some(Mesh::new(&[(Axis::Data, 1), (Axis::Tensor, ranks)]).unwrap());
    Job { strategy: strategy.parse().unwrap(), mesh, ..Job::new(model, ranks, batch) }.program().unwrap()
}

/// Of activations: each collective, how often, and all elements of its buffers.
fn exchanged(program: &Program, of: &Collective) -> (usize, u64) {
    let tasks = program.roles[0].tasks.iter().filter(|task| !task.name.contains("update"));
    let all: Vec<u64> = tasks
        .filter_map(|task| match &task.op {
            Op::Exchange(exchange) if exchange.collective == *of => Some(exchange.range.end - exchange.range.start),
            _ => None,
        })
        .collect();
    (all.len(), all.iter().sum())
}

/// Korthikanti et al. 2022, §4.2.2: where tensor parallelism has an allreduce, sequence parallelism has a reduce-scatter and
/// an allgather, so it sends as many bytes, and keeps a part of the activations between pairs.
#[test]
fn an_allreduce_becomes_a_reduce_scatter_and_an_allgather() {
    let (ranks, batch) = (4, 8);
    let (megatron, split) = (program("megatron", ranks, batch), program("sequence-parallel", ranks, batch));
    let width = u64::from(batch) * 24;
    // Forward the sums of two pairs; backward the gradient of the second pair's input and that of the scores' layer.
    assert_eq!(exchanged(&megatron, &Collective::AllReduce).0, 4);
    assert_eq!(exchanged(&split, &Collective::ReduceScatter), (4, 4 * width));
    let (gathers, _) = exchanged(&split, &Collective::AllGather);
    // Beside these four, both gather the scores.
    assert_eq!(gathers, 4 + exchanged(&megatron, &Collective::AllGather).0);
    let samples = |program: &Program, name: &str| {
        let is_it = |task: &&lockstep_models::Task| task.name == format!("forward {name}");
        match program.roles[0].tasks.iter().find(is_it).map(|task| &task.op) {
            Some(Op::Compute { samples, .. }) => *samples,
            other => panic!("{name}: {other:?}"),
        }
    };
    for norm in ["layer_norm1", "layer_norm2"] {
        assert_eq!((samples(&megatron, norm), samples(&split, norm)), (batch, batch / ranks), "{norm}");
    }
}

/// Each product has an all-to-all of its input, as a rank's part of the samples has (ranks − 1)/ranks of it for others.
#[test]
fn products_turn_samples_into_features() {
    let (ranks, batch) = (4, 8);
    let program = program("all-to-all", ranks, batch);
    // Forward the inputs of four layers behind the first, backward their gradients.
    let inputs = [48, 24, 48, 24].map(|width| u64::from(batch) * width).iter().sum::<u64>();
    assert_eq!(exchanged(&program, &Collective::AllToAll), (8, 2 * inputs));
    let outputs = [48, 24, 48, 24, 12].map(|width| u64::from(batch) * width).iter().sum::<u64>();
    assert_eq!(exchanged(&program, &Collective::ReduceScatter), (5, outputs));
    let sent: u64 = program.roles[0]
        .exchanges()
        .filter(|(_, exchange)| exchange.collective == Collective::AllToAll)
        .map(|(_, exchange)| program.schedule(exchange, 0).unwrap().elements_sent(0))
        .sum();
    assert_eq!(sent, 2 * inputs / u64::from(ranks * ranks) * u64::from(ranks - 1));
}

/// A batch that does not divide is refused with the cure.
#[test]
fn batches_that_do_not_divide_are_refused() {
    let model = Arc::new(lockstep_readers::load_model("lenet").unwrap());
    let mesh = Some(Mesh::new(&[(Axis::Data, 1), (Axis::Tensor, 4)]).unwrap());
    let job = Job { strategy: "sequence-parallel".parse().unwrap(), mesh, ..Job::new(model, 4, 6) };
    let said = job.program().unwrap_err().to_string();
    assert!(said.contains("does not divide among 4 ranks along tensor: use a multiple of 4"), "{said}");
}
