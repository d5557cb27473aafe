//! What strategies are called, and the programs of learners.

use std::sync::Arc;

use lockstep_topology::Algorithm;

use super::*;
use crate::{After, AveragingRule, Bucket, Model, Op, Program, Stream, TaskId};

fn program(strategy: &str, workers: u32, change: impl Fn(&mut Job)) -> Program {
    let model = Arc::new(Model::load("lenet").expect("in the zoo"));
    let mut job = Job { strategy: strategy.parse().expect("a strategy"), ..Job::new(model, workers, 16) };
    change(&mut job);
    job.program().unwrap_or_else(|error| panic!("{strategy}: {error}"))
}

fn names(program: &Program) -> Vec<&str> {
    program.roles[0].tasks.iter().map(|task| task.name.as_str()).collect()
}

fn find(program: &Program, name: &str) -> TaskId {
    names(program).iter().position(|other| *other == name).unwrap_or_else(|| panic!("no task {name}"))
}

#[test]
fn names_are_read_as_they_are_written() {
    for text in [
        "ssgd",
        "sma",
        "sma:momentum=0.9",
        "sma:momentum=0.5:tau=2:alpha=0.25",
        "ea-sgd",
        "ea-sgd:tau=4",
        "sma:tau=2:first-come",
    ] {
        assert_eq!(text.parse::<Strategy>().unwrap().to_string(), text);
    }
    assert_eq!("sma:tau=1:alpha=0.5".parse::<Strategy>().unwrap().to_string(), "sma:alpha=0.5");
    for (text, message) in [
        ("sgd", "there are: ssgd, sma, ea-sgd"),
        ("ssgd:tau=2", "unknown strategy"),
        ("sma:mu=0.9", "write momentum=…, tau=…, alpha=… or first-come"),
        ("sma:tau=0", "at least 1"),
        ("sma:tau=2:tau=3", "stands twice"),
        ("sma:momentum=1", "below 1"),
        ("sma:alpha=0", "above 0"),
        ("sma:alpha=nan", "above 0"),
        ("ea-sgd:momentum=0.9", "is no setting"),
    ] {
        let error = text.parse::<Strategy>().unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
}

/// Koliousis et al. 2019, §4.2 and Fig. 8: a learning task needs its own local synchronisation alone, which needs the global
/// one of the iteration before; so the global one is free to overlap the next learning task.
#[test]
fn only_the_local_synchronisation_waits_for_the_average_model() {
    let program = program("sma", 4, |job| job.bucket = Bucket::Whole);
    assert_eq!(names(&program)[11..], ["correct conv1..dense2", "allreduce conv1..dense2", "average conv1..dense2"]);
    let tasks = &program.roles[0].tasks;
    assert!(tasks[..11].iter().all(|task| task.after.is_empty() && task.stream == Stream::Compute));
    assert_eq!((tasks[11].stream, tasks[11].after.as_slice()), (Stream::Compute, &[After { task: 13, lag: 1 }][..]));
    assert_eq!(tasks[12].stream, Stream::Exchange);
    assert_eq!(tasks[12].after, [After { task: 11, lag: 0 }, After { task: 12, lag: 1 }]);
    assert_eq!(
        (tasks[13].stream, tasks[13].after.as_slice()),
        (Stream::Synchronisation, &[After { task: 12, lag: 0 }][..])
    );
    let Op::Exchange(exchange) = &tasks[12].op else { panic!("an exchange") };
    assert_eq!((exchange.buffer, exchange.range.clone()), (Averaging::DIFFERENCES, 0..1_111_946));
    assert_eq!(program.averaging.unwrap().alpha, 0.25);
    assert_eq!((program.global_batch(), program.gradient_samples()), (64, 16));
}

#[test]
fn one_learner_averages_without_an_exchange() {
    let program = program("sma", 1, |job| job.bucket = Bucket::Whole);
    let (correct, average) = (find(&program, "correct conv1..dense2"), find(&program, "average conv1..dense2"));
    assert_eq!(program.roles[0].exchanges().count(), 0);
    assert_eq!(program.roles[0].tasks[average].after, [After { task: correct, lag: 0 }]);
    assert_eq!(program.roles[0].tasks[correct].after, [After { task: average, lag: 1 }]);
}

#[test]
fn learners_repeat_and_claim() {
    let repeat = |program: &Program| match program.roles[0].tasks[0].op {
        Op::Repeat { count, body, claimed } => Some((count, body, claimed)),
        _ => None,
    };
    // Descend, load, and eleven passes less the load.
    let fixed = program("ea-sgd:tau=3", 4, |_| ());
    assert_eq!((repeat(&fixed), fixed.global_batch()), (Some((3, 12, false)), 192));
    assert_eq!(fixed.roles[0].tasks[1].name, "descend conv1..dense2");
    assert!(matches!(fixed.roles[0].tasks[1].op, Op::Averaging { rule: AveragingRule::Descend, .. }));
    assert_eq!(repeat(&program("sma:tau=3:first-come", 4, |_| ())), Some((12, 12, true)));
    assert_eq!(repeat(&program("sma:first-come", 4, |_| ())), Some((4, 12, true)));
    assert_eq!(repeat(&program("sma", 4, |_| ())), None);
}

/// Each bucket is corrected, exchanged and averaged on its own, whatever performs the exchange.
#[test]
fn buckets_and_servers() {
    let dedicated: Algorithm = "parameter-server:1:dedicated".parse().unwrap();
    let program = program("sma", 3, |job| (job.bucket, job.algorithm) = (Bucket::Layer, dedicated.clone()));
    for layer in ["conv1", "conv2", "dense1", "dense2"] {
        let allreduce = find(&program, &format!("allreduce {layer}"));
        let correct = find(&program, &format!("correct {layer}"));
        let average = find(&program, &format!("average {layer}"));
        assert!(program.roles[0].tasks[allreduce].after.contains(&After { task: correct, lag: 0 }));
        assert!(program.roles[0].tasks[correct].after.contains(&After { task: average, lag: 1 }));
    }
    assert_eq!(program.roles[1].tasks.len(), 4);
}

#[test]
fn what_learners_cannot_do_is_refused() {
    let refused = |strategy: &str, change: fn(&mut Job)| {
        let model = Arc::new(Model::load("mlp").unwrap());
        let mut job = Job { strategy: strategy.parse().unwrap(), ..Job::new(model, 4, 16) };
        change(&mut job);
        job.program().unwrap_err().to_string()
    };
    assert!(refused("sma", |job| job.accumulate = 2).contains("tau in --strategy"));
    assert!(refused("sma:tau=4294967295", |_| ()).contains("smaller tau"));
}
