//! Tests pipelines of stages: without time for messages each pass runs when the longest path says; with it, transfers
//! take their time.

use lockstep_models::{Axis, Bucket, Mesh, Op, PipelinePass, PipelineSchedule, pipeline, random_model};
use proptest::prelude::*;

use super::*;

/// A random model over `stages` ranks, a task for each layer.
fn job(model: u64, stages: u32, schedule: PipelineSchedule, micro_batches: u32) -> Job {
    let mesh = Mesh::new(&[(Axis::Pipeline, stages)]).expect("a mesh");
    let accumulate = if schedule.chunks() > 1 { micro_batches * stages } else { micro_batches };
    let model = Arc::new(random_model(model, true));
    Job { mesh: Some(mesh), schedule, accumulate, bucket: Bucket::Whole, fuse: false, ..Job::new(model, stages, 2) }
}

fn schedules() -> impl Strategy<Value = PipelineSchedule> {
    prop::sample::select(
        ["gpipe", "1f1b", "interleaved:2", "zb-h1"].map(|name| name.parse().expect("a schedule")).to_vec(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// The ends of all passes, iteration by iteration, are those of the longest path (`pipeline::times`): stage 0 has
    /// the last pass of an iteration, so the next begins when everything is over. Only with weight passes may another stage
    /// still have some then.
    #[test]
    fn passes_end_with_the_longest_path(
        model in 0u64..300, stages in 2u32..=4, schedule in schedules(), micro_batches in 1u32..=6,
    ) {
        let job = job(model, stages, schedule, micro_batches);
        // Without parameters before the first cut no gradient comes back, and stage 0 runs ahead.
        prop_assume!(job.stages().is_ok_and(|stages| stages.is_some_and(|stages| stages.chunks()[0].parameters > 0)));
        let program = program(&job);
        // Forward tasks take 2 µs, backward ones 3 µs.
        let costs = Flat { forward: 2e-6, backward: 3e-6, ..Flat::default() };
        let options = SimOptions { warm_up: 0, counted: 3, ..SimOptions::default() };
        let prediction = World::host(stages, stages).predict(&program, &costs, &options).expect("a prediction");

        let orders: Vec<_> = program.roles.iter().map(|role| role.order().expect("a stage").clone()).collect();
        let compute = |stage: usize, tasks: std::ops::Range<usize>| -> Vec<usize> {
            let is_compute = |task: &usize| matches!(program.roles[stage].tasks[*task].op, Op::Compute { .. });
            tasks.map(|task| task + 1).filter(is_compute).collect()
        };
        let lists: Vec<_> = orders.iter().map(|order| order.steps.clone()).collect();
        let ticks = |chunk: u32, pass: PipelinePass| {
            let stage = (chunk % stages) as usize;
            let step = lists[stage].iter().find(|step| (step.chunk, step.pass) == (chunk, pass)).expect("a step");
            let count = compute(stage, orders[stage].tasks_of(step)).len() as u64;
            count * if pass == PipelinePass::Forward { 2 } else { 3 }
        };
        let times = pipeline::times(&lists, schedule.chunks(), ticks).expect("no deadlock");
        let iteration = pipeline::makespan(&times);
        let (mut seen, iterations) = (0, if schedule.passes().contains(&PipelinePass::Weight) { 1 } else { 3 });
        for (stage, (list, times)) in lists.iter().zip(&times).enumerate() {
            for (step, time) in list.iter().zip(times) {
                let Some(last) = compute(stage, orders[stage].tasks_of(step)).pop() else { continue };
                let is_it = |span: &&lockstep_models::Span| {
                    (span.rank, span.task as usize, span.repetition) == (stage as u32, last, step.micro_batch)
                };
                for span in prediction.timeline.spans.iter().filter(is_it).take(iterations) {
                    let end = u64::from(span.iteration) * iteration + time.end;
                    prop_assert_eq!(span.end, Time::from_nanos(1000 * end), "stage {}, {}", stage, step);
                    seen += 1;
                }
            }
        }
        prop_assert!(seen >= iterations * 2 * job.accumulate as usize);
    }
}

/// Two stages of equal work on a wire. A message forward and one back lengthen a step of one micro-batch by their
/// latencies, and one of several micro-batches by at least a round trip's, and at most one round trip's per
/// micro-batch.
#[test]
fn each_round_trip_costs_its_latency_once_at_most() {
    let text = "name = \"m\"\ninput = [1, 8, 8]\nlayer = [\n{ name = \"one\", kind = \"dense\", out_features = 1000 },\n\
                { name = \"two\", kind = \"dense\", out_features = 10 },\n{ name = \"loss\", kind = \"softmax_cross_entropy\" },\n]\n";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).expect("a model"));
    let mesh = Some(Mesh::new(&[(Axis::Pipeline, 2)]).expect("a mesh"));
    let cut = "at=two".parse().expect("a cut");
    let step = |accumulate: u32, latency: &str| {
        let job = Job { mesh: mesh.clone(), cut: Clone::clone(&cut), accumulate, ..Job::new(model.clone(), 2, 8) };
        let world = World::wired(2, &format!("latency = \"{latency}\"\nbandwidth = \"1GB/s\""));
        let costs = Flat { forward: 1e-3, backward: 1e-3, ..Flat::default() };
        let options = SimOptions { warm_up: 0, counted: 1, ..SimOptions::default() };
        let prediction = world.predict(&program(&job), &costs, &options).expect("a prediction");
        prediction.timeline.spans.iter().map(|span| span.end).max().expect("spans").as_secs_f64()
    };
    for micro_batches in [1, 2, 8] {
        // Each border is crossed over two links and two buses; a millisecond more on each link.
        let added = step(micro_batches, "1ms") - step(micro_batches, "0s");
        assert!(added >= 2.0 * 2e-3 - 1e-9, "{micro_batches} micro-batches: {added}");
        let most = if micro_batches == 1 { 2.0 * 2e-3 } else { 2.0 * 2e-3 * f64::from(micro_batches) };
        assert!(added <= most + 1e-9, "{micro_batches} micro-batches: {added}");
    }
}
