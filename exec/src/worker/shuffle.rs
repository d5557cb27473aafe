//! Holds a rank's part of the samples in memory, and shuffles samples between ranks.
//!
//! A sample is sent as its image, or in its packed form. The exchange is an alltoallv among the ranks of a group, over
//! the same transport as every other exchange (Kumar et al. 2018 §4.1, Algorithm 2). Where the program packs nothing,
//! each sample is one message from its old place in memory to its new one. Samples that stay on their rank are not
//! touched: a sample's slot in memory and its position in the rank's order are separate, and a shuffle changes the
//! position.

use std::sync::Arc;

use lockstep_data::{Coming, Dataset, Moves, Parts, Round};
use lockstep_models::{Op, Periodic, Piece, Program, RankRange, Role, SampleMove};
use lockstep_topology::{Algorithm, Collective, Dtype, Group, InputError, Rank, Schedule};

use super::{Setup, Worker};
use crate::arena::Arena;
use crate::error::ExecError;
use crate::exchange::{Buffers, RunningExchange};
use crate::flight::Aside;

/// A rank's part of the samples.
pub(super) struct Store {
    parts: Parts,
    /// Number of shuffles done.
    shuffles: u64,
    /// The rank's samples, in any order.
    pub(super) data: Dataset,
    /// By position in the rank's order: the sample's slot in `data`.
    slots: Vec<u32>,
    /// Slots in `data` without a sample.
    pub(super) free: Vec<u32>,
    /// Where the node's first rank holds the samples of all its ranks: their numbers in the whole set, in its order.
    of_node: Vec<u32>,
    /// Memory for samples packed for sending and receiving, reused from shuffle to shuffle.
    on_their_way: [Arena; 2],
}

/// A shuffle in progress.
pub(super) struct Deal {
    pub(super) moves: Moves,
    /// The slots of the new order, for the samples that have arrived.
    slots: Vec<u32>,
}

impl Store {
    /// The part that `rank` holds before step `step`, loaded from the whole set; `None` where every rank holds all
    /// samples.
    pub(super) fn load(setup: &Setup<'_>, rank: u32, step: u64) -> Result<Option<Store>, ExecError> {
        let Some(parts) = Parts::new(setup.program, setup.data.len() as u32, setup.options.seed)? else {
            return Ok(None);
        };
        let shuffles = parts.shuffles_before(step);
        let data = setup.data.held(&parts.held(rank, shuffles))?;
        let slots = (0..data.len() as u32).collect();
        let packed = setup.periodic.shuffle.as_ref().filter(|program| packs(program));
        let of_node = parts.of_node(rank, shuffles);
        let longest = packed.map_or(0, |program| program.buffers[0].elements);
        // The amount sent and received differs from shuffle to shuffle; an eighth more than the average is rarely too
        // little.
        let on_their_way = [(); 2].map(|()| touched((longest + longest / 8) as usize, setup.data.message_dtype()));
        Ok(Some(Store { parts, shuffles, data, slots, free: Vec::new(), of_node, on_their_way }))
    }

    /// The rank's samples.
    pub(super) fn data(&self) -> &Dataset {
        &self.data
    }

    /// The slots of the samples of pieces of micro-batches, which the rank holds; `None` where they are other ones
    /// after the next shuffle.
    pub(super) fn drawn_for(&self, step: u64, pieces: &[Piece], repetition: u32) -> Option<Vec<u32>> {
        let now = self.parts.shuffles_before(step) == self.shuffles;
        now.then(|| pieces.iter().flat_map(|piece| cut(piece, self.drawn(step, piece.worker, repetition))).collect())
    }

    /// The same samples as numbers in the whole set, also on a rank that does not hold them; `None` where each rank
    /// holds its own.
    pub(super) fn numbers_of(&self, step: u64, pieces: &[Piece], repetition: u32) -> Option<Vec<u32>> {
        let drawn = |piece: &Piece| cut(piece, self.parts.drawn(step, piece.worker, repetition));
        let number = |position: u32| self.of_node[position as usize];
        (!self.of_node.is_empty()).then(|| pieces.iter().flat_map(drawn).map(number).collect())
    }

    /// The slots of the samples of a micro-batch.
    fn drawn(&self, step: u64, rank: u32, repetition: u32) -> Vec<u32> {
        let positions = self.parts.drawn(step, rank, repetition);
        positions.into_iter().map(|position| self.slots[position as usize]).collect()
    }

    /// Packs the samples that leave in a round.
    fn pack(&mut self, deal: &Deal, round: usize, sent: usize) -> Result<(), InputError> {
        let slots = self.leaving(deal, round);
        // SAFETY: the round's exchange has not begun, and that of the round before is over.
        self.data.pack(&slots, unsafe { self.on_their_way[0].bytes_mut(0..sent) })?;
        self.release(slots);
        Ok(())
    }

    /// The slots of the samples that leave in a round.
    pub(super) fn leaving(&self, deal: &Deal, round: usize) -> Vec<u32> {
        deal.moves.rounds[round].sent.iter().map(|old| self.slots[*old as usize]).collect()
    }

    /// Frees slots for samples that arrive.
    pub(super) fn release(&mut self, slots: Vec<u32>) {
        self.data.release(&slots);
        self.free.extend(slots);
    }

    /// Assigns slots to samples that arrive in a round: freed ones, or new ones at the end where more have arrived so
    /// far than left.
    pub(super) fn seat(&mut self, deal: &mut Deal, round: usize) -> Vec<u32> {
        let mut end = self.data.len() as u32;
        let mut slot = || {
            self.free.pop().unwrap_or_else(|| {
                end += 1;
                end - 1
            })
        };
        let places = &deal.moves.rounds[round].taken;
        let slots: Vec<u32> = places.iter().map(|_| slot()).collect();
        places.iter().zip(&slots).for_each(|(place, slot)| deal.slots[*place as usize] = *slot);
        slots
    }

    /// Unpacks the samples that arrived in a round.
    fn unpack(&mut self, whole: &Dataset, deal: &mut Deal, round: usize, taken: usize) {
        let slots = self.seat(deal, round);
        let coming = Coming { whole, samples: &deal.moves.rounds[round].came, slots: &slots };
        // SAFETY: the exchange is over.
        self.data.unpack(unsafe { self.on_their_way[1].bytes(0..taken) }, coming);
    }
}

/// The samples of a piece among those of its worker.
fn cut(piece: &Piece, samples: Vec<u32>) -> impl Iterator<Item = u32> + use<> {
    samples.into_iter().skip(piece.first as usize).take(piece.count as usize)
}

/// Whether ranks that hold samples pack them; those that hold none take part in the same exchanges.
fn packs(program: &Program) -> bool {
    program.roles.iter().flat_map(|role| &role.tasks).any(|task| matches!(task.op, Op::Samples { .. }))
}

/// Memory whose pages are already mapped: a shuffle does not wait for the system to clear them.
fn touched(elements: usize, dtype: Dtype) -> Arena {
    let arena = Arena::of_pages(elements, dtype);
    // Pages that are only allocated are cleared by the system at the first write.
    // SAFETY: nothing else uses the arena.
    unsafe { arena.bytes_mut(0..elements) }.fill(1);
    arena
}

impl Worker<'_> {
    /// Performs the shuffles due before step `step`, together with the other ranks of its group.
    pub(super) fn shuffle_before(&mut self, step: u64) -> Result<(), ExecError> {
        let rank = self.transport.rank().0;
        while let Some(store) = self.store.as_ref().filter(|store| store.shuffles < store.parts.shuffles_before(step)) {
            let group = store.parts.group(rank);
            // A rank that waits here must have no earlier exchange in flight.
            self.wait_until(Worker::is_idle)?;
            let record = self.flight.begin_aside(Aside::Shuffle, self.iteration, self.now());
            self.shuffle(group)?;
            self.flight.end(record, self.now());
        }
        Ok(())
    }

    /// Performs one shuffle.
    fn shuffle(&mut self, group: RankRange) -> Result<(), ExecError> {
        let rank = self.transport.rank().0;
        let (Some(program), Some(store)) = (&self.setup.periodic.shuffle, &mut self.store) else { return Ok(()) };
        let role = &program.roles[program.role_of(rank)];
        let data = self.setup.data;
        let rounds = role.runs().filter(|(task, _)| matches!(role.tasks[*task].op, Op::Exchange(_))).count() as u32;
        let moves = store.parts.moves(rank, store.shuffles, rounds, |sample| data.message_elements(sample));
        let mut slots = vec![0; store.slots.len()];
        moves.kept.iter().for_each(|(new, old)| slots[*new as usize] = store.slots[*old as usize]);
        let mut deal = Deal { moves, slots };
        match packs(program) {
            true => self.deal_packed(group, role, &mut deal)?,
            false => self.deal_in_place(group, role, &mut deal)?,
        }
        if let Some(store) = &mut self.store {
            (store.slots, store.shuffles) = (deal.slots, store.shuffles + 1);
            store.of_node = store.parts.of_node(rank, store.shuffles);
        }
        Ok(())
    }

    /// Chunk by chunk: packs the samples that leave, exchanges them, and unpacks those that arrived.
    fn deal_packed(&mut self, group: RankRange, role: &Role, deal: &mut Deal) -> Result<(), ExecError> {
        let (rank, data) = (self.transport.rank().0, self.setup.data);
        let Some(store) = &mut self.store else { return Ok(()) };
        let (members, own) = (group.count as usize, (rank - group.first) as usize);
        let sum = |round: &Round, of: &dyn Fn(usize) -> usize| {
            (0..members).map(|other| round.counts[of(other)]).sum::<u64>() as usize
        };
        let both = |round: &Round| (sum(round, &|to| own * members + to), sum(round, &|from| from * members + own));
        let lengths: Vec<(usize, usize)> = deal.moves.rounds.iter().map(both).collect();
        let longest = lengths.iter().fold((0, 0), |most, each| (most.0.max(each.0), most.1.max(each.1)));
        for (arena, elements) in store.on_their_way.iter_mut().zip([longest.0, longest.1]) {
            if arena.len() < elements {
                *arena = touched(elements + elements / 8, data.message_dtype());
            }
        }
        for (task, repetition) in role.runs() {
            let (sent, taken) = lengths[repetition as usize];
            self.timed(Periodic::Shuffle, (task, repetition), |worker| {
                let Some(store) = &mut worker.store else { return Ok(()) };
                let round = repetition as usize;
                match &role.tasks[task].op {
                    Op::Samples { to: SampleMove::Pack, .. } => Ok(store.pack(deal, round, sent)?),
                    Op::Exchange(_) => {
                        let [packed, arrived] = &store.on_their_way;
                        let buffers = Buffers::separate(packed.region_to_read(0..sent), arrived.region(0..taken));
                        let mut exchange = worker.exchange_of(group, &deal.moves.rounds[round].counts, 0, buffers)?;
                        exchange.complete(worker.transport)?;
                        worker.count_sent(exchange.sent().map(|(to, traffic)| (to, *traffic)));
                        Ok(())
                    }
                    _ => {
                        store.unpack(data, deal, round, taken);
                        Ok(())
                    }
                }
            })?;
        }
        Ok(())
    }

    /// The exchange of a chunk with the ranks of the group, with element counts from this shuffle's order; `turn`
    /// distinguishes it from concurrent ones.
    pub(super) fn exchange_of(
        &self,
        group: RankRange,
        counts: &[u64],
        turn: u32,
        buffers: Buffers,
    ) -> Result<RunningExchange, InputError> {
        let counts: Arc<[u64]> = counts.into();
        let members = group.count as usize;
        let sums = |of: &dyn Fn(usize, usize) -> usize| {
            (0..members).map(|a| (0..members).map(|b| counts[of(a, b)]).sum::<u64>()).max().unwrap_or(0)
        };
        let longest = sums(&|a, b| a * members + b).max(sums(&|a, b| b * members + a));
        let collective = Collective::AllToAllV { counts };
        let numbers = (longest, self.setup.data.message_dtype());
        let schedule = Schedule::of(&collective, &Algorithm::pairwise(), &Group::flat(group.count), numbers, 0)?;
        let window = schedule.window();
        let ranks: Arc<[Rank]> = group.iter().map(Rank).collect();
        let (member, number) = (self.transport.rank().0 - group.first, self.setup.periodic.number + turn);
        Ok(RunningExchange::new(Arc::new(schedule), member, ranks, number, buffers, window))
    }
}
