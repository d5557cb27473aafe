//! Runs the test cases of the memory transport under `mpirun`, and tests how a job of several processes ends when
//! something breaks.
//!
//! One program in two parts: started by `cargo test` it starts `mpirun` on itself for each scenario and checks the exit
//! code, the time and the output; started by `mpirun` (first argument `rank`) it is one process of the scenario.

#[path = "../collectives/cases.rs"]
mod cases;
mod claims;
mod decoders;
mod launch;
mod pins;
mod stages;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::{Mode, Threads};
use lockstep_exec::exchange::RunningExchange;
use lockstep_exec::replica::Replica;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::transport::{Combine, Region, RegionMut, Tag, Transport, TransportError, control};
use lockstep_models::{Bucket, Job, Op, Phase, random_model};
use lockstep_topology::Rank;

use cases::{Case, Memory, Numbers, cases, run_all, run_together};
use launch::Scenario;

/// The process of each rank; one process per rank where the list counts up.
const HOSTS: [&[u32]; 8] =
    [&[0], &[0, 1], &[0, 1, 2], &[0, 1, 2, 3, 4], &[0, 0, 0], &[0, 0, 1, 1], &[0, 1, 0, 1, 1], &[0, 0, 1, 2, 2, 2]];

/// What breaks in rank 1, and the message that must appear.
const FAILURES: [(&str, &str); 5] = [
    ("panic", "lost its way"),
    ("error", "lockstep: rank 1 failed: lost its way; the job ends"),
    ("leave", "lockstep: rank 1 failed: it ended with messages open; the job ends"),
    ("kill", "signal 9"),
    ("exit", "lost its way"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "rank", scenario, hosts] => in_process(scenario, hosts),
        _ => launch::all(&scenarios()),
    }
}

/// All scenarios, and how each must end.
fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for hosts in HOSTS {
        for name in ["each", "narrow", "together", "small", "library", "claims", "stages"] {
            // The library supports one rank in each process; claims within one process are not tested here.
            let runs = match name {
                "library" => hosts.is_sorted_by(|a, b| a < b),
                "claims" => hosts.iter().any(|host| *host > 0),
                // One stage per rank, or half as many; the model has layers for three.
                "stages" => [2, 3, 4, 6].contains(&hosts.len()),
                _ => true,
            };
            if runs {
                all.push(Scenario::new(name, hosts, None));
            }
        }
    }
    for (name, message) in FAILURES {
        all.push(Scenario::new(name, &[0, 1, 2], Some(message)));
        // A process's signal or exit affects all its ranks.
        all.push(Scenario::new(name, &[0, 1, 1, 2], Some(message.split("1 failed").last().unwrap_or(message))));
    }
    // A rank in each process, and two in each.
    for hosts in [&[0, 1][..], &[0, 1, 2, 3], &[0, 0, 1, 1]] {
        all.push(Scenario::new("decoders", hosts, None));
    }
    all.extend(pins::scenarios());
    all
}

/// One process of a scenario.
fn in_process(scenario: &str, hosts: &str) -> ExitCode {
    let hosts: Vec<u32> = hosts.split(',').map(|host| host.parse().unwrap()).collect();
    let members = hosts.len() as u32;
    let mut processes = Processes::join().unwrap();
    match scenario {
        "claims" => {
            claims::claims(&mut processes, &hosts);
            return ExitCode::SUCCESS;
        }
        "stages" => {
            stages::stages(&mut processes, &hosts);
            return ExitCode::SUCCESS;
        }
        "decoders" => {
            decoders::decoders(&mut processes, &hosts);
            return ExitCode::SUCCESS;
        }
        "pins" => {
            pins::pins(&mut processes, &hosts);
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let all = cases(members);
    let process = processes.process();
    let mine = (0..members).filter(|rank| hosts[*rank as usize] == process);
    let numbers = match scenario {
        "each" | "together" => Numbers::Integers,
        "narrow" => Numbers::Bf16,
        _ => Numbers::Fractions,
    };
    let states: Vec<Vec<Memory>> =
        mine.map(|member| all.iter().map(|case| Memory::new(case, member, numbers)).collect()).collect();
    let done = processes.run(&hosts, 0, states, |end, memory| -> Result<(), TransportError> {
        match scenario {
            "each" | "narrow" => run_all(end, &all, memory),
            "together" => run_together(end, &all, memory),
            "small" => small(end),
            "library" => library(end),
            broken => fail(end, &all, memory, broken),
        }
    });
    done.unwrap();
    ExitCode::SUCCESS
}

/// Barriers, control messages, empty messages, messages of several pieces.
fn small(end: &mut dyn Transport) -> Result<(), TransportError> {
    let (rank, ranks) = (end.rank().0, end.ranks());
    for _ in 0..20 {
        control::barrier(end)?;
    }
    let (next, previous) = (Rank((rank + 1) % ranks), Rank((rank + ranks - 1) % ranks));
    let value = u64::MAX - u64::from(rank);
    assert_eq!(control::swap(end, next, previous, 5, value)?, u64::MAX - u64::from(previous.0));
    for elements in [0, 1, 128 * 1024, 300_001] {
        // Leaked, because an error may leave messages open.
        let data = Vec::leak((0..elements).map(|i| (i % 1000) as f32 + rank as f32).collect());
        let into = Vec::leak(vec![1.0f32; elements]);
        let scratch = Vec::leak(vec![f32::NAN; elements]);
        // SAFETY: leaked memory outlives the transport, and has no other user.
        let (region, target, between) = unsafe {
            (
                Region::new(data.as_ptr(), elements),
                RegionMut::new(into.as_mut_ptr(), elements),
                RegionMut::new(scratch.as_mut_ptr(), elements),
            )
        };
        let received = end.post_recv(previous, Tag::exchange(7, 1), target, Combine::Sum, between)?;
        let sent = end.post_send(next, Tag::exchange(7, 1), region)?;
        let (mut got, mut gone) = (false, false);
        while !got || !gone {
            end.poll()?;
            got = got || end.recv_done(received)?;
            gone = gone || end.send_done(sent)?;
            if !got || !gone {
                end.wait(None)?;
            }
        }
        assert!((0..elements).all(|i| into[i] == (i % 1000) as f32 + previous.0 as f32 + 1.0));
    }
    other_formats(end)
}

/// Bytes and words from rank 0 to every other: of no length, of less than a word, and of several pieces.
fn other_formats(end: &mut dyn Transport) -> Result<(), TransportError> {
    for elements in [0usize, 5, 300_001] {
        let bytes: Vec<u8> = (0..elements).map(|index| (index % 251) as u8).collect();
        // Among them the bits of signalling NaNs.
        let words: Vec<u32> = (0..elements as u32).map(|index| 0x7f80_0001 ^ index.rotate_left(7)).collect();
        if end.rank().0 == 0 {
            for other in (1..end.ranks()).map(Rank) {
                control::send_elements(end, other, 6, bytes.clone())?;
                control::send_elements(end, other, 7, words.clone())?;
            }
        } else {
            assert_eq!(control::receive_elements::<u8>(end, Rank(0), 6, elements)?, bytes);
            assert_eq!(control::receive_elements::<u32>(end, Rank(0), 7, elements)?, words);
        }
    }
    Ok(())
}

/// The library's allreduce, over all and over some.
fn library(end: &mut dyn Transport) -> Result<(), TransportError> {
    let (rank, ranks) = (end.rank().0, end.ranks());
    let sum = |members: &[Rank], i: usize| members.iter().map(|m| (m.0 as usize * 3 + i % 50) as f32).sum::<f32>();
    let all: Vec<Rank> = (0..ranks).map(Rank).collect();
    let even: Vec<Rank> = (0..ranks).step_by(2).map(Rank).collect();
    for members in [&all, &even, &all] {
        if !members.contains(&Rank(rank)) {
            continue;
        }
        let data: &mut [f32] = Vec::leak((0..10_001).map(|i| (rank as usize * 3 + i % 50) as f32).collect());
        // SAFETY: leaked memory outlives the transport, and has no other user.
        end.library_allreduce(members, unsafe { RegionMut::new(data.as_mut_ptr(), data.len()) })?;
        assert!((0..data.len()).all(|i| data[i] == sum(members, i)));
    }
    library_step(end)
}

/// One step's gradients summed by the library: within the rounding of its k − 1 additions in any order, twice over.
fn library_step(end: &mut dyn Transport) -> Result<(), TransportError> {
    let ranks = end.ranks();
    let model = Arc::new(random_model(5, true));
    let algorithm = "library:mpi".parse().expect("an algorithm");
    let job = Job { algorithm, bucket: Bucket::Whole, ..Job::new(model, ranks, 4) };
    let program = job.program().unwrap();
    let (data, _) = Dataset::load("synthetic:200", &program.model).unwrap();
    let mut replica = Replica::new(&program, 1, &Threads::one());
    let mut gradient = |rank: u32| -> Vec<f32> {
        replica.load(&data, &[4 * rank, 4 * rank + 1, 4 * rank + 2, 4 * rank + 3], 4 * u64::from(rank)).unwrap();
        for task in &program.roles[0].tasks {
            match task.op {
                Op::Compute { chain, phase: Phase::Forward, .. } => {
                    replica.forward(chain, Mode::Train).unwrap();
                }
                Op::Compute { chain, phase, .. } => {
                    replica.backward(chain, phase, 1.0 / (4 * ranks) as f32, false).unwrap();
                }
                _ => {}
            }
        }
        replica.gradients().unwrap()
    };
    let all: Vec<Vec<f32>> = (0..ranks).map(&mut gradient).collect();
    let own: &mut [f32] = Vec::leak(all[end.rank().0 as usize].clone());
    let members: Vec<Rank> = (0..ranks).map(Rank).collect();
    // SAFETY: leaked memory outlives the transport, and has no other user.
    end.library_allreduce(&members, unsafe { RegionMut::new(own.as_mut_ptr(), own.len()) })?;
    for (i, sum) in own.iter().enumerate() {
        let exact: f64 = all.iter().map(|g| f64::from(g[i])).sum();
        let size: f64 = all.iter().map(|g| f64::from(g[i]).abs()).sum();
        let bound = 2.0 * f64::from(ranks - 1) * 2f64.powi(-24) * size;
        assert!((f64::from(*sum) - exact).abs() <= bound, "element {i}: {sum} for {exact}, bound {bound}");
    }
    assert!(own.iter().any(|sum| *sum != 0.0));
    Ok(())
}

/// All start an exchange; rank 1 does not finish it.
fn fail(end: &mut dyn Transport, all: &[Case], memory: &mut [Memory], how: &str) -> Result<(), TransportError> {
    let at = all.iter().position(|case| case.algorithm.to_string() == "ring" && case.schedule.lanes() > 20).unwrap();
    let ranks: Arc<[Rank]> = (0..end.ranks()).map(Rank).collect();
    let mut exchange: RunningExchange = memory[at].exchange(&all[at], end.rank().0, &ranks, 0);
    if end.rank() != Rank(1) {
        return exchange.complete(end);
    }
    std::thread::sleep(Duration::from_millis(100));
    exchange.progress(end)?;
    match how {
        "panic" => panic!("lost its way"),
        "error" => Err(TransportError::Unsupported("lost its way".to_owned())),
        "leave" => Ok(()),
        "kill" => {
            let number = std::process::id().to_string();
            std::process::Command::new("kill").args(["-9", &number]).status().unwrap();
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        _ => {
            eprintln!("lost its way");
            std::process::exit(3);
        }
    }
}
