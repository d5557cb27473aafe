//! Prepares the programs of periodic work (shuffles, evaluations, checkpoints) and runs their exchanges.

use std::ops::Range;
use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_models::{Buffer, Exchange, Periodic, Pieces, Program};
use lockstep_topology::{InputError, Rank};

use crate::arena::Arena;
use crate::error::ExecError;
use crate::exchange::{Buffers, ExchangeTraffic, RunningExchange};
use crate::transport::{RegionMut, Transport};

/// The programs of the work between steps.
pub(crate) struct PeriodicPrograms {
    /// The shuffle, where ranks hold parts of the samples and redistribute them.
    pub shuffle: Option<Program>,
    /// The evaluation, where the model is evaluated during training.
    pub evaluation: Option<Program>,
    pub checkpoint: Program,
    /// The number of their first exchange, after those of the step.
    pub number: u32,
}

impl PeriodicPrograms {
    /// The programs for a run of `program` on `data`. `judged`: the numbers of micro-batches of held-out samples and of
    /// statistics, if the model is evaluated.
    ///
    /// # Errors
    /// A model that one rank cannot run.
    pub(crate) fn new(program: &Program, data: &Dataset, judged: Option<(u64, u64)>) -> Result<Self, InputError> {
        let numbers = program.exchange_numbers().into_iter().flatten().flatten();
        Ok(PeriodicPrograms {
            shuffle: program.shuffle(data.len() as u64, data.mean_message())?,
            evaluation: judged.map(|(held_out, statistics)| program.evaluation(held_out, statistics)).transpose()?,
            checkpoint: program.checkpoint()?,
            number: numbers.max().map_or(0, |last| last + 1),
        })
    }

    /// Each program with its kind.
    pub(crate) fn list(&self) -> Vec<(Periodic, Program)> {
        let all = [
            (Periodic::Shuffle, self.shuffle.as_ref()),
            (Periodic::Evaluation, self.evaluation.as_ref()),
            (Periodic::Checkpoint, Some(&self.checkpoint)),
        ];
        all.into_iter().filter_map(|(kind, work)| Some((kind, work?.clone()))).collect()
    }

    /// The exchange of a checkpoint by which rank 0 collects the parts of the model.
    pub(crate) fn collects_model(&self) -> Option<&Exchange> {
        let exchanges = self.checkpoint.roles[0].exchanges();
        exchanges.map(|(_, exchange)| exchange).find(|exchange| exchange.buffer == Periodic::MODEL)
    }
}

/// The values that rank 0 collected: by buffer, then by worker.
pub(crate) type Collected = Vec<(Buffer, Vec<Vec<f32>>)>;

/// The values of a buffer by worker; empty if it was not collected.
pub(crate) fn collected(all: &Collected, buffer: Buffer) -> &[Vec<f32>] {
    all.iter().find(|(of, _)| *of == buffer).map_or(&[], |(_, values)| values)
}

/// The result of a gather.
pub(crate) struct Gathered {
    /// By worker; on rank 0 alone.
    pub parts: Vec<Vec<f32>>,
    /// Traffic to each peer.
    pub sent: Vec<(Rank, ExchangeTraffic)>,
}

/// Runs a gather of periodic work with `own` as this rank's part. Returns the parts by worker on rank 0, and nothing
/// elsewhere.
///
/// # Errors
/// When the job has ended.
pub(crate) fn collect(
    end: &mut dyn Transport,
    (program, exchange, number): (&Program, &Exchange, u32),
    own: Vec<f32>,
) -> Result<Gathered, ExecError> {
    let rank = end.rank().0;
    let members = program.group_of(exchange, rank);
    let schedule = Arc::new(program.schedule_among(exchange, &members)?);
    let part = |member: u32| -> Range<usize> {
        let part = exchange.collective.part(schedule.elements(), members.count(), member);
        part.start as usize..part.end as usize
    };
    let member = members.member(rank).expect("workers alone collect");
    let (is_root, mine) = (exchange.collective.root() == Some(member), part(member));
    let values = if is_root {
        let mut all = vec![0.0; schedule.elements() as usize];
        // A root whose own values are not sent has no part.
        all[mine.clone()].copy_from_slice(&own[..mine.len()]);
        all
    } else {
        own
    };
    let memory = Arena::new(values);
    let first = if is_root { 0 } else { mine.start };
    let buffers = Buffers::in_place(memory.region(0..memory.len()), RegionMut::empty()).from_element(first);
    let ranks: Arc<[Rank]> = members.iter().map(Rank).collect();
    let window = schedule.window();
    let mut gather = RunningExchange::new(Arc::clone(&schedule), member, ranks, number, buffers, window);
    gather.complete(end)?;
    let sent = gather.sent().map(|(to, traffic)| (to, *traffic)).collect();
    if !is_root {
        return Ok(Gathered { parts: Vec::new(), sent });
    }
    // SAFETY: the exchange is over.
    let all: &[f32] = unsafe { memory.slice(0..memory.len()) };
    let parts = (0..members.count()).map(|member| all[part(member)].to_vec()).collect();
    Ok(Gathered { parts, sent })
}

/// The pieces of the parameters, then those of one state of the optimizer after the other.
pub(crate) fn each_piece([parameters, state]: &[Pieces; 2]) -> impl Iterator<Item = &Pieces> {
    std::iter::once(parameters).chain(std::iter::repeat(state))
}

/// The values of these pieces, concatenated: first the parameters, then the states of the optimizer.
pub(crate) fn cut(pieces: &[Pieces; 2], parameters: &[f32], states: &[Vec<f32>]) -> Vec<f32> {
    let of = |pieces: &Pieces, values: &[f32]| -> Vec<f32> {
        let range = |(range, start): &(Range<u64>, u64)| *start as usize..(*start + range.end - range.start) as usize;
        pieces.iter().flat_map(|piece| values[range(piece)].iter().copied()).collect()
    };
    let all = std::iter::once(parameters).chain(states.iter().map(Vec::as_slice));
    each_piece(pieces).zip(all).flat_map(|(pieces, values)| of(pieces, values)).collect()
}
