//! Runs every collective by every algorithm between threads: results, bits, traffic, and the end of a broken job.

mod cases;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_exec::exchange::RunningExchange;
use lockstep_exec::transport::{TransportError, memory};
use lockstep_topology::Rank;

use cases::{Case, Memory, Numbers, cases, run_all, run_together, verify};

fn memories(cases: &[Case], members: u32, numbers: Numbers) -> Vec<Vec<Memory>> {
    (0..members).map(|member| cases.iter().map(|case| Memory::new(case, member, numbers)).collect()).collect()
}

#[test]
fn every_member_ends_with_the_result_of_the_collective() {
    for members in 1..=9 {
        let cases = cases(members);
        let states = memories(&cases, members, Numbers::Integers);
        memory::run(states, 0, |end, memory| run_all(end, &cases, memory)).unwrap();
    }
}

#[test]
fn sums_have_the_reduction_order_of_the_checker() {
    for members in 1..=5 {
        let cases: Vec<Case> = cases(members).into_iter().filter(|case| case.reduction_order.is_some()).collect();
        assert!(cases.len() > 50);
        for numbers in [Numbers::Fractions, Numbers::Bf16] {
            let states = memories(&cases, members, numbers);
            memory::run(states, 0, |end, memory| run_all(end, &cases, memory)).unwrap();
        }
    }
}

#[test]
fn exchanges_in_flight_at_once_do_not_mix() {
    for members in [2, 5, 8] {
        let cases = cases(members);
        let states = memories(&cases, members, Numbers::Integers);
        memory::run(states, 0, |end, memory| run_together(end, &cases, memory)).unwrap();
    }
}

/// The fractional parts of the golden ratio's multiples, as a cheap seeded sequence.
fn pseudo_random(seed: u64, at: u64) -> u64 {
    (seed * 1_000 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[test]
fn delays_do_not_change_bits() {
    let members = 5;
    let pick =
        |case: &Case| case.reduction_order.is_none() && case.schedule.elements() == 1001 && case.schedule.lanes() > 3;
    let mut results = Vec::new();
    for seed in 0..4 {
        let cases: Vec<Case> = cases(members).into_iter().filter(pick).collect();
        assert!(cases.len() > 5);
        let states = memories(&cases, members, Numbers::Fractions);
        let result = memory::run(states, 0, |end, memory| {
            let ranks: Arc<[Rank]> = (0..members).map(Rank).collect();
            let member = end.rank().0;
            let mut bits = Vec::new();
            for (number, (case, memory)) in cases.iter().zip(memory).enumerate() {
                let delay = pseudo_random(seed, u64::from(member) * 100 + number as u64) % 2_000;
                std::thread::sleep(Duration::from_micros(if seed == 0 { 0 } else { delay }));
                memory.exchange(case, member, &ranks, 0).complete(end)?;
                bits.extend(memory.output().iter().map(|value| value.to_bits()));
            }
            Ok::<Vec<u32>, TransportError>(bits)
        });
        results.push(result.unwrap());
    }
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn a_restarted_exchange_runs_again_in_the_same_memory() {
    let members = 4;
    let all = cases(members);
    let case = all.iter().find(|case| case.algorithm.to_string() == "ring" && case.schedule.lanes() > 20).unwrap();
    let states: Vec<Memory> = (0..members).map(|member| Memory::new(case, member, Numbers::Integers)).collect();
    memory::run(states, 0, |end, memory| {
        let ranks: Arc<[Rank]> = (0..members).map(Rank).collect();
        let member = end.rank().0;
        let mut exchange = memory.exchange(case, member, &ranks, 3);
        exchange.complete(end)?;
        verify(case, member, memory, &exchange);
        let once: Vec<f32> = memory.output();
        for run in 1..5 {
            exchange.restart();
            exchange.complete(end)?;
            // All members held the sum, so each run multiplies it by their number.
            let factor = (members as f32).powi(run);
            assert!(memory.output().iter().zip(&once).all(|(now, once)| *now == once * factor));
        }
        let messages: u64 = exchange.sent().map(|(_, peer)| peer.messages).sum();
        assert_eq!(messages, 5 * case.schedule.messages(member));
        Ok::<(), TransportError>(())
    })
    .unwrap();
}

#[test]
fn a_rank_that_fails_in_the_middle_ends_all_others() {
    for (how, cause) in [("panic", "panic: lost"), ("error", "lost"), ("leave", "it ended with")] {
        let members = 5;
        let all = cases(members);
        let case = all.iter().find(|case| case.algorithm.to_string() == "ring" && case.schedule.lanes() > 20).unwrap();
        let states: Vec<Memory> = (0..members).map(|member| Memory::new(case, member, Numbers::Integers)).collect();
        let began = Instant::now();
        let error = memory::run(states, 0, |end, memory| {
            let ranks: Arc<[Rank]> = (0..members).map(Rank).collect();
            let mut exchange: RunningExchange = memory.exchange(case, end.rank().0, &ranks, 0);
            if end.rank() == Rank(2) {
                exchange.progress(end).map_err(|error| error.to_string())?;
                match how {
                    "panic" => panic!("lost"),
                    "error" => return Err("lost".to_owned()),
                    _ => return Ok(()),
                }
            }
            exchange.complete(end).map_err(|error| error.to_string())
        });
        let text = error.unwrap_err().to_string();
        // A rank that leaves after all its messages were received ends without an error.
        let missed = how == "leave" && text.ends_with("with rank 2, which has ended");
        assert!(missed || text.contains(&format!("rank 2 failed: {cause}")), "{how}: {text}");
        assert!(began.elapsed() < Duration::from_secs(5), "{how}");
    }
}
