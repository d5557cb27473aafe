//! Tests learners of several processes with first-come assignment: each batch is learned once, the slow learner gets
//! fewest, and a replay of the claims, on threads or in processes, trains the same bits.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::time::Duration;

use lockstep_exec::data::Dataset;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::transport::{TransportError, control};
use lockstep_exec::{OnLoad, RunOptions, run, run_processes};
use lockstep_models::{Bucket, Claim, Job, random_model};
use lockstep_topology::{Rank, Time};

/// Batches of each learner in an iteration.
const TAU: u64 = 4;
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

    // All processes have one parent, whose process id names a file that they share: a byte for each batch taken.
    let taken = std::env::temp_dir().join(format!("lockstep-claims-{}", parent_id()));
    let each = u64::from(learners) * TAU;
    let slow = OnLoad(|rank: u32| {
        OpenOptions::new().append(true).create(true).open(&taken).unwrap().write_all(&[0]).unwrap();
        let so_far = || fs::metadata(&taken).unwrap().len();
        let number = so_far();
        // Learner 1 continues when the others have taken the rest of the iteration's batches, however fast they are.
        while rank == 1 && so_far() < number.next_multiple_of(each) {
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    let options = RunOptions { steps: STEPS, warm_up: 0, seed: 3, observer: &slow, ..RunOptions::default() };
    let done = run_processes(processes, hosts, &program, &data, &options).unwrap();
    let record = share(processes, hosts, done.as_ref().map(|done| done.claims.as_slice()));
    let replay = RunOptions { observer: &(), replay: Some(&record), ..options };
    let again = run_processes(processes, hosts, &program, &data, &replay).unwrap();
    let Some(done) = done else { return };
    fs::remove_file(&taken).unwrap();
    let mut batches: Vec<(u32, u32)> = record.iter().map(|claim| (claim.iteration, claim.micro_batch)).collect();
    batches.sort_unstable();
    assert!(batches.into_iter().eq((0..STEPS).flat_map(|step| (0..each as u32).map(move |batch| (step, batch)))));
    assert!(record.iter().filter(|claim| claim.rank == 1).count() <= STEPS as usize, "{record:?}");
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
