//! Tests whole programs: shared cores, overlap, accumulation, lags, determinism.

use lockstep_models::{Bucket, Op, Span, Stream};

use super::*;

pub(super) const OPTIONS: SimOptions = SimOptions {
    warm_up: 1,
    counted: 3,
    threads_per_rank: 1,
    fold: FoldRule::Never,
    long_way: false,
    max_spans: usize::MAX,
    ..SimOptions::SHORT
};

fn compute_only() -> Flat {
    Flat { forward: 1e-3, backward: 2e-3, update: 5e-4, ..Flat::default() }
}

/// Seconds of compute tasks in one iteration of a worker.
fn computed(program: &Program, costs: &Flat) -> f64 {
    let role = &program.roles[0];
    let mut seconds = 0.0;
    for (id, task) in role.tasks.iter().enumerate() {
        let runs = f64::from(role.runs_of(id));
        seconds += runs
            * match &task.op {
                Op::Compute { phase: Phase::Forward, .. } => costs.forward,
                Op::Compute { .. } => costs.backward,
                Op::Elementwise(_) => costs.update,
                _ => 0.0,
            };
    }
    seconds
}

#[test]
fn four_ranks_on_two_cores_take_twice_as_long_as_two() {
    let step = |cores, ranks, costs: &Flat| {
        let program = program(&mlp(ranks));
        World::host(cores, ranks).predict(&program, costs, &OPTIONS).expect("runs").timeline.step_time_s()
    };
    let costs = compute_only();
    let one = computed(&program(&mlp(1)), &costs);
    assert_close(step(2, 1, &costs), one, "one rank alone");
    assert_close(step(2, 2, &costs), one, "two ranks on two cores");
    assert_close(step(2, 4, &costs), 2.0 * one, "four ranks on two cores");
    // Kernels that slow each other down 1.3 times when both cores run them take 1.3/2 of the memory each.
    let streaming = Flat { memory: 0.65, ..costs };
    assert_close(step(2, 1, &streaming), one, "one streaming rank");
    assert_close(step(2, 2, &streaming), 1.3 * one, "two streaming ranks");
    assert_close(step(2, 4, &streaming), 2.6 * one, "four streaming ranks on two cores");
}

#[test]
fn hosts_that_share_cores_compute_as_ranks_of_one_host_do() {
    let streaming = Flat { memory: 0.65, ..compute_only() };
    let computing = |hosts, world: World, costs: &Flat| {
        let program = program(&mlp(hosts));
        let prediction = world.predict(&program, costs, &OPTIONS).expect("runs");
        let computes = |span: &&Span| matches!(program.roles[0].tasks[span.task as usize].op, Op::Compute { .. });
        let spans = prediction.timeline.spans.iter().filter(computes);
        spans.map(|span| (span.end - span.start).as_secs_f64()).sum::<f64>()
    };
    for hosts in [1, 2, 4, 6] {
        for costs in [compute_only(), streaming] {
            let apart = computing(hosts, World::shared(hosts, 2), &costs);
            let together = computing(hosts, World::host(2, hosts), &costs);
            assert_close(apart, together, &format!("{hosts} hosts on two cores"));
        }
    }
    let alone = World::star(4).predict(&program(&mlp(4)), &compute_only(), &OPTIONS).expect("runs");
    let shared = World::shared(4, 2).predict(&program(&mlp(4)), &compute_only(), &OPTIONS).expect("runs");
    assert!(shared.timeline.step_time_s() > alone.timeline.step_time_s());
}

#[test]
fn threads_divide_the_work_of_a_rank() {
    let costs = compute_only();
    let program = program(&mlp(1));
    let options = SimOptions { threads_per_rank: 2, ..OPTIONS };
    let step = World::host(4, 1).predict(&program, &costs, &options).expect("runs").timeline.step_time_s();
    assert_close(step, computed(&program, &costs) / 2.0, "two threads");
}

#[test]
fn a_rank_of_one_thread_pays_only_for_its_sums() {
    // Two ranks in step: the ring's receives are the threads' work, and messages that are there when a compute task
    // ends need no waking. The step is compute plus receives plus at most the latencies of the exchanges.
    let message = MessageCost { latency: 1e-6, copy: 1e-10, sum: 2e-10, ..MessageCost::default() };
    let costs = Flat { message, ..compute_only() };
    let program = program(&Job { bucket: Bucket::Layer, ..mlp(2) });
    let exchanges = program.roles[0].exchanges().count() as f64;
    let bytes = program.model.parameter_elements() as f64 * 4.0;
    let step = World::host(2, 2).predict(&program, &costs, &OPTIONS).expect("runs").timeline.step_time_s();
    let least = computed(&program, &costs) + bytes / 2.0 * 3e-10;
    assert!(step >= least - 1e-9 && step <= least + exchanges * 2.0 * 1e-6 + 1e-9, "{step}, at least {least}");
}

/// The largest and the smallest exchange bucket's spans.
fn spans<'a>(prediction: &'a Prediction, program: &'a Program, stream: Stream) -> impl Iterator<Item = &'a Span> {
    prediction
        .timeline
        .spans
        .iter()
        .filter(move |span| program.roles[program.role_of(span.rank)].tasks[span.task as usize].stream == stream)
}

#[test]
fn exchanges_hide_behind_backward() {
    // Over links the next layer's backward pass hides the first bucket's first round. A rank is one thread, so its
    // second round begins when that pass ends, and the other bucket's exchange after it.
    let costs = Flat { forward: 5e-3, backward: 5e-3, ..Flat::default() };
    let world = World::star(2);
    let split = program(&Job { bucket: Bucket::Layer, ..mlp(2) });
    let whole = program(&Job { bucket: Bucket::Whole, ..mlp(2) });
    let step = |program: &Program| {
        let prediction = world.predict(program, &costs, &OPTIONS).expect("runs");
        for exchange in spans(&prediction, program, Stream::Exchange) {
            assert!(exchange.ready <= exchange.start && exchange.start < exchange.end);
        }
        (prediction.timeline.step_time_s() - computed(program, &costs), prediction)
    };
    let ((split_exposed, prediction), (whole_exposed, _)) = (step(&split), step(&whole));
    let exchange_s = |elements: u64| 2.0 * (10e-6 + elements as f64 * 4.0 / 2.0 * 1e-9);
    let buckets: Vec<u64> = split.roles[0].exchanges().map(|(_, e)| e.range.end - e.range.start).collect();
    assert_close(whole_exposed, exchange_s(split.model.parameter_elements()), "nothing hidden");
    assert_close(split_exposed, exchange_s(buckets[0]) / 2.0 + exchange_s(buckets[1]), "one round hidden");
    let compute: f64 = prediction.timeline.exposed_comm_s(&split);
    assert_close(compute, split_exposed, "exposed communication");
}

/// Tensor by tensor after the backward pass (Iandola et al. 2016 §6): nothing is hidden, and each tensor takes both
/// rounds.
#[test]
fn after_the_backward_pass_each_tensor_takes_both_rounds() {
    let costs = Flat { forward: 5e-3, backward: 5e-3, ..Flat::default() };
    let program = program(&Job { bucket: Bucket::Tensor, ..mlp(2) });
    let prediction = World::star(2).predict(&program, &costs, &OPTIONS).expect("runs");
    let role = &program.roles[0];
    let exchange_s = |elements: u64| 2.0 * (10e-6 + elements as f64 * 4.0 / 2.0 * 1e-9);
    let all: f64 = role.exchanges().map(|(_, e)| exchange_s(e.range.end - e.range.start)).sum();
    assert_eq!(role.exchanges().count(), 4);
    let exposed = prediction.timeline.step_time_s() - computed(&program, &costs);
    assert_close(exposed, all, "four tensors, one after the other");
    // In the timeline: no exchange of a step is ready before the last backward task has ended.
    let last = role.tasks.iter().rposition(|task| matches!(task.op, Op::Compute { .. })).expect("computes");
    for span in spans(&prediction, &program, Stream::Exchange) {
        let same =
            |other: &&Span| (other.rank, other.iteration, other.task as usize) == (span.rank, span.iteration, last);
        let backward = prediction.timeline.spans.iter().find(same).expect("a backward task");
        assert!(span.ready >= backward.end, "{span:?} {backward:?}");
    }
}

#[test]
fn accumulation_repeats_micro_batches_and_exchanges_once() {
    let costs = compute_only();
    for accumulate in [1, 2, 5] {
        let program = program(&Job { accumulate, ..mlp(2) });
        let prediction = World::host(2, 2).predict(&program, &costs, &OPTIONS).expect("runs");
        assert_close(prediction.timeline.step_time_s(), computed(&program, &costs), "free exchanges");
        let exchanges = spans(&prediction, &program, Stream::Exchange).count();
        assert_eq!(exchanges, program.roles[0].exchanges().count() * 2 * 4);
        let repetitions = spans(&prediction, &program, Stream::Compute).map(|span| span.repetition).max();
        assert_eq!(repetitions, Some(accumulate - 1));
        // An exchange waits for the last repetition of what it sums.
        for exchange in spans(&prediction, &program, Stream::Exchange) {
            let last = spans(&prediction, &program, Stream::Compute)
                .filter(|span| (span.rank, span.iteration) == (exchange.rank, exchange.iteration))
                .filter(|span| span.repetition + 1 == accumulate && span.start < exchange.start)
                .count();
            assert!(last > 0);
        }
    }
}

#[test]
fn a_server_follows_its_workers() {
    let algorithm = "parameter-server:1:dedicated".parse().expect("known");
    let program = program(&Job { bucket: Bucket::Layer, algorithm, concurrent_exchanges: 2, ..mlp(3) });
    let message = MessageCost { latency: 2e-6, copy: 1e-10, sum: 1e-10, ..MessageCost::default() };
    let prediction = World::host(4, 4).predict(&program, &Flat { message, ..compute_only() }, &OPTIONS).expect("runs");
    let server = prediction.timeline.spans.iter().filter(|span| span.rank == 3);
    assert_eq!(server.count(), program.roles[1].tasks.len() * 4);
    assert_eq!(prediction.timeline.step_times_s().len(), 3);
}

#[test]
fn equal_runs_are_equal_to_the_byte() {
    let message = MessageCost {
        latency: 3e-6,
        overhead: 1e-6,
        copy: 3e-10,
        sum: 4e-10,
        memory: 0.7,
        eager_bytes: 0,
        ..MessageCost::default()
    };
    let costs = Flat { message, memory: 0.6, ..compute_only() };
    for algorithm in ["ring", "halving-doubling", "multi-color:4", "parameter-server:3"] {
        let job = Job {
            bucket: Bucket::Layer,
            algorithm: algorithm.parse().expect("known"),
            concurrent_exchanges: 2,
            ..mlp(6)
        };
        let program = program(&job);
        for world in [World::host(4, 6), World::star(6)] {
            let run = || world.predict(&program, &costs, &OPTIONS).expect("runs");
            let first = run();
            assert_eq!(first, run(), "{algorithm}");
            // Without noise the counted steps are nearly equal.
            let steps = first.timeline.step_times_s();
            steps.iter().for_each(|step| assert!((step / steps[0] - 1.0).abs() < 0.05, "{algorithm}: {steps:?}"));
        }
    }
}

#[test]
fn a_gpu_handles_messages_beside_its_kernels() {
    let cluster = Cluster::load("ethernet-gpu-8").expect("a preset");
    let world = World::new(cluster, 8, &HostingRule::PerHost);
    // The sums of the large dense layer take 4 ms: a GPU overlaps them with the convolutions, a single thread cannot.
    let message = MessageCost { sum: 1e-9, ..MessageCost::default() };
    let costs = Flat { forward: 4e-3, backward: 4e-3, message, ..Flat::default() };
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
    let program = program(&Job { bucket: Bucket::Layer, ..Job::new(model, 8, 8) });
    let gpu = world.predict(&program, &costs, &OPTIONS).expect("runs").timeline.step_time_s();
    let cpu = World::host(8, 8).predict(&program, &costs, &OPTIONS).expect("runs").timeline.step_time_s();
    let (compute, sums) =
        (computed(&program, &costs), program.model.parameter_elements() as f64 * 4.0 * 7.0 / 8.0 * 1e-9);
    assert!((cpu / (compute + sums) - 1.0).abs() < 1e-4, "one thread does both: {cpu}"); // shards differ by an element
    assert!(gpu >= compute && gpu < compute + 0.1 * sums, "{gpu} beside {compute} and {sums}");
}
