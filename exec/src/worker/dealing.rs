//! Sends the samples of a shuffle to their new ranks, with several chunks in flight.

use std::collections::VecDeque;

use lockstep_data::{Coming, Reserved};
use lockstep_models::{Periodic, RankRange, Role, TaskId};
use lockstep_topology::Time;

use super::Worker;
use super::shuffle::Deal;
use crate::error::ExecError;
use crate::exchange::{Buffers, Progress, RunningExchange};
use crate::region::{Region, RegionMut};

/// A chunk in flight.
struct Chunk {
    round: u32,
    start: Time,
    exchange: RunningExchange,
    /// The slots of the samples that it sends.
    leaving: Vec<u32>,
    /// The slots of the samples that it receives, and their memory.
    slots: Vec<u32>,
    reserved: Reserved,
}

impl Worker<'_> {
    /// Sends chunk by chunk: a chunk starts when the earlier chunk that the program makes it wait for has arrived.
    pub(super) fn deal_in_place(&mut self, group: RankRange, role: &Role, deal: &mut Deal) -> Result<(), ExecError> {
        let mut in_flight = VecDeque::new();
        for (task, round) in role.runs() {
            let earlier = role.tasks[task].after.iter().find(|after| after.task == task);
            let at_once = earlier.map_or(1, |after| after.lag);
            if round == 0 {
                self.reserve(deal, at_once);
            }
            if in_flight.len() == at_once as usize {
                self.finish_first(task, deal, &mut in_flight)?;
            }
            in_flight.extend(self.start_chunk(group, deal, round, at_once)?);
        }
        while let (false, Some((task, _))) = (in_flight.is_empty(), role.runs().last()) {
            self.finish_first(task, deal, &mut in_flight)?;
        }
        Ok(())
    }

    /// Allocates memory for the most samples at any time, since samples in flight cannot be moved.
    fn reserve(&mut self, deal: &Deal, at_once: u32) {
        let Some(store) = &mut self.store else { return };
        let rounds = &deal.moves.rounds;
        let (mut held, mut most) = (store.data.len() - store.free.len(), store.data.len());
        for (number, round) in rounds.iter().enumerate() {
            let arrived = number.checked_sub(at_once as usize);
            held = held + round.taken.len() - arrived.map_or(0, |arrived| rounds[arrived].sent.len());
            most = most.max(held);
        }
        store.data.reserve(most);
    }

    /// Starts the exchange of a chunk.
    fn start_chunk(
        &mut self,
        group: RankRange,
        deal: &mut Deal,
        round: u32,
        at_once: u32,
    ) -> Result<Option<Chunk>, ExecError> {
        let (whole, start) = (self.setup.data, self.now());
        let Some(store) = &mut self.store else { return Ok(None) };
        let (leaving, slots) = (store.leaving(deal, round as usize), store.seat(deal, round as usize));
        let moves = &deal.moves.rounds[round as usize];
        let (reserved, places) = store.data.reserve_for(Coming { whole, samples: &moves.came, slots: &slots });
        let dtype = whole.message_dtype();
        let elements = |bytes: usize| dtype.elements_within(bytes as u64) as usize;
        // SAFETY: samples are not written, and those being sent are released after they have left.
        let from = |bytes: &[u8]| unsafe { Region::of(bytes.as_ptr(), elements(bytes.len()), dtype) };
        // SAFETY: only this message writes there, and nothing reads it until it is taken.
        let to = |bytes: *mut [u8]| unsafe { RegionMut::of(bytes.cast::<u8>(), elements(bytes.len()), dtype) };
        let from = store.data.places(&leaving).into_iter().map(from).collect();
        let buffers = Buffers::scattered(from, places.into_iter().map(to).collect());
        let mut exchange = self.exchange_of(group, &moves.counts, round % at_once, buffers)?;
        exchange.progress(self.transport)?;
        Ok(Some(Chunk { round, start, exchange, leaving, slots, reserved }))
    }

    /// Waits until the first chunk has arrived, making progress on the others.
    fn finish_first(&mut self, task: TaskId, deal: &Deal, in_flight: &mut VecDeque<Chunk>) -> Result<(), ExecError> {
        loop {
            self.transport.poll()?;
            let mut done = Vec::new();
            for chunk in in_flight.iter_mut() {
                done.push(chunk.exchange.turn(self.transport)?);
            }
            if done.first() != Some(&Progress::Waiting) {
                break;
            }
            self.transport.wait(None)?;
        }
        let (Some(chunk), Some(store)) = (in_flight.pop_front(), &mut self.store) else { return Ok(()) };
        let Chunk { round, start, exchange, leaving, slots, reserved } = chunk;
        let samples = &deal.moves.rounds[round as usize].came;
        // SAFETY: the exchange is over.
        unsafe { store.data.take(reserved, Coming { whole: self.setup.data, samples, slots: &slots }) };
        store.release(leaving);
        self.count_sent(exchange.sent().map(|(to, traffic)| (to, *traffic)));
        self.note_periodic(Periodic::Shuffle, (task, round), start);
        Ok(())
    }
}
