//! Tests records that are read while they are written, and measures the cost of one.

use std::hint::black_box;
use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_models::{Job, median};

use super::*;
use crate::run::run;
use crate::setup::RunOptions;

#[test]
fn the_last_thousand_are_kept_while_others_read() {
    let job = Job::new(Arc::new(lockstep_readers::load_model("mlp").unwrap()), 2, 4);
    let program = job.program().unwrap();
    let flights = Flights::new(&program, 0, 0..2);
    let recorder = flights.of(1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // An operation's iteration and times all follow from its number, so a reader can detect a torn one.
            for number in 0..200_000u64 {
                let at = Time(2 * number + 1);
                let noted = recorder.begin(0, number as u32, at);
                recorder.end(noted, Time(at.0 + 1));
            }
        });
        while !writer.is_finished() {
            let flight = flights.read_one(recorder, Time(0));
            // The newest may be half written.
            let whole = flight.operations.len().saturating_sub(1);
            for operation in &flight.operations[..whole] {
                let begun = (2 * operation.number + 1) as f64 * 1e-12;
                assert_eq!((operation.step, operation.begun_s), (operation.number, begun));
            }
        }
    });
    let flight = &flights.read()[1];
    let numbers: Vec<u64> = flight.operations.iter().map(|operation| operation.number).collect();
    assert_eq!(numbers, (199_000..200_000).collect::<Vec<_>>());
    assert!(flight.operations.iter().all(|operation| operation.ended_s.is_some()));
    // An entry that has left the ring cannot be ended any more.
    recorder.end(5, Time(77));
    assert!(flights.read()[1].operations.iter().all(|operation| operation.ended_s != Some(77e-12)));
    assert!(flights.read()[0].operations.is_empty() && !flights.all_over());
    drop((flights.of(0).closing(), recorder.closing()));
    assert!(flights.all_over());
}

/// The cost of recording an operation, relative to the operation:
/// `cargo test --release -p lockstep-exec --lib cost_of_a_record -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: run it alone, with --release"]
fn cost_of_a_record() {
    const ROUNDS: usize = 101;
    const OPERATIONS: u64 = 100_000;
    let job = Job::new(Arc::new(lockstep_readers::load_model("mlp").unwrap()), 1, 1);
    let program = job.program().unwrap();
    let flights = Flights::new(&program, 0, 0..1);
    let recorder = flights.of(0);
    let round = |_| {
        let start = Instant::now();
        for number in 0..OPERATIONS {
            let noted = recorder.begin(black_box(0), number as u32, black_box(Time(2 * number + 1)));
            recorder.end(black_box(noted), Time(2 * number + 2));
        }
        start.elapsed().as_nanos() as f64 / OPERATIONS as f64
    };
    let record_ns = median((0..ROUNDS).map(round).collect());
    // The smallest step of the zoo: one sample, one rank.
    let (data, _) = Dataset::load("synthetic:600", &program.model).unwrap();
    let trained = run(&program, &data, &RunOptions { steps: 500, warm_up: 100, ..RunOptions::default() }).unwrap();
    let operations = program.roles[0].tasks.len() as f64;
    let step_ns = trained.timeline.step_time_s() * 1e9;
    println!(
        "a record: {record_ns:.1} ns; a step of mlp on one sample: {:.1} us for {operations} operations, of which records are {:.2} %",
        step_ns * 1e-3,
        100.0 * operations * record_ns / step_ns
    );
    assert!(record_ns > 0.0 && step_ns > 0.0);
}
