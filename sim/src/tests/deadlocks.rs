//! Tests that programs that cannot end report which rank waits for which.

use lockstep_models::{Bucket, Op};

use super::*;
use crate::WaitsFor;

fn dedicated() -> Program {
    let algorithm = "parameter-server:1:dedicated".parse().expect("known");
    program(&Job { bucket: Bucket::Layer, algorithm, ..mlp(2) })
}

#[test]
fn a_server_that_leaves_an_exchange_out() {
    let mut program = dedicated();
    let server = &mut program.roles[1].tasks;
    assert!(server.len() > 1 && matches!(server[0].op, Op::Exchange(_)));
    server.remove(0);
    for task in server.iter_mut() {
        task.after.clear();
    }
    let world = World::host(3, 3);
    let error = world.predict(&program, &Flat::default(), &SimOptions::default()).expect_err("no server runs");
    let SimError::Deadlock(waiting) = &error else { panic!("{error}") };
    let exchange = program.roles[0].exchanges().next().map(|(id, _)| program.roles[0].tasks[id].name.clone());
    assert_eq!(Some(&waiting[0].task), exchange.as_ref());
    assert_eq!((waiting[0].rank, &waiting[0].waits_for), (0, &WaitsFor::Message(2)));
    let text = error.to_string();
    assert!(text.starts_with("deadlock: rank 0 waits in `allreduce"), "{text}");
    assert!(text.contains("for a message from rank 2, which"), "{text}");
}

#[test]
fn a_server_that_takes_part_in_nothing() {
    let mut program = dedicated();
    program.roles[1].tasks.clear();
    let error =
        World::host(3, 3).predict(&program, &Flat::default(), &SimOptions::default()).expect_err("no server runs");
    assert!(error.to_string().ends_with("from rank 2, which has ended"), "{error}");
}

#[test]
fn a_task_that_waits_for_itself() {
    let mut program = program(&mlp(1));
    let update = program.roles[0].tasks.len() - 1;
    program.roles[0].tasks[0].after.push(lockstep_models::After { task: update, lag: 0 });
    let error = World::host(1, 1).predict(&program, &Flat::default(), &SimOptions::default()).expect_err("a circle");
    let SimError::Deadlock(waiting) = &error else { panic!("{error}") };
    assert!(matches!(waiting[0].waits_for, WaitsFor::Task(_)), "{error}");
}

#[test]
fn costs_that_are_not_finite() {
    for figure in [f64::NAN, -1.0, f64::INFINITY, 1e9] {
        let costs = Flat { forward: figure, ..Flat::default() };
        let error = World::host(1, 1).predict(&program(&mlp(1)), &costs, &SimOptions::default()).expect_err("refused");
        assert!(matches!(&error, SimError::Input(input) if !input.message.is_empty()), "{error}");
        let costs = Flat { message: MessageCost { sum: figure, ..MessageCost::default() }, ..Flat::default() };
        if figure < 1e8 || !figure.is_finite() {
            World::host(2, 2).predict(&program(&mlp(2)), &costs, &SimOptions::default()).expect_err("refused");
        }
    }
}

#[test]
fn too_few_places_for_ranks() {
    let error = World::host(2, 1).predict(&program(&mlp(2)), &Flat::default(), &SimOptions::default());
    assert!(matches!(error, Err(SimError::Input(_))));
}
