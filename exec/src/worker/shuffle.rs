//! Samples in memory: the part that a rank holds, and the shuffle that sends samples to the ranks that hold them next.
//!
//! A sample travels as its image and its label, or as it is packed. The exchange is an alltoallv among
//! the ranks of a group, by the same lanes as every other (Kumar et al. 2018 §4.1, Algorithm 2).

use std::sync::Arc;

use lockstep_models::{Op, Periodic, RankRange, SampleMove};
use lockstep_topology::{Algorithm, Collective, Group, Rank, Schedule};

use super::{Setup, Worker};
use crate::arena::Arena;
use crate::data::{Dataset, Parts};
use crate::error::ExecError;
use crate::exchange::{Buffers, Exchange};
use crate::flight::Aside;

/// What a rank holds.
pub(super) struct Store {
    parts: Parts,
    /// Shuffles that there have been.
    shuffles: u64,
    /// The rank's part, in its order.
    data: Dataset,
    /// Memory for samples on their way out and in, kept from one shuffle to the next.
    on_their_way: [Arena; 2],
}

impl Store {
    /// The part that `rank` holds before step `step`, loaded from the whole set; `None` where everybody holds all.
    pub(super) fn load(setup: &Setup<'_>, rank: u32, step: u64) -> Result<Option<Store>, ExecError> {
        let Some(parts) = Parts::new(setup.program, setup.data.len() as u32, setup.options.seed)? else {
            return Ok(None);
        };
        let shuffles = parts.shuffles_before(step);
        let data = setup.data.held(&parts.held(rank, shuffles))?;
        let on_their_way = [0, 0].map(|elements| Arena::new(vec![0.0; elements]));
        Ok(Some(Store { parts, shuffles, data, on_their_way }))
    }

    /// What the rank holds.
    pub(super) fn data(&self) -> &Dataset {
        &self.data
    }

    /// Where the samples of a micro-batch stand in it.
    pub(super) fn drawn(&self, step: u64, rank: u32, repetition: u32) -> Vec<u32> {
        self.parts.drawn(step, rank, repetition)
    }

    /// The same of a step that comes before the next shuffle; `None` behind it.
    pub(super) fn drawn_unshuffled(&self, step: u64, rank: u32, repetition: u32) -> Option<Vec<u32>> {
        (self.parts.shuffles_before(step) == self.shuffles).then(|| self.drawn(step, rank, repetition))
    }
}

impl Worker<'_> {
    /// Brings the rank's samples to where they are before step `step`, with the other ranks of its group.
    pub(super) fn shuffle_before(&mut self, step: u64) -> Result<(), ExecError> {
        let rank = self.transport.rank().0;
        while let Some(store) = self.store.as_ref().filter(|store| store.shuffles < store.parts.shuffles_before(step)) {
            let group = store.parts.group(rank);
            // Who waits here must not owe anybody a message of an exchange before.
            self.wait_until(Worker::settled)?;
            let record = self.flight.begin_aside(Aside::Shuffle, self.iteration, self.now());
            self.shuffle(group)?;
            self.flight.end(record, self.now());
        }
        Ok(())
    }

    /// One shuffle.
    fn shuffle(&mut self, group: RankRange) -> Result<(), ExecError> {
        let rank = self.transport.rank().0;
        let (Some(program), Some(store)) = (&self.setup.periodic.shuffle, &mut self.store) else { return Ok(()) };
        let role = &program.roles[program.role_of(rank)];
        let data = self.setup.data;
        let moves = store.parts.moves(rank, store.shuffles, |sample| data.message_elements(sample));
        let (members, own) = (group.count as usize, (rank - group.first) as usize);
        let sum = |of: &dyn Fn(usize) -> usize| (0..members).map(|other| moves.counts[of(other)]).sum::<u64>() as usize;
        let (sent, taken) = (sum(&|to| own * members + to), sum(&|from| from * members + own));
        for (arena, elements) in store.on_their_way.iter_mut().zip([sent, taken]) {
            if arena.len() < elements {
                *arena = Arena::new(vec![0.0; elements]);
            }
        }
        for (task, repetition) in role.runs() {
            self.timed(Periodic::Shuffle, (task, repetition), |worker| {
                let Some(store) = &mut worker.store else { return Ok(()) };
                match &role.tasks[task].op {
                    Op::Samples { to: SampleMove::Pack, .. } => {
                        // SAFETY: the exchange has not begun.
                        store.data.pack(&moves.sent, unsafe { store.on_their_way[0].slice_mut(0..sent) })?;
                    }
                    Op::Exchange(_) => worker.deal(group, &moves.counts, (sent, taken))?,
                    _ => {
                        // SAFETY: the exchange is over.
                        store.data.unpack(unsafe { store.on_their_way[1].slice(0..taken) }, &moves.places);
                        store.shuffles += 1;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Sends packed samples to the ranks of the group that hold them next, as many elements as this shuffle's order says.
    fn deal(&mut self, group: RankRange, counts: &[u64], (sent, taken): (usize, usize)) -> Result<(), ExecError> {
        let counts: Arc<[u64]> = counts.into();
        let members = group.count as usize;
        let sums = |of: &dyn Fn(usize, usize) -> usize| {
            (0..members).map(|a| (0..members).map(|b| counts[of(a, b)]).sum::<u64>()).max().unwrap_or(0)
        };
        let longest = sums(&|a, b| a * members + b).max(sums(&|a, b| b * members + a));
        let collective = Collective::AllToAllV { counts };
        let schedule = Schedule::new(&collective, &Algorithm::pairwise(), &Group::flat(group.count), longest, 0)?;
        let window = schedule.window();
        let ranks: Arc<[Rank]> = group.iter().map(Rank).collect();
        let Some(Store { on_their_way: [packed, arrived], .. }) = &self.store else { return Ok(()) };
        let buffers = Buffers::separate(packed.region_to_read(0..sent), arrived.region(0..taken));
        let (member, number) = (self.transport.rank().0 - group.first, self.setup.periodic.number);
        let mut exchange = Exchange::new(Arc::new(schedule), member, ranks, number, buffers, window);
        exchange.complete(self.transport)?;
        self.count_sent(exchange.sent().map(|(to, traffic)| (to, *traffic)));
        Ok(())
    }
}
