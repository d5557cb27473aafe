//! Tests that work between steps is the same on both sides: a run's shuffles, evaluations and checkpoints have the
//! predicted tasks and messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::{Evaluations, Observer, Order, Run, RunOptions, Snapshot, run};
use lockstep_models::{Job, Mesh, Optimizer, Partition, Periodic, Program, Target, Timeline, random_model};
use lockstep_sim::{NetworkModel, Platform, Roofline, SimOptions, simulate, simulate_periodic};
use lockstep_topology::{Cluster, Dtype, Hosting, HostingRule, InputError, Placement, PlacementRule};
use proptest::prelude::*;

/// Messages and bytes by (from, to).
type Traffic = BTreeMap<(u32, u32), (u64, u64)>;

/// Steps of a run; the state is saved after each.
const STEPS: u32 = 6;
/// Steps per epoch.
const STEPS_PER_EPOCH: u32 = 2;

struct SavesAll;

impl Observer for SavesAll {
    fn saves(&self) -> bool {
        true
    }

    fn order(&self, _: u64) -> Order {
        Order::Save
    }

    fn keep(&self, _: Snapshot<'_>) -> Result<(), InputError> {
        Ok(())
    }
}

fn executed(program: &Program, recompute_bn: bool) -> Run {
    let samples = program.global_batch() * u64::from(STEPS_PER_EPOCH) + 1;
    let (train, held_out) = Dataset::load(&format!("synthetic:{samples}"), &program.model).unwrap();
    let evaluations = Evaluations { held_out: &held_out, last_epochs: 100, recompute_bn, target: Target::default() };
    let options = RunOptions {
        steps: STEPS,
        warm_up: 0,
        evaluations: Some(evaluations),
        optimizer: Optimizer { learning_rate: 0.001, ..Optimizer::default() },
        stall_limit: Duration::from_secs(20),
        observer: &SavesAll,
        ..RunOptions::default()
    };
    run(program, &train, &options).unwrap()
}

fn on_platform<T>(ranks: u32, ask: impl FnOnce(&Platform<'_>) -> T) -> T {
    let cluster = Cluster::load("workstation").unwrap();
    let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack).unwrap();
    let hosting = Hosting::new(&placement, &HostingRule::Single).unwrap();
    let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
    ask(&Platform { network: NetworkModel::MaxMin, ..platform })
}

fn simulated(work: &Program) -> Traffic {
    let options = SimOptions { warm_up: 0, counted: 1, ..SimOptions::default() };
    let prediction =
        on_platform(work.ranks(), |platform| simulate(work, platform, options.driver(), &options)).unwrap();
    prediction.traffic.pairs.iter().map(|(pair, sent)| (*pair, (sent.messages, sent.bytes))).collect()
}

/// The tasks of a kind that ran: rank, iteration, task, repetition.
fn tasks(timeline: &Timeline, kind: Periodic) -> Vec<(u32, u32, u32, u32)> {
    let of_kind = timeline.periodic.iter().filter(|run| run.kind == kind).map(|run| run.span);
    let mut all: Vec<_> = of_kind.map(|span| (span.rank, span.iteration, span.task, span.repetition)).collect();
    all.sort_unstable();
    all
}

/// Jobs of every strategy in which ranks hold different parts of the model, of the state or of the samples.
fn jobs() -> impl Strategy<Value = Job> {
    let strategies = [
        ("ssgd", None),
        ("zero-1", None),
        ("zero-3", None),
        ("hybrid:b", None),
        ("sma", None),
        ("local-sgd", None),
        ("first-device-table", None),
        ("zero-2", Some("data=2,device=2")),
        ("model-parallel", Some("data=2,tensor=2")),
        ("megatron:zero-1", Some("tensor=2,data=2")),
        ("ssgd", Some("data=2,pipeline=2")),
        ("zero-1", Some("pipeline=2,data=2")),
        ("zero-3", Some("data=2,pipeline=2")),
    ];
    let job = |(seed, (strategy, mesh), workers): (u64, (&str, Option<&str>), u32)| {
        let model = Arc::new(random_model(seed, false));
        let mesh: Option<Mesh> = mesh.map(|mesh| mesh.parse().unwrap());
        let workers = mesh.as_ref().map_or(workers, Mesh::ranks);
        Job { strategy: strategy.parse().unwrap(), mesh, ..Job::new(model, workers, 4) }
    };
    (0u64..500, proptest::sample::select(strategies.to_vec()), 1u32..=4).prop_map(job)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn evaluations_and_checkpoints_are_as_predicted(job in jobs(), recompute_bn: bool) {
        let Ok(program) = job.program() else { return Ok(()) };
        let run = executed(&program, recompute_bn);
        let samples = program.global_batch() * u64::from(STEPS_PER_EPOCH) + 1;
        let micro_batches = if recompute_bn { samples / 4 } else { 0 };
        let mut traffic = Traffic::new();
        for (kind, work, times) in [
            (Periodic::Evaluation, program.evaluation(samples / 4, micro_batches).unwrap(), STEPS / STEPS_PER_EPOCH),
            (Periodic::Checkpoint, program.checkpoint().unwrap(), STEPS),
        ] {
            let iterations = (1..=times).map(|time| time * STEPS / times);
            let mut expected: Vec<_> = iterations
                .flat_map(|iteration| (0..work.ranks()).map(move |rank| (iteration, rank)))
                .flat_map(|(iteration, rank)| {
                    let role = &work.roles[work.role_of(rank)];
                    role.runs().map(move |(task, repetition)| (rank, iteration, task as u32, repetition))
                })
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(tasks(&run.timeline, kind), expected, "{} {}", job.strategy, kind);
            for (pair, (messages, bytes)) in simulated(&work) {
                let all = traffic.entry(pair).or_default();
                *all = (all.0 + messages * u64::from(times), all.1 + bytes * u64::from(times));
            }
        }
        let mut measured = Traffic::new();
        for (from, row) in (0..).zip(&run.periodic_traffic) {
            let sent = (0..).zip(row).filter(|(_, sent)| sent.messages > 0);
            measured.extend(sent.map(|(to, sent)| ((from, to), (sent.messages, sent.bytes))));
        }
        prop_assert_eq!(measured, traffic, "{}", job.strategy);
    }

    /// A shuffle sends the samples that change ranks: on average an equal share of each part to each rank of the group.
    #[test]
    fn shuffles_are_as_predicted(
        seed in 0u64..500,
        nodes in prop::collection::vec(1u32..=2, 1..=3),
        whole: bool,
        every in 1u32..=3,
        chunk in prop_oneof![Just(Partition::CHUNK), 2_000u64..20_000],
        in_place: bool,
        by_first: bool,
    ) {
        let groups = if whole { nodes.len() as u32 } else { 1 };
        let sampling = format!("partitioned:groups={groups}:shuffle-every={every}").parse().unwrap();
        let workers = nodes.iter().sum();
        let strategy = if by_first { "first-device-table" } else { "ssgd" }.parse().unwrap();
        let model = Arc::new(random_model(seed, false));
        let job = Job { strategy, sampling, node_sizes: Some(nodes), ..Job::new(model, workers, 4) };
        let program = job.program();
        if program.as_ref().is_err_and(|error| error.message.contains("other layers")) {
            return Ok(()); // a random model whose scores feed other layers
        }
        let mut program = program.unwrap();
        let (train, _) = Dataset::load("synthetic:1200", &program.model).unwrap();
        let options = RunOptions { steps: STEPS, warm_up: 0, stall_limit: Duration::from_secs(20), ..RunOptions::default() };
        let at_once = run(&program, &train, &options).unwrap();
        let partition = program.partition.as_mut().unwrap();
        (partition.chunk, partition.packed_below) = (chunk, if in_place { 0 } else { u64::MAX });
        let run = run(&program, &train, &options).unwrap();
        // However much is sent at a time, and from where, the same samples are drawn.
        prop_assert_eq!(&run.state_sha256, &at_once.state_sha256);
        let work = program.shuffle(1200, (program.model.input().elements(), Dtype::F32)).unwrap().unwrap();
        let times = u64::from((STEPS - 1) / every);
        let spans = tasks(&run.timeline, Periodic::Shuffle);
        let rounds = (0..workers).map(|rank| work.roles[work.role_of(rank)].runs().count() as u64);
        prop_assert_eq!(spans.len() as u64, times * rounds.sum::<u64>());
        let predicted = simulated(&work);
        let mut pairs = 0;
        for (from, row) in (0..).zip(&run.periodic_traffic) {
            for (to, sent) in (0..).zip(row).filter(|(_, sent)| sent.messages > 0) {
                let (messages, bytes) = predicted[&(from, to)];
                prop_assert_eq!(sent.messages, times * messages);
                pairs += 1;
                if from == to || bytes == 0 {
                    prop_assert_eq!((sent.bytes, bytes), (0, 0), "what stays does not travel, nor does what no rank holds");
                    continue;
                }
                // At least 33 samples on average: half of them is seven standard deviations away for each shuffle.
                let ratio = sent.bytes as f64 / (bytes * times) as f64;
                prop_assert!((0.5..1.5).contains(&ratio), "{from} to {to}: {ratio}");
            }
        }
        prop_assert_eq!(pairs, if times > 0 { predicted.len() } else { 0 });
    }
}

/// A step's time excludes the work between steps, which is reported separately.
#[test]
fn step_times_exclude_the_work_between_steps() {
    let program = Job::new(Arc::new(random_model(3, false)), 2, 4).program().unwrap();
    let options = SimOptions::default();
    on_platform(2, |platform| {
        let mut timeline = simulate(&program, platform, options.driver(), &options).unwrap().timeline;
        let steps = timeline.step_times_s();
        let work = program.evaluation(100, 0).unwrap();
        let spans = simulate_periodic(Periodic::Evaluation, &work, platform, &options, &timeline).unwrap();
        // As if the evaluation had come before the last step, which then begins later by its duration.
        let (end, last) = timeline.end();
        let took = spans.iter().map(|run| run.span.end).max().unwrap() - end;
        let begin = timeline.spans.iter().filter(|span| span.iteration < last - 1).map(|span| span.end).max().unwrap();
        for span in timeline.spans.iter_mut().filter(|span| span.iteration == last - 1) {
            (span.ready, span.start, span.end) = (span.ready + took, span.start + took, span.end + took);
        }
        timeline.periodic = spans;
        for run in &mut timeline.periodic {
            run.span.iteration = last - 1;
            run.span.start = begin + (run.span.start - end);
            run.span.end = begin + (run.span.end - end);
        }
        let after = timeline.step_times_s();
        assert!(steps.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-12), "{steps:?} {after:?}");
        let seconds = timeline.periodic_time_s(Periodic::Evaluation).unwrap();
        assert!((seconds - took.as_secs_f64()).abs() < 1e-12);
    });
}
