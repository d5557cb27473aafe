//! Assigns batches to learners: each process has a driver for its own, so a claim needs no message.
//!
//! Claims are collected on rank 0 when the state is saved and at the end.

use std::cell::Cell;
use std::sync::PoisonError;
use std::time::Duration;

use lockstep_models::{Claim, ClaimAnswer, Driver, Observation};

use super::{Setup, Worker};
use crate::error::ExecError;

/// Interval between retries of a rank that waits for its turn.
const NAP: Duration = Duration::from_micros(50);

impl Setup<'_> {
    /// Which learner got which micro-batch in the first `iterations`; `all` are the claims of all ranks.
    pub(crate) fn claims(&self, iterations: u32, mut all: Vec<Claim>) -> Vec<Claim> {
        if let Some(record) = self.replay {
            all = record.to_vec();
        }
        all.retain(|claim| claim.iteration < iterations);
        all
    }
}

impl Worker<'_> {
    /// This rank's claims so far.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let rank = self.transport.rank().0;
        let driver = self.setup.driver.lock().unwrap_or_else(PoisonError::into_inner);
        driver.record().iter().filter(|claim| claim.rank == rank).copied().collect()
    }

    /// Takes a batch for the current iteration, which is a number within it.
    pub(super) fn claim(&mut self) -> Result<u32, ExecError> {
        let (rank, iteration) = (self.transport.rank().0, self.iteration);
        let answer = Cell::new(None);
        self.wait_napping(NAP, |worker| {
            // The time is that of the answer, so that claims of a process are in the order of their times.
            let ask = |driver: &mut Driver| driver.claim(&Observation { rank, iteration, at: worker.now() });
            if let ClaimAnswer::Take(batch) = worker.driver(ask) {
                answer.set(Some(batch));
            }
            answer.get().is_some()
        })?;
        Ok(answer.get().expect("waited for"))
    }

    /// While no exchange runs, the rank whose turn it is.
    pub(super) fn missing_claims(&self) -> Option<u32> {
        let rank = self.transport.rank().0;
        let idle = self.slots.iter().all(|slot| !slot.running);
        self.driver(|driver| driver.turn(rank)).filter(|turn| idle && *turn != rank)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Assignment, Bucket, Job, random_model};

    use super::*;
    use crate::observer::OnLoad;
    use crate::run::{on_threads, run};
    use crate::setup::RunOptions;
    use lockstep_data::Dataset;

    /// Each batch is assigned once whatever processes the learners run in, and a replay trains the same bits.
    #[test]
    fn claims_are_of_the_own_process_and_are_replayed() {
        let slow = OnLoad(|rank: u32| std::thread::sleep(Duration::from_millis(if rank == 2 { 3 } else { 0 })));
        for (strategy, hosts) in [
            ("sma:tau=2:first-come", [0, 1, 2, 3]),
            ("sma:first-come", [0, 0, 1, 1]),
            ("ea-sgd:tau=3:first-come", [0, 1, 0, 1]),
            ("sma:tau=2:round-robin", [0, 1, 2, 0]),
        ] {
            let strategy = strategy.parse().unwrap();
            let model = Arc::new(random_model(3, true));
            let program = Job { strategy, bucket: Bucket::Layer, ..Job::new(model, 4, 2) }.program().unwrap();
            let data = Dataset::load("synthetic:200", &program.model).unwrap().0;
            let options = RunOptions { steps: 5, warm_up: 0, seed: 3, observer: &slow, ..RunOptions::default() };
            let done = on_threads(&program, &data, &options, Some(&hosts)).unwrap();
            let mut batches: Vec<_> = done.claims.iter().map(|claim| (claim.iteration, claim.micro_batch)).collect();
            batches.sort_unstable();
            let each = 4 * program.accumulate;
            let all: Vec<_> = (0..5).flat_map(|iteration| (0..each).map(move |batch| (iteration, batch))).collect();
            assert_eq!(batches, all, "{hosts:?}");
            for claim in done.claims.iter().filter(|_| program.averaging.unwrap().assignment == Assignment::FirstCome) {
                let owner = (claim.micro_batch / program.accumulate) as usize;
                assert_eq!(hosts[owner], hosts[claim.rank as usize], "{claim:?}");
            }
            assert_eq!(done.notes.len(), usize::from(hosts == [0, 1, 2, 3]), "{:?}", done.notes);
            let replay = RunOptions { observer: &(), replay: Some(&done.claims), ..options };
            assert_eq!(run(&program, &data, &replay).unwrap().state_sha256, done.state_sha256);
            let again = on_threads(&program, &data, &replay, Some(&hosts)).unwrap();
            assert_eq!((&again.state_sha256, &again.claims), (&done.state_sha256, &done.claims));
        }
    }
}
