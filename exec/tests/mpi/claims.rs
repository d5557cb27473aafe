//! Tests learners of several processes with first-come assignment: each batch is learned once and by a learner of its
//! process, each learner gets equally many, and a replay of the claims, on threads or in processes, trains the same
//! bits.

use std::sync::Arc;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::transport::{TransportError, control};
use lockstep_exec::{OnLoad, RunOptions, run, run_processes};
use lockstep_models::{Bucket, Claim, Job, random_model};
use lockstep_topology::{Rank, Time};

/// Batches of each learner in an iteration.
const TAU: u32 = 4;
const STEPS: u32 = 5;
/// Kind of the messages that carry claims.
const CLAIMS: u32 = 5;

/// One process's part.
pub(crate) fn claims(processes: &mut Processes, hosts: &[u32]) {
    let learners = hosts.len() as u32;
    let strategy = format!("sma:tau={TAU}:first-come").parse().unwrap();
    let model = Arc::new(random_model(3, true));
    let job = Job { strategy, bucket: Bucket::Layer, ..Job::new(model, learners, 2) };
    let program = job.program().unwrap();
    let (data, _) = Dataset::load("synthetic:400", &program.model).unwrap();

    let each = learners * TAU;
    let slow = OnLoad(|rank: u32| std::thread::sleep(Duration::from_millis(if rank == 1 { 2 } else { 0 })));
    let options = RunOptions { steps: STEPS, warm_up: 0, seed: 3, observer: &slow, ..RunOptions::default() };
    let done = run_processes(processes, hosts, &program, &data, &options).unwrap();
    let record = share(processes, hosts, done.as_ref().map(|done| done.claims.as_slice()));
    let replay = RunOptions { observer: &(), replay: Some(&record), ..options };
    let again = run_processes(processes, hosts, &program, &data, &replay).unwrap();
    let Some(done) = done else { return };
    let mut batches: Vec<(u32, u32)> = record.iter().map(|claim| (claim.iteration, claim.micro_batch)).collect();
    batches.sort_unstable();
    assert!(batches.into_iter().eq((0..STEPS).flat_map(|step| (0..each).map(move |batch| (step, batch)))));
    for claim in &record {
        let owner = claim.micro_batch / TAU;
        assert_eq!(hosts[owner as usize], hosts[claim.rank as usize], "a process takes its own batches: {claim:?}");
        let same = record.iter().filter(|other| (other.iteration, other.rank) == (claim.iteration, claim.rank));
        assert_eq!(same.count() as u32, TAU, "{record:?}");
    }
    let again = again.expect("rank 0 has a result of each run");
    let on_threads = run(&program, &data, &replay).unwrap();
    for other in [&again, &on_threads] {
        assert_eq!((&other.weights_sha256, &other.state_sha256), (&done.weights_sha256, &done.state_sha256));
    }
    assert_eq!((again.claims.len(), on_threads.claims.len()), (record.len(), record.len()));
}

/// Broadcasts rank 0's value to every process.
fn share(processes: &mut Processes, hosts: &[u32], own: Option<&[Claim]>) -> Vec<Claim> {
    let here = hosts.iter().filter(|host| **host == processes.process()).count();
    let received = processes.run(hosts, 0, vec![(); here], |end, ()| -> Result<Vec<Claim>, TransportError> {
        let Some(own) = own.filter(|_| end.rank() == Rank(0)) else {
            let count = control::receive(end, Rank(0), CLAIMS)?;
            return (0..count).map(|_| Ok(unpacked(control::receive(end, Rank(0), CLAIMS)?))).collect();
        };
        for rank in (1..end.ranks()).map(Rank) {
            control::send(end, rank, CLAIMS, own.len() as u64)?;
            for claim in own {
                control::send(end, rank, CLAIMS, packed(claim))?;
            }
        }
        Ok(own.to_vec())
    });
    received.unwrap().swap_remove(0)
}

/// A claim without its time, which does not affect the assignment.
fn packed(claim: &Claim) -> u64 {
    u64::from(claim.iteration) << 32 | u64::from(claim.rank) << 16 | u64::from(claim.micro_batch)
}

fn unpacked(word: u64) -> Claim {
    let sixteen = |shift: u32| (word >> shift) as u32 & 0xffff;
    Claim { iteration: (word >> 32) as u32, rank: sixteen(16), micro_batch: sixteen(0), at: Time::ZERO }
}
