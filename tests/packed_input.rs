//! Tests the tasks that read and decode samples: predicted and executed they are the same runs, in an order that the
//! program allows, and batches that learners claim are prepared before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::{OnLoad, RunOptions, run};
use lockstep_models::{
    Assignment, Claim, CopiedBy, Input, Job, Mesh, Op, Pools, Program, SampleForm, SampleSource, Span, Timeline,
    TransformAt,
};
use lockstep_sim::{Conditions, NetworkModel, Platform, Roofline, SimOptions, simulate};
use lockstep_topology::{Bytes, Cluster, Hosting, HostingRule, Placement, PlacementRule, Time};
use proptest::prelude::*;

use crate::packed::{coloured, every_form, options};

/// The start and end of each run of an input task, and of the loads: by rank, task, iteration and repetition.
type Runs = BTreeMap<(u32, u32, u32, u32), (Time, Time)>;

/// The input runs of a timeline. Each load follows its upload, which follows its decode, which follows its read; a read
/// follows the load of the batch whose place it takes, or the task that requests it. Learners that are served first come,
/// first served have these places in common: see [`check_ring`].
fn input_runs(program: &Program, timeline: &Timeline, claims: &[Claim]) -> Runs {
    let shares = shares(program);
    let mut runs = Runs::new();
    for span in &timeline.spans {
        let role = &program.roles[program.role_of(span.rank)];
        let op = &role.tasks[span.task as usize].op;
        if op.input().is_some() || matches!(op, Op::Load { .. }) {
            let again = runs.insert((span.rank, span.task, span.iteration, span.repetition), (span.start, span.end));
            assert!(again.is_none(), "a run is there once");
        }
    }
    for ((rank, task, iteration, repetition), (start, _)) in &runs {
        let role = &program.roles[program.role_of(*rank)];
        for need in role.needs(*task as usize) {
            let ends = matches!(role.tasks[need.task].op, Op::Load { .. } | Op::Upload { .. });
            if shares && ends && !matches!(role.tasks[*task as usize].op, Op::Decode { .. }) {
                continue;
            }
            let Some((of_iteration, of_repetition)) = need.last_run(*iteration, *repetition) else { continue };
            if let Some((_, end)) = runs.get(&(*rank, need.task as u32, of_iteration, of_repetition)) {
                assert!(end <= start, "rank {rank}: {} begins too early", role.tasks[*task as usize].name);
            }
        }
    }
    if shares {
        check_ring(program, &runs, claims);
    }
    runs
}

/// Whether learners prepare batches for each other.
fn shares(program: &Program) -> bool {
    let first_come = program.averaging.is_some_and(|averaging| averaging.assignment == Assignment::FirstCome);
    first_come && program.roles[0].batches_ahead() > Some(0)
}

/// Koliousis et al. 2019, §4.5: each load follows the upload of the batch that it has claimed, by any learner,
/// and a learner begins a batch when all but as many as it has places for of those before are loaded, by anyone.
fn check_ring(program: &Program, runs: &Runs, claims: &[Claim]) {
    let (each, room) = (program.accumulate, u64::from(program.roles[0].batches_ahead().unwrap()));
    let pools = Pools::new(program.workers(), each, |_| 0);
    let task = |is: fn(&Op) -> bool| program.roles[0].tasks.iter().position(|task| is(&task.op)).unwrap() as u32;
    let [read, upload, load] = [
        task(|op| matches!(op, Op::Read { .. })),
        task(|op| matches!(op, Op::Upload { .. })),
        task(|op| matches!(op, Op::Load { .. })),
    ];
    let prepared = |(rank, number): (u32, u64), task: u32| {
        runs[&(rank, task, (number / u64::from(each)) as u32, (number % u64::from(each)) as u32)]
    };
    let mut repetitions: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    // By preparer: when its batches were loaded.
    let mut loads: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
    for claim in claims {
        let repetition = repetitions.entry((claim.rank, claim.iteration)).or_default();
        let (start, end) = runs[&(claim.rank, load, claim.iteration, *repetition)];
        let batch = pools.preparer(claim.iteration, claim.micro_batch);
        assert!(prepared(batch, upload).1 <= start, "{claim:?} begins before its batch is there");
        loads.entry(batch.0).or_default().push(end);
        *repetition += 1;
    }
    for (rank, mut loads) in loads {
        loads.sort_unstable();
        for number in room..loads.len() as u64 {
            let (start, _) = prepared((rank, number), read);
            assert!(loads[(number - room) as usize] <= start, "rank {rank} has no place for batch {number}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Reads, decodes and loads are the same runs of the same tasks on both sides, in an order that the program allows.
    #[test]
    fn input_is_the_same_tasks_predicted_and_executed(
        (strategy, mesh) in prop::sample::select(vec![
            ("ssgd", None), ("zero-2", None), ("hybrid:b", None), ("sma", None), ("sma:round-robin", None),
            ("sma:first-come", None), ("sma:tau=2:first-come", None), ("local-sgd:tau=3", None),
            ("ssgd", Some("data=2,pipeline=2")),
        ]),
        (workers, accumulate, ahead) in (2u32..=3, 1u32..=3, 0u32..3),
        transform_at in prop::sample::select(vec![TransformAt::Host, TransformAt::Device, TransformAt::WhenLate]),
        (form, seed) in (0usize..3, any::<u64>()),
    ) {
        // Devices transform decoded pictures alone.
        let transform_at = if form == 0 { transform_at } else { TransformAt::Host };
        let accumulate = if ["ssgd", "zero-2"].contains(&strategy) { accumulate } else { 1 };
        let mesh: Option<Mesh> = mesh.map(|mesh| mesh.parse().unwrap());
        let workers = mesh.as_ref().map_or(workers, Mesh::ranks);
        let strategy = strategy.parse().unwrap();
        let job = Job { strategy, accumulate, mesh, ahead: Some(ahead), transform_at, ..Job::new(coloured(), workers, 4) };
        let program = job.program().unwrap();
        let (data, _) = Dataset::load(every_form()[form], &job.model).unwrap();
        let steps = 5;
        let executed = run(&program, &data, &options(seed, steps)).unwrap();
        let executed = input_runs(&program, &executed.timeline, &executed.claims);
        let cluster = Cluster::load("workstation").unwrap();
        let placement = Placement::new(&cluster, program.ranks(), &PlacementRule::Pack).unwrap();
        let hosting = Hosting::new(&placement, &HostingRule::Single).unwrap();
        let input = Input {
            samples: data.len() as u64,
            sample_bytes: Bytes(2_000),
            source: match data.form() {
                SampleForm::Values => SampleSource::Memory { groups: 1, shuffle_every: None },
                _ => SampleSource::Files { bandwidth: "1GB/s".parse().unwrap(), latency: Time::ZERO, page_cache: Bytes(0) },
            },
            threads: 2,
            decode: Time::from_secs_f64(1e-3),
            decode_memory: 0.1,
            transform: Time::from_secs_f64(1e-4),
            prefetch: ahead,
            copied_by: CopiedBy::Load,
        };
        let conditions = Conditions { input: Some(input), ..Conditions::default() };
        let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
        let platform = Platform { network: NetworkModel::MaxMin, conditions: &conditions, ..platform };
        let counted = SimOptions { warm_up: 0, counted: steps, ..SimOptions::default() };
        let predicted = simulate(&program, &platform, counted.driver(), &counted).unwrap();
        let predicted = input_runs(&program, &predicted.timeline, &predicted.claims);
        prop_assert!(executed.keys().eq(predicted.keys()), "{executed:?} {predicted:?}");
        prop_assert!(executed.len() as u32 >= 4 * steps * accumulate);
    }
}

/// Koliousis et al. 2019, §4.5: where learners claim their batches, a batch is requested before it is claimed, if the
/// ring has a place for it.
#[test]
fn batches_are_prepared_before_they_are_claimed() {
    every_form().into_iter().for_each(claims_find_batches);
}

/// Checks the set with this name.
fn claims_find_batches(data: &str) {
    let job = Job { strategy: "sma:tau=3:first-come".parse().unwrap(), ahead: Some(2), ..Job::new(coloured(), 2, 4) };
    let program = job.program().unwrap();
    let (data, _) = Dataset::load(data, &job.model).unwrap();
    // Learner 1 continues with its first batch of an iteration when learner 0 has taken all of its own: three of the first
    // four of the pool, of which each has prepared two.
    let loads = [const { AtomicU32::new(0) }; 2];
    let slow = OnLoad(|rank: u32| {
        let own = loads[rank as usize].fetch_add(1, Ordering::SeqCst);
        while rank == 1 && own % 3 == 0 && loads[0].load(Ordering::SeqCst) < own + 3 {
            std::thread::sleep(Duration::from_micros(50));
        }
    });
    let done = run(&program, &data, &RunOptions { observer: &slow, ..options(3, 5) }).unwrap();
    let pools = Pools::new(2, 3, |_| 0);
    let read = program.roles[0].tasks.iter().position(|task| matches!(task.op, Op::Read { .. })).unwrap() as u32;
    let asked = |rank: u32, number: u64| {
        let of = |span: &&Span| (span.rank, span.task) == (rank, read);
        let (iteration, repetition) = ((number / 3) as u32, (number % 3) as u32);
        let own = done.timeline.spans.iter().filter(of);
        own.clone().find(|span| (span.iteration, span.repetition) == (iteration, repetition)).unwrap().ready
    };
    assert_eq!(done.claims.len(), 5 * 2 * 3);
    let mut of_learner = [0; 2];
    for claim in &done.claims {
        let (rank, number) = pools.preparer(claim.iteration, claim.micro_batch);
        let of_learner = &mut of_learner[claim.rank as usize];
        let nth = *of_learner % 3;
        *of_learner += 1;
        // The first ones are requested before any claim. Learner 1's second and third ones have a place at the latest
        // since it loaded its first. Others may be claimed while a batch of the iteration before waits for learner 1.
        if number < 2 || (claim.rank == 1 && nth > 0) {
            assert!(asked(rank, number) <= claim.at, "{claim:?}: the learner that claims it waits for all of it");
        }
    }
    let others = |claim: &&Claim| pools.preparer(claim.iteration, claim.micro_batch).0 != claim.rank;
    assert!(done.claims.iter().filter(others).count() >= 5, "learners take what others have prepared");
}
