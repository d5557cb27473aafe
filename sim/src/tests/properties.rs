//! Tests properties of any program: everything runs as often as it should and in order, and so does every message of
//! every schedule.

use std::collections::BTreeMap;

use lockstep_models::{Bucket, Op, Stream, random_model};
use lockstep_topology::Action;
use proptest::prelude::*;

use super::*;
use crate::Sent;

/// Algorithms that serve an allreduce, and forms that differ from a registry's example.
fn algorithms() -> Vec<Algorithm> {
    let forms = ["multi-color:2", "parameter-server:1:dedicated", "hierarchical:halving-doubling"];
    let all = Algorithm::all().filter(|algorithm| algorithm.serves(&Collective::AllReduce));
    all.chain(forms.map(|form| form.parse().expect("known"))).collect()
}

/// The reference of the traffic: every step of every lane of every exchange, expanded.
fn expanded(program: &Program, iterations: u64) -> BTreeMap<(u32, u32), Sent> {
    let mut pairs: BTreeMap<(u32, u32), Sent> = BTreeMap::new();
    for (_, exchange) in program.roles[0].exchanges() {
        let schedule = program.schedule(exchange, 0).expect("checked");
        for (member, lane) in (0..schedule.members()).flat_map(|m| (0..schedule.lanes()).map(move |lane| (m, lane))) {
            for step in schedule.lane(member, lane).filter(|step| step.action == Action::Send) {
                let sent = pairs.entry((member, step.peer)).or_default();
                sent.messages += iterations;
                sent.bytes += iterations * 4 * step.elements();
            }
        }
    }
    pairs
}

fn jobs() -> impl Strategy<Value = (Job, u32, Flat)> {
    let sizes = (
        0u64..1000,
        1u32..8,
        1u32..4,
        1u32..4,
        proptest::sample::select(algorithms()),
        0usize..4,
        0u64..3,
        any::<bool>(),
    );
    let costs = (0.0..1e-3, 0.0..1e-3, 0.0..1e-4, 0.0..1.0, 0.0..1e-5, 0.0..1e-6, 0.0..1e-8, 0.0..1e-8, 0.0..1.0);
    (sizes, 1u32..5, costs).prop_map(
        |((seed, workers, accumulate, concurrent, algorithm, bucket, chunk, fuse), cores, c)| {
            let mut job = Job::new(Arc::new(random_model(seed, seed % 2 == 0)), workers, 2);
            job.accumulate = accumulate;
            job.concurrent_exchanges = if algorithm.library().is_some() { 1 } else { concurrent };
            job.algorithm = algorithm;
            job.bucket = [Bucket::Layer, Bucket::Whole, Bucket::Size(Bytes(512)), Bucket::Tensor][bucket];
            job.chunk = (chunk > 0).then_some(Bytes(64 * chunk));
            job.fuse = fuse;
            let (latency, overhead, copy, sum, share) = (c.4, c.5, c.6, c.7, c.8);
            let message =
                MessageCost { latency, overhead, copy, sum, memory: share, eager_bytes: 256, ..MessageCost::default() };
            (job, cores, Flat { forward: c.0, backward: c.1, update: c.2, memory: c.3, message, load: 0.0 })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_program_runs_to_its_end((job, cores, costs) in jobs()) {
        let program = program(&job);
        let options = SimOptions { warm_up: 1, counted: 2, threads_per_rank: 1, fold: FoldRule::Never, max_spans: usize::MAX, ..SimOptions::SHORT };
        let cores = cores.max(program.ranks().div_ceil(4));
        for world in [World::host(cores, program.ranks()), World::star(program.ranks())] {
            let prediction = world.predict(&program, &costs, &options);
            prop_assert!(prediction.is_ok(), "{:?}", prediction.err().map(|error| error.to_string()));
            let Prediction { timeline, traffic, .. } = prediction.expect("as asserted");
            prop_assert_eq!(&traffic.pairs, &expanded(&program, 3));
            for rank in 0..program.ranks() {
                let role = &program.roles[program.role_of(rank)];
                let spans: Vec<_> = timeline.spans.iter().filter(|span| span.rank == rank).collect();
                for (id, task) in role.tasks.iter().enumerate() {
                    let runs = if matches!(task.op, Op::Repeat { .. }) { 0 } else { 3 * role.runs_of(id) };
                    prop_assert_eq!(spans.iter().filter(|span| span.task as usize == id).count() as u32, runs, "{}", task.name);
                }
                prop_assert!(spans.iter().all(|span| span.ready <= span.start && span.start <= span.end));
                // A compute stream does one thing at a time, in program order.
                let compute = spans.iter().filter(|span| role.tasks[span.task as usize].stream == Stream::Compute);
                let compute: Vec<_> = compute.collect();
                prop_assert!(compute.windows(2).all(|pair| pair[0].end <= pair[1].start));
                // Nothing starts before what it is after.
                for span in &spans {
                    for after in &role.tasks[span.task as usize].after {
                        let Some(earlier) = span.iteration.checked_sub(after.lag) else { continue };
                        let before = spans.iter().filter(|other| other.task as usize == after.task && other.iteration == earlier);
                        let done = before.map(|other| other.end).max();
                        prop_assert!(done.is_none_or(|done| done <= span.start), "{}", role.tasks[span.task as usize].name);
                    }
                }
            }
        }
    }
}
