//! Tests that what a program lets overlap does overlap when it is executed: learning with the global synchronisation of
//! the iteration before (Koliousis et al. 2019, §4.2), and preparing samples with learning (§4.5).
//!
//! A rank is held until another one has gone on, so that these tests end only if nothing else waits; the order of spans
//! is asserted, and no time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::{OnLoad, Run, RunOptions, run};
use lockstep_models::{Job, Op, Program, Span};

use crate::learners::{data, job, optimizer};
use crate::packed::{coloured, every_form, options};

const STEPS: u32 = 6;

/// The runs of a rank's tasks whose name begins with `name`, in order.
fn spans<'r>(program: &Program, done: &'r Run, rank: u32, name: &str) -> Vec<&'r Span> {
    let role = &program.roles[program.role_of(rank)];
    let of = |span: &&Span| span.rank == rank && role.tasks[span.task as usize].name.starts_with(name);
    let mut spans: Vec<&Span> = done.timeline.spans.iter().filter(of).collect();
    spans.sort_by_key(|span| (span.iteration, span.repetition));
    spans
}

/// Learner 1 begins to learn only when learner 0 has loaded the batch of the second iteration. So the exchange of the
/// first one's differences, for which learner 0 has to wait, ends after learner 0 has begun to learn again.
#[test]
fn learning_overlaps_the_global_synchronisation_of_the_iteration_before() {
    let own = ["sma", "ea-sgd", "sma:first-come"].map(|strategy| job(strategy, 2));
    // Learner 0 also delivers the average model to learner 1.
    let shared = own.clone().map(|job| Job { learners: 2, node_sizes: Some(vec![2]), ..job });
    for job in own.into_iter().chain(shared) {
        let (strategy, program) = (&job.strategy, job.program().unwrap());
        let loads = [const { AtomicU32::new(0) }; 2];
        let slow = OnLoad(|rank: u32| {
            let own = loads[rank as usize].fetch_add(1, Ordering::SeqCst) + 1;
            // Later it makes progress on exchanges, as any thread does between two tasks.
            while rank == 1 && own == 1 && loads[0].load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let options = RunOptions {
            steps: STEPS,
            warm_up: 0,
            seed: 7,
            optimizer: optimizer(),
            observer: &slow,
            ..RunOptions::default()
        };
        let done = run(&program, &data(&program, 4), &options).unwrap();
        let of = |name| spans(&program, &done, 0, name);
        let (loads, corrects, exchanges, averages) = (of("load"), of("correct"), of("allreduce"), of("average"));
        for all in [&loads, &corrects, &exchanges, &averages] {
            assert_eq!(all.len() as u32, STEPS, "{strategy}");
        }
        assert!(loads[1].end <= exchanges[0].end, "{strategy}: learning waits for the exchange");
        for step in 1..STEPS as usize {
            let before = step - 1;
            assert!(corrects[before].end <= exchanges[before].start, "{strategy}, {step}: differences come first");
            assert!(exchanges[before].end <= averages[before].start, "{strategy}, {step}");
            assert!(averages[before].end <= corrects[step].start, "{strategy}, {step}: the average is not there yet");
        }
    }
}

/// With two batches ahead, threads begin a batch when the one two before is loaded, also while a rank is busy with the
/// one between, and a rank that is slow finds it ready.
#[test]
fn preparing_samples_overlaps_learning() {
    let strategies = ["ssgd", "sma", "sma:first-come", "sma:round-robin"];
    for (strategy, data) in strategies.into_iter().flat_map(|strategy| every_form().map(|data| (strategy, data))) {
        let job = Job { strategy: strategy.parse().unwrap(), ahead: Some(2), ..Job::new(coloured(), 2, 4) };
        let program = job.program().unwrap();
        let (data, _) = Dataset::load(data, &job.model).unwrap();
        let slow = OnLoad(|_| std::thread::sleep(Duration::from_millis(10)));
        let done = run(&program, &data, &RunOptions { observer: &slow, ..options(5, STEPS) }).unwrap();
        let mut overlaps = 0;
        for rank in 0..2 {
            let [reads, decodes, loads] = ["read", "decode", "load"].map(|name| spans(&program, &done, rank, name));
            assert!([&reads, &decodes, &loads].iter().all(|all| all.len() as u32 == STEPS), "{strategy}");
            for step in 2..STEPS as usize {
                if strategy != "sma:first-come" {
                    // It is requested before the load between begins to wait for its own.
                    assert!(reads[step].ready <= loads[step - 1].start, "{strategy}, {step}");
                }
                overlaps += u32::from(decodes[step].start < loads[step - 1].end);
            }
        }
        assert!(overlaps > 0, "{strategy}: threads decode only when a rank waits");
        assert!(program.roles[0].tasks.iter().any(|task| matches!(task.op, Op::Decode { .. })));
    }
}
