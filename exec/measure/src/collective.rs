//! Measures a single collective: repetitions that start together, each as long as its slowest member.
//!
//! The first run is checked against the definition of the collective, with small integers whose sums are exact in any
//! order; the timed runs work on zeros, which stay zeros.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep_exec::exchange::{Buffers, RunningExchange, scratch_elements};
use lockstep_exec::transport::{RegionMut, Transport, TransportError, control};
use lockstep_exec::{Arena, patiently};
use lockstep_report::failure::Failure;
use lockstep_report::progress::Estimate;
use lockstep_topology::{Collective, Dtype, Rank, Schedule};

use crate::launch::{Launch, end_late};
use crate::run_failure::run_failure;

/// Kinds of control messages.
const COUNT: u32 = 1;
const RESULT: u32 = 2;
/// Target seconds of all timed repetitions, and their least and most number.
const SECONDS: f64 = 1.0;
const FEWEST: u64 = 5;
const MOST: u64 = 2_000;

/// A collective that is ready to run.
#[derive(Debug, Clone)]
pub struct PreparedCollective {
    schedule: Arc<Schedule>,
    window: u32,
    /// The sum of all contributions, by the element's number modulo [`PERIOD`].
    sums: [f32; PERIOD],
    /// For an alltoallv, by sender and receiver: where the data sent begins.
    begins: Vec<u64>,
}

/// The measurements, in the process of rank 0.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCollective {
    /// For each repetition, the time of its slowest member.
    pub seconds: Vec<f64>,
    /// Elements of the first run, over all members, that differ from the collective's definition.
    pub wrong: u64,
}

/// One member's part: of lockstep's own algorithm, or a call of the MPI library's allreduce among ranks.
enum Part {
    Own(RunningExchange),
    Library(Arc<[Rank]>, RegionMut),
}

impl Part {
    /// Runs to the end; call [`Part::again`] before every run but the first.
    fn complete(&mut self, end: &mut dyn Transport) -> Result<(), TransportError> {
        match self {
            Part::Own(exchange) => exchange.complete(end),
            Part::Library(ranks, data) => end.library_allreduce(ranks, *data),
        }
    }

    fn again(&mut self) {
        if let Part::Own(exchange) = self {
            exchange.restart();
        }
    }
}

/// Memory of one member, in whole pages: of buffers at other offsets, a sum of 64 KiB took twice as long.
struct Memory {
    input: Arena,
    output: Arena,
    scratch: Arena,
}

impl Memory {
    /// The values of `arena`, for the one member that has it.
    fn values(arena: &mut Arena) -> &mut [f32] {
        // SAFETY: the borrow is exclusive, and nothing is in flight where this is called.
        unsafe { arena.slice_mut(0..arena.len()) }
    }
}

impl PreparedCollective {
    /// A collective with this schedule.
    pub fn new(schedule: Schedule) -> PreparedCollective {
        let contributing = (0..schedule.members()).filter(|member| schedule.contributes(*member));
        let mut sums = [0.0; PERIOD];
        for member in contributing {
            (0..).zip(&mut sums).for_each(|(element, sum)| *sum += value(member, element));
        }
        let mut begins = Vec::new();
        if let Collective::AllToAllV { counts } = schedule.collective() {
            for row in counts.chunks(schedule.members() as usize) {
                begins.extend(row.iter().scan(0, |at, count| Some(std::mem::replace(at, *at + count))));
            }
        }
        PreparedCollective { window: schedule.window(), schedule: Arc::new(schedule), sums, begins }
    }

    /// Bytes of memory per member.
    pub fn bytes(schedule: &Schedule) -> u128 {
        let separate = matches!(schedule.collective(), Collective::AllToAllV { .. });
        let elements = u128::from(schedule.elements()) * if separate { 2 } else { 1 };
        // For each pair a count and an offset.
        let tables = if separate { 16 * u128::from(schedule.members()) } else { 0 };
        let elements = elements + u128::from(scratch_elements(schedule, schedule.window()));
        tables + u128::from(schedule.dtype().bytes(u64::try_from(elements).unwrap_or(u64::MAX)))
    }

    /// Members that contribute data.
    pub fn contributors(&self) -> u32 {
        self.schedule.contributors()
    }

    fn separate(&self) -> bool {
        matches!(self.schedule.collective(), Collective::AllToAllV { .. })
    }

    fn memory(&self, member: u32) -> Memory {
        let elements = self.schedule.elements();
        let scratch = Arena::of_pages(scratch_elements(&self.schedule, self.window) as usize, Dtype::F32);
        let values = |elements: u64| {
            let mut arena = Arena::of_pages(elements as usize, Dtype::F32);
            (0..).zip(Memory::values(&mut arena)).for_each(|(element, to)| *to = value(member, element));
            arena
        };
        Memory { input: values(if self.separate() { elements } else { 0 }), output: values(elements), scratch }
    }

    /// The part of `member`; its memory must outlive the transport.
    fn part(&self, member: u32, memory: &Memory) -> Part {
        let [input, output, scratch] =
            [&memory.input, &memory.output, &memory.scratch].map(|arena| arena.region(0..arena.len()));
        let buffers =
            if self.separate() { Buffers::separate(input.read(), output) } else { Buffers::in_place(output, scratch) };
        let ranks: Arc<[Rank]> = (0..self.schedule.members()).map(Rank).collect();
        if self.schedule.buffered_sends() {
            return Part::Library(ranks, output);
        }
        Part::Own(RunningExchange::new(Arc::clone(&self.schedule), member, ranks, 0, buffers, self.window))
    }

    /// Elements of `member` that differ from the collective's definition.
    fn wrong(&self, member: u32, output: &[f32]) -> u64 {
        let (members, elements) = (self.schedule.members(), self.schedule.elements());
        let sum = |e: u64| self.sums[e as usize % PERIOD];
        let differ = |range: std::ops::Range<u64>, wanted: &dyn Fn(u64) -> f32| {
            range.filter(|e| output[*e as usize] != wanted(*e)).count() as u64
        };
        let collective = self.schedule.collective();
        let block = |of: u32| collective.part(elements, self.contributors(), of);
        match collective {
            // A dedicated server's own buffer is not part of the result.
            _ if member >= self.contributors() => 0,
            Collective::AllReduce | Collective::AllReduceToLeaders if !self.schedule.receives(member) => 0,
            Collective::AllReduce | Collective::AllReduceToLeaders => differ(0..elements, &sum),
            Collective::ReduceScatter | Collective::ReduceScatterV { .. } => differ(block(member), &sum),
            Collective::AllGather | Collective::AllGatherV { .. } => {
                (0..self.contributors()).map(|m| differ(block(m), &|e| value(m, e))).sum()
            }
            Collective::Broadcast { root } => differ(0..elements, &|e| value(*root, e)),
            Collective::Reduce { root } if *root == member => differ(0..elements, &sum),
            Collective::Reduce { .. } => 0,
            Collective::Scatter { root } => differ(block(member), &|e| value(*root, e)),
            Collective::Gather { root } | Collective::GatherV { root, .. } if *root == member => {
                (0..members).map(|m| differ(block(m), &|e| value(m, e))).sum()
            }
            Collective::Gather { .. } | Collective::GatherV { .. } => 0,
            Collective::AllToAll => (0..members)
                .map(|from| differ(Collective::block(elements, members, (from, member)), &|e| value(from, e)))
                .sum(),
            Collective::AllToAllV { counts } => {
                let mut at = 0;
                let mut wrong = 0;
                for from in 0..members {
                    let pair = from as usize * members as usize + member as usize;
                    let before = self.begins[pair];
                    let (first, length) = (at, counts[pair]);
                    wrong += differ(first..first + length, &|e| value(from, before + e - first));
                    at += length;
                }
                wrong
            }
        }
    }
}

/// Period of a member's values.
const PERIOD: usize = 16;

/// A small integer: sums of a million are exact.
fn value(member: u32, element: u64) -> f32 {
    ((element + 3 * u64::from(member)) % PERIOD as u64) as f32
}

/// Runs the collective on the ranks of `launch`, reporting progress to `shown`; returns nothing in processes other than
/// rank 0's. If no rank of this process completes a repetition within `patience`, the process ends with the exit code
/// of a stall.
///
/// # Errors
/// A rank that fails.
pub fn measure(
    collective: PreparedCollective,
    repetitions: Option<u32>,
    launch: &mut Launch,
    patience: Duration,
    shown: &Estimate,
) -> Result<Option<MeasuredCollective>, Failure> {
    let members = collective.schedule.members();
    let here = launch.here(members);
    let states: Vec<Memory> = here.clone().map(|rank| collective.memory(rank)).collect();
    // As in a training.
    let pins = launch.pins(members).map_err(run_failure)?;
    let moves = AtomicU64::new(0);
    let watch = Watch { moves: &moves, shown };
    let body = |end: &mut dyn Transport, memory: &mut Memory| {
        let _bound = pins.bind((end.rank().0 - here.start) as usize);
        member(&collective, end, memory, repetitions, &watch)
    };
    let late = || end_late(patience, "no repetition has ended");
    let results = shown.beside(|| patiently(patience, &moves, late, || launch.run_ranks(members, states, body)));
    shown.end();
    let results = results.map_err(run_failure)?;
    Ok(results.into_iter().flatten().next())
}

/// Watches the members of this process.
struct Watch<'a> {
    /// Repetitions that members have completed.
    moves: &'a AtomicU64,
    /// Where rank 0 reports progress.
    shown: &'a Estimate,
}

impl Watch<'_> {
    /// Rank 0 has done `done` runs of `all`.
    fn show(&self, rank: u32, done: u64, all: u64) {
        if rank == 0 {
            self.shown.show(done as f64 / all as f64, &format!("run {} of {all}", done + 1));
        }
    }
}

fn member(
    collective: &PreparedCollective,
    end: &mut dyn Transport,
    memory: &mut Memory,
    repetitions: Option<u32>,
    watch: &Watch<'_>,
) -> Result<Option<MeasuredCollective>, TransportError> {
    let (rank, ranks) = (end.rank().0, end.ranks());
    let mut part = collective.part(rank, memory);
    // One checked run and one that determines the number of the others, which is not yet known.
    let least = 2 + repetitions.map_or(FEWEST, u64::from);
    watch.show(rank, 0, least);
    part.complete(end)?;
    let wrong = collective.wrong(rank, Memory::values(&mut memory.output));
    watch.show(rank, 1, least);
    Memory::values(&mut memory.input).fill(0.0);
    Memory::values(&mut memory.output).fill(0.0);
    let mut once = |end: &mut dyn Transport| {
        part.again();
        control::barrier(end)?;
        let start = Instant::now();
        part.complete(end)?;
        watch.moves.fetch_add(1, Ordering::Relaxed);
        Ok::<u64, TransportError>(start.elapsed().as_nanos() as u64)
    };
    // The second run is warm; rank 0 sizes all others by it.
    let first = once(end)?;
    let count = match rank {
        0 => {
            let fits = (SECONDS * 1e9 / first.max(1) as f64) as u64;
            let count = repetitions.map_or(fits.clamp(FEWEST, MOST), u64::from);
            (1..ranks).try_for_each(|other| control::send(end, Rank(other), COUNT, count))?;
            count
        }
        _ => control::receive(end, Rank(0), COUNT)?,
    };
    let mut own = vec![wrong];
    for run in 0..count {
        watch.show(rank, 2 + run, 2 + count);
        own.push(once(end)?);
    }
    if rank != 0 {
        own.iter().try_for_each(|figure| control::send(end, Rank(0), RESULT, *figure))?;
        return Ok(None);
    }
    let mut slowest: Vec<u64> = own[1..].to_vec();
    let mut all_wrong = wrong;
    for other in (1..ranks).map(Rank) {
        all_wrong += control::receive(end, other, RESULT)?;
        for nanos in &mut slowest {
            *nanos = (*nanos).max(control::receive(end, other, RESULT)?);
        }
    }
    let seconds = slowest.into_iter().map(|nanos| nanos.max(1) as f64 * 1e-9).collect();
    Ok(Some(MeasuredCollective { seconds, wrong: all_wrong }))
}

#[cfg(test)]
mod tests {
    use lockstep_topology::{Algorithm, Group};

    use super::*;

    #[test]
    fn every_collective_is_right_and_timed() {
        for (collective, algorithm) in [
            (Collective::AllReduce, "ring"),
            (Collective::AllReduce, "parameter-server:1:dedicated"),
            (Collective::ReduceScatter, "ring"),
            (Collective::AllGather, "ring"),
            (Collective::AllReduce, "direct"),
            (Collective::ReduceScatterV { counts: vec![40, 0, 61].into() }, "direct"),
            (Collective::AllGatherV { counts: vec![0, 101, 0].into() }, "direct"),
            (Collective::Broadcast { root: 1 }, "binomial-tree"),
            (Collective::Reduce { root: 2 }, "pipelined-chain"),
            (Collective::Scatter { root: 1 }, "direct"),
            (Collective::Gather { root: 2 }, "direct"),
            (Collective::AllToAllV { counts: vec![30; 9].into() }, "pairwise"),
        ] {
            let algorithm: Algorithm = algorithm.parse().unwrap();
            let schedule = Schedule::new(&collective, &algorithm, &Group::flat(3), 101, 0).unwrap();
            let (mut launch, patience) = (Launch::Threads, Duration::from_secs(60));
            let measured =
                measure(PreparedCollective::new(schedule), Some(3), &mut launch, patience, &Estimate::silent());
            let measured = measured.unwrap().unwrap();
            assert_eq!((measured.seconds.len(), measured.wrong), (3, 0), "{collective} {algorithm}");
        }
    }

    #[test]
    fn a_wrong_element_is_counted() {
        let schedule = Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(2), 8, 0).unwrap();
        let collective = PreparedCollective::new(schedule);
        // 0 1 2 … and 3 4 5 … add up to 3 5 7 …
        let mut output: Vec<f32> = (0..8).map(|e| 3.0 + 2.0 * e as f32).collect();
        assert_eq!(collective.wrong(1, &output), 0);
        output[5] += 1.0;
        assert_eq!(collective.wrong(1, &output), 1);
    }
}
