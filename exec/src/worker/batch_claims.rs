//! Assigns batches to learners in other processes through messages to rank 0, which holds the only driver.
//!
//! A request is one word sent to rank 0, and the answer is one word back. Rank 0 has no thread for this: it polls for
//! requests where it polls for all messages, between two compute tasks and while it waits, and answers those that have
//! arrived before it takes a batch itself. An out-of-turn request is answered at its turn. Meanwhile the requesting
//! rank makes progress on its exchanges. At the end each learner sends a final message: it requests no more.

use std::cell::Cell;
use std::sync::PoisonError;
use std::time::Duration;

use lockstep_models::{Claim, ClaimAnswer, Observation};
use lockstep_topology::Rank;

use super::{Setup, Worker};
use crate::arena::Arena;
use crate::error::ExecError;
use crate::transport::{Combine, RecvId, RegionMut, SendId, Tag, Transport, TransportError, control};

/// Kind of the messages that request a batch.
const CLAIM: u32 = 13;
/// Kind of the messages that assign one.
const ANSWER: u32 = 14;
/// Request of a rank that needs no more batches.
const NO_MORE: u64 = u64::MAX;
/// Interval between retries of a rank that waits for its turn, where the driver is in its own process.
const NAP: Duration = Duration::from_micros(50);

/// A rank's part in assigning batches.
pub(super) enum BatchClaims {
    /// The driver is in the same process, and no other process requests batches from it.
    Local,
    /// Rank 0, with one entry per learner in another process.
    Serves(Vec<Claimant>),
    /// Requests batches from rank 0.
    Requests(Words),
}

/// Rank 0's state for one learner.
pub(super) struct Claimant {
    rank: u32,
    /// The iteration for which a batch is requested, while it is another rank's turn.
    requested: Option<u32>,
    words: Words,
}

/// One word to send and one to receive, in the rank's scratch memory, which outlives the transport.
pub(super) struct Words {
    arena: usize,
    send: Option<SendId>,
    receive: Option<RecvId>,
}

impl Words {
    fn new(scratch: &mut Vec<Arena>) -> Words {
        scratch.push(Arena::new(vec![0.0; 4]));
        Words { arena: scratch.len() - 1, send: None, receive: None }
    }

    fn post_send(
        &mut self,
        end: &mut dyn Transport,
        scratch: &[Arena],
        (to, kind, word): (u32, u32, u64),
    ) -> Result<(), TransportError> {
        let arena = &scratch[self.arena];
        // SAFETY: no message is in flight on this half, as `is_sent` checked.
        unsafe { arena.slice_mut(0..2) }.copy_from_slice(&control::words(word));
        self.send = Some(end.post_send(Rank(to), Tag::control(kind), arena.region(0..2).read())?);
        Ok(())
    }

    fn post_receive(
        &mut self,
        end: &mut dyn Transport,
        scratch: &[Arena],
        (from, kind): (u32, u32),
    ) -> Result<(), TransportError> {
        let into = scratch[self.arena].region(2..4);
        let id = end.post_recv(Rank(from), Tag::control(kind), into, Combine::Copy, RegionMut::empty())?;
        self.receive = Some(id);
        Ok(())
    }

    /// Whether the last send is complete, or there was none.
    fn is_sent(&mut self, end: &mut dyn Transport) -> Result<bool, TransportError> {
        if let Some(id) = self.send
            && end.send_done(id)?
        {
            self.send = None;
        }
        Ok(self.send.is_none())
    }

    /// The word that was received; returned once.
    fn received(&mut self, end: &mut dyn Transport, scratch: &[Arena]) -> Result<Option<u64>, TransportError> {
        let Some(id) = self.receive else { return Ok(None) };
        if !end.recv_done(id)? {
            return Ok(None);
        }
        self.receive = None;
        Ok(Some(self.word(scratch)))
    }

    /// The word that was received last.
    fn word(&self, scratch: &[Arena]) -> u64 {
        // SAFETY: nothing is being received, as `received` checked.
        control::value(unsafe { scratch[self.arena].slice(2..4) })
    }

    fn is_idle(&self) -> bool {
        self.send.is_none() && self.receive.is_none()
    }
}

impl Setup<'_> {
    /// Which learner got which micro-batch in the first `iterations`. Complete on rank 0's process, partial elsewhere.
    pub(crate) fn claims(&self, iterations: u32) -> Vec<Claim> {
        match self.replay.filter(|_| self.hosts.is_some()) {
            // Each process replays the record by itself.
            Some(record) => record.iter().filter(|claim| claim.iteration < iterations).copied().collect(),
            // A rank that panicked with the lock held has ended the run.
            None => self.driver.lock().map(|driver| driver.record().to_vec()).unwrap_or_default(),
        }
    }
}

impl Worker<'_> {
    /// Sets up this rank's part and posts the first receives.
    pub(super) fn open_claims(&mut self) -> Result<(), TransportError> {
        let (program, rank) = (self.setup.program, self.transport.rank().0);
        let requests = program.claims() && rank < program.workers() && !self.driver(|driver| driver.replays());
        let Some(hosts) = self.setup.hosts.filter(|_| requests) else { return Ok(()) };
        if rank > 0 {
            if hosts[rank as usize] != hosts[0] {
                self.claims = BatchClaims::Requests(Words::new(&mut self.memory.scratch));
            }
            return Ok(());
        }
        let mut claimants = Vec::new();
        for rank in (1..program.workers()).filter(|rank| hosts[*rank as usize] != hosts[0]) {
            let mut words = Words::new(&mut self.memory.scratch);
            words.post_receive(self.transport, &self.memory.scratch, (rank, CLAIM))?;
            claimants.push(Claimant { rank, requested: None, words });
        }
        self.claims = BatchClaims::Serves(claimants);
        Ok(())
    }

    /// Answers requests that have arrived and are in turn, or checks for the answer to this rank's own. Returns whether
    /// anything moved. The transport must have been polled.
    pub(super) fn serve_claims(&mut self) -> Result<bool, TransportError> {
        let (at, setup) = (self.now(), self.setup);
        let scratch = &self.memory.scratch;
        let mut moved = false;
        match &mut self.claims {
            BatchClaims::Local => {}
            BatchClaims::Serves(claimants) => {
                for Claimant { rank, requested, words } in claimants {
                    if requested.is_none() && words.is_sent(self.transport)? {
                        let claim = words.received(self.transport, scratch)?;
                        *requested = claim.filter(|claim| *claim != NO_MORE).map(|iteration| iteration as u32);
                        moved |= claim.is_some();
                    }
                    let Some(iteration) = *requested else { continue };
                    let observation = Observation { rank: *rank, iteration, at };
                    let answer = match setup.driver.lock().unwrap_or_else(PoisonError::into_inner).claim(&observation) {
                        ClaimAnswer::Wait => continue,
                        ClaimAnswer::Take(batch) => u64::from(batch),
                    };
                    (*requested, moved) = (None, true);
                    words.post_send(self.transport, scratch, (*rank, ANSWER, answer))?;
                    words.post_receive(self.transport, scratch, (*rank, CLAIM))?;
                }
            }
            BatchClaims::Requests(words) => {
                let waits = words.send.is_some();
                moved = words.is_sent(self.transport)? && waits;
                moved |= words.received(self.transport, scratch)?.is_some();
            }
        }
        Ok(moved)
    }

    /// Requests a batch for the current iteration, which is a number within it.
    pub(super) fn claim(&mut self) -> Result<u32, ExecError> {
        let (rank, iteration) = (self.transport.rank().0, self.iteration);
        if let BatchClaims::Requests(words) = &mut self.claims {
            words.post_receive(self.transport, &self.memory.scratch, (0, ANSWER))?;
            words.post_send(self.transport, &self.memory.scratch, (0, CLAIM, u64::from(iteration)))?;
            self.wait_until(|worker| !worker.has_claim_in_flight())?;
            let BatchClaims::Requests(words) = &self.claims else { unreachable!("a rank stays where it is") };
            return Ok(words.word(&self.memory.scratch) as u32);
        }
        let answer = Cell::new(None);
        self.wait_napping(NAP, |worker| {
            let observation = Observation { rank, iteration, at: worker.now() };
            if let ClaimAnswer::Take(batch) = worker.driver(|driver| driver.claim(&observation)) {
                answer.set(Some(batch));
            }
            answer.get().is_some()
        })?;
        Ok(answer.get().expect("waited for"))
    }

    /// Sends the final message, or waits until all learners have sent theirs.
    pub(super) fn close_claims(&mut self) -> Result<(), ExecError> {
        if let BatchClaims::Requests(words) = &mut self.claims {
            words.post_send(self.transport, &self.memory.scratch, (0, CLAIM, NO_MORE))?;
        }
        self.wait_until(|worker| !worker.has_claim_in_flight())
    }

    /// The ranks whose messages are missing: rank 0 for a rank that requests from it; otherwise, while no exchange
    /// runs, the rank whose turn it is, and after the last iteration those that have not sent their final message.
    pub(super) fn missing_claims(&self) -> Vec<u32> {
        let is_through = self.iteration == self.granted;
        match &self.claims {
            BatchClaims::Requests(words) => {
                if words.is_idle() {
                    Vec::new()
                } else {
                    vec![0]
                }
            }
            _ if self.slots.iter().any(|slot| slot.running) => Vec::new(),
            BatchClaims::Serves(claimants) if is_through => {
                claimants.iter().filter(|claimant| !claimant.words.is_idle()).map(|claimant| claimant.rank).collect()
            }
            _ => self.driver(|driver| driver.turn()).into_iter().collect(),
        }
    }

    /// Whether a request or an answer is in flight or still expected.
    pub(super) fn has_claim_in_flight(&self) -> bool {
        match &self.claims {
            BatchClaims::Local => false,
            BatchClaims::Serves(claimants) => claimants.iter().any(|claimant| !claimant.words.is_idle()),
            BatchClaims::Requests(words) => !words.is_idle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Assignment, Bucket, Job, random_model};

    use super::*;
    use crate::data::Dataset;
    use crate::observer::OnLoad;
    use crate::run::{on_threads, run};
    use crate::setup::RunOptions;

    /// Each batch is assigned once whatever processes the learners run in, and a replay trains the same bits.
    #[test]
    fn claims_by_message_equal_local_claims() {
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
            let replay = RunOptions { observer: &(), replay: Some(&done.claims), ..options };
            assert_eq!(run(&program, &data, &replay).unwrap().state_sha256, done.state_sha256);
            let again = on_threads(&program, &data, &replay, Some(&hosts)).unwrap();
            assert_eq!((&again.state_sha256, &again.claims), (&done.state_sha256, &done.claims));
        }
    }
}
