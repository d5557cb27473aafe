//! Lists the test cases: collectives × algorithms × lengths × chunks, and the data that every member must hold
//! afterwards; the same for each transport.

use std::sync::Arc;

use lockstep_exec::Arena;
use lockstep_exec::exchange::{Buffers, RunningExchange, scratch_elements};
use lockstep_exec::transport::{Transport, TransportError};
use lockstep_topology::collective::{Algorithm, Collective, Group, ReductionOrder, Schedule, check};
use lockstep_topology::{Dtype, Rank};

/// One collective to run.
pub(crate) struct Case {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) algorithm: Algorithm,
    pub(crate) window: u32,
    /// The reduction order, where every member ends with the same one.
    pub(crate) reduction_order: Option<ReductionOrder>,
}

const LENGTHS: [u64; 5] = [0, 1, 7, 64, 1001];

/// All cases for a number of members; unsupported combinations are left out.
pub(crate) fn cases(members: u32) -> Vec<Case> {
    let last = members - 1;
    let counts: Arc<[u64]> = (0..u64::from(members * members)).map(|i| (i * 7 + 3) % 5).collect();
    let parts: Arc<[u64]> = (0..u64::from(members)).map(|i| (i * 11 + 2) % 7 * 9).collect();
    let collectives = [
        Collective::AllReduce,
        Collective::AllReduceToLeaders,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::Broadcast { root: last },
        Collective::Reduce { root: last / 2 },
        Collective::AllToAll,
        Collective::AllToAllV { counts },
        Collective::AllGatherV { counts: parts.clone() },
        Collective::GatherV { root: last / 2, counts: parts.clone() },
        Collective::ReduceScatterV { counts: parts },
        Collective::Scatter { root: last / 2 },
        Collective::Gather { root: last },
    ];
    let more = ["parameter-server:2", "parameter-server:1:dedicated", "hierarchical:halving-doubling"];
    let own = Algorithm::all().filter(|algorithm| algorithm.library().is_none());
    let algorithms: Vec<Algorithm> = own.chain(more.map(|text| text.parse().unwrap())).collect();
    let nodes: Vec<u32> = (0..members).step_by(3).map(|first| (members - first).min(3)).collect();
    let mut cases = Vec::new();
    for collective in &collectives {
        for algorithm in &algorithms {
            let group = if algorithm.by_nodes() { Group::nodes(&nodes) } else { Group::flat(members) };
            for elements in LENGTHS {
                for (chunk, window) in [(0, 0), (5, 1), (5, 3), (100, 0)] {
                    let elements = match collective {
                        Collective::AllToAllV { counts } => longest(counts, members as usize),
                        Collective::AllGatherV { counts }
                        | Collective::ReduceScatterV { counts }
                        | Collective::GatherV { counts, .. } => counts.iter().sum(),
                        _ => elements,
                    };
                    let Ok(schedule) = Schedule::new(collective, algorithm, &group, elements, chunk) else { continue };
                    let window = if window == 0 { schedule.window() } else { window };
                    let sums = matches!(collective, Collective::AllReduce | Collective::AllReduceToLeaders);
                    let summed = sums && members < 6 && elements < 100;
                    let reduction_order = summed.then(|| check(&schedule).unwrap());
                    cases.push(Case {
                        schedule: Arc::new(schedule),
                        algorithm: algorithm.clone(),
                        window,
                        reduction_order,
                    });
                }
            }
        }
    }
    cases
}

/// The longest row or column of an alltoallv.
fn longest(counts: &[u64], members: usize) -> u64 {
    let row = |m: usize| counts[m * members..(m + 1) * members].iter().sum::<u64>();
    let column = |m: usize| counts.iter().skip(m).step_by(members).sum::<u64>();
    (0..members).map(|m| row(m).max(column(m))).max().unwrap_or(0)
}

/// The numbers that members contribute.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Numbers {
    /// Small integers, so that any reduction order gives the same bits.
    Integers,
    /// Numbers for which the order shows.
    Fractions,
    /// Such numbers in bf16, whose sums are rounded one by one.
    Bf16,
}

impl Numbers {
    fn value(self, member: u32, element: u64) -> f32 {
        let integer = ((u64::from(member) * 31 + element * 7 + 5) % 64) as f32;
        if self == Numbers::Integers { integer } else { self.stored(integer * 0.1 + 1.0 / (1.0 + member as f32)) }
    }

    fn dtype(self) -> Dtype {
        if self == Numbers::Bf16 { Dtype::Bf16 } else { Dtype::F32 }
    }

    /// The number as memory holds it: in bf16 the nearer one of its neighbours, whose lower 16 bits are 0.
    fn stored(self, value: f32) -> f32 {
        if self != Numbers::Bf16 {
            return value;
        }
        let below = value.to_bits() & !0xffff;
        let [low, high] = [below, below + 0x1_0000].map(f32::from_bits);
        let (down, up) = (value - low, high - value);
        if down < up || (down == up && below >> 16 & 1 == 0) { low } else { high }
    }

    fn arena(self, values: impl Iterator<Item = f32>) -> Arena {
        let values: Vec<f32> = values.collect();
        if self != Numbers::Bf16 {
            return Arena::new(values);
        }
        let arena = Arena::of_pages(values.len(), Dtype::Bf16);
        // SAFETY: nothing else uses the arena.
        let bytes = unsafe { arena.bytes_mut(0..values.len()) };
        for (to, value) in bytes.chunks_exact_mut(2).zip(values) {
            to.copy_from_slice(&((value.to_bits() >> 16) as u16).to_ne_bytes());
        }
        arena
    }
}

/// Memory of one rank for one case.
pub(crate) struct Memory {
    numbers: Numbers,
    input: Arena,
    output: Arena,
    scratch: Arena,
}

impl Memory {
    pub(crate) fn new(case: &Case, member: u32, numbers: Numbers) -> Memory {
        let elements = case.schedule.elements();
        let scratch = scratch_elements(&case.schedule, case.window) as usize;
        let input = || numbers.arena((0..elements).map(|element| numbers.value(member, element)));
        Memory { numbers, input: input(), output: input(), scratch: numbers.arena((0..scratch).map(|_| f32::NAN)) }
    }

    /// What the member holds after the exchange.
    pub(crate) fn output(&self) -> Vec<f32> {
        // SAFETY: the exchange is done.
        let bytes = unsafe { self.output.bytes(0..self.output.len()) };
        let bf16 = |bytes: &[u8]| f32::from_bits(u32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) << 16);
        match self.numbers {
            Numbers::Bf16 => bytes.chunks_exact(2).map(bf16).collect(),
            // SAFETY: as above.
            _ => unsafe { self.output.to_vec() },
        }
    }

    /// The exchange of `member`, ready to run. The memory must outlive the transport, as `run` promises.
    pub(crate) fn exchange(&mut self, case: &Case, member: u32, ranks: &Arc<[Rank]>, number: u32) -> RunningExchange {
        let input = self.input.region_to_read(0..self.input.len());
        let [output, scratch] = [&self.output, &self.scratch].map(|arena| arena.region(0..arena.len()));
        let buffers = match case.schedule.collective() {
            Collective::AllToAllV { .. } => Buffers::separate(input, output),
            _ => Buffers::in_place(output, scratch),
        };
        RunningExchange::new(case.schedule.clone(), member, ranks.clone(), number, buffers, case.window)
    }
}

/// Asserts the data that `member` must hold after `case`, and the traffic that it must have sent.
pub(crate) fn verify(case: &Case, member: u32, memory: &Memory, exchange: &RunningExchange) {
    let (schedule, numbers, output) = (&case.schedule, memory.numbers, memory.output());
    let integers = numbers == Numbers::Integers;
    let (members, elements) = (schedule.members(), schedule.elements());
    let place = || {
        format!("{} by {}, member {member} of {members}, {elements} elements", schedule.collective(), case.algorithm)
    };
    let counts = |member: &u32| schedule.contributes(*member);
    let sum = |e: u64| (0..members).filter(counts).map(|m| numbers.value(m, e)).sum::<f32>();
    let holds = |e: u64, wanted: f32| {
        let got = output[e as usize];
        assert!(got == wanted, "{}: element {e} is {got}, not {wanted}", place());
    };
    match schedule.collective() {
        _ if member >= schedule.contributors() => {}
        Collective::AllReduceToLeaders if !schedule.receives(member) => {}
        Collective::AllReduce | Collective::AllReduceToLeaders => match &case.reduction_order {
            Some(reduction_order) => {
                for (range, id) in reduction_order.ranges() {
                    for e in range {
                        holds(e, reduction_order.fold(id, |m| numbers.value(m, e), |a, b| numbers.stored(a + b)));
                    }
                }
            }
            None if integers => (0..elements).for_each(|e| holds(e, sum(e))),
            None => {}
        },
        _ if !integers => {}
        Collective::ReduceScatter | Collective::ReduceScatterV { .. } => {
            let part = schedule.collective().part(elements, schedule.contributors(), member);
            part.for_each(|e| holds(e, sum(e)));
        }
        Collective::AllGather | Collective::AllGatherV { .. } => {
            for m in 0..schedule.contributors() {
                let part = schedule.collective().part(elements, schedule.contributors(), m);
                part.for_each(|e| holds(e, numbers.value(m, e)));
            }
        }
        Collective::Broadcast { root } => (0..elements).for_each(|e| holds(e, numbers.value(*root, e))),
        Collective::Reduce { root } if *root == member => (0..elements).for_each(|e| holds(e, sum(e))),
        Collective::Reduce { .. } => {}
        Collective::Scatter { root } => {
            schedule.collective().part(elements, members, member).for_each(|e| holds(e, numbers.value(*root, e)));
        }
        Collective::Gather { root } | Collective::GatherV { root, .. } if *root == member => {
            for m in 0..members {
                schedule.collective().part(elements, members, m).for_each(|e| holds(e, numbers.value(m, e)));
            }
        }
        Collective::Gather { .. } | Collective::GatherV { .. } => {}
        Collective::AllToAll => {
            for from in 0..members {
                let block = Collective::block(elements, members, (from, member));
                block.for_each(|e| holds(e, numbers.value(from, e)));
            }
        }
        Collective::AllToAllV { counts } => {
            let count = |from: u32, to: u32| counts[(from * members + to) as usize];
            let mut at = 0;
            for from in 0..members {
                let before: u64 = (0..member).map(|to| count(from, to)).sum();
                for e in 0..count(from, member) {
                    holds(at + e, numbers.value(from, before + e));
                }
                at += count(from, member);
            }
        }
    }
    let sent = exchange.sent().fold((0, 0), |sum, (_, peer)| (sum.0 + peer.messages, sum.1 + peer.bytes));
    assert_eq!(sent, (schedule.messages(member), numbers.dtype().bytes(schedule.elements_sent(member))), "{}", place());
}

/// Runs every case on this rank, in order, then asserts all results; ranks are members.
pub(crate) fn run_all(end: &mut dyn Transport, cases: &[Case], memory: &mut [Memory]) -> Result<(), TransportError> {
    let ranks: Arc<[Rank]> = (0..end.ranks()).map(Rank).collect();
    let member = end.rank().0;
    for (case, memory) in cases.iter().zip(memory) {
        let mut exchange = memory.exchange(case, member, &ranks, 0);
        exchange.complete(end)?;
        verify(case, member, memory, &exchange);
    }
    Ok(())
}

/// Runs cases `window` at a time, all in flight at once, and asserts all results.
pub(crate) fn run_together(
    end: &mut dyn Transport,
    cases: &[Case],
    memory: &mut [Memory],
) -> Result<(), TransportError> {
    use lockstep_exec::exchange::Progress;
    let ranks: Arc<[Rank]> = (0..end.ranks()).map(Rank).collect();
    let member = end.rank().0;
    for (cases, memory) in cases.chunks(12).zip(memory.chunks_mut(12)) {
        let mut exchanges: Vec<RunningExchange> = cases
            .iter()
            .zip(&mut *memory)
            .enumerate()
            .map(|(number, (case, memory))| memory.exchange(case, member, &ranks, number as u32))
            .collect();
        loop {
            let mut waiting = false;
            // Each rank advances them in another order.
            for at in 0..exchanges.len() {
                let at = (at + member as usize * 5) % exchanges.len();
                waiting |= exchanges[at].progress(end)? == Progress::Waiting;
            }
            if !waiting {
                break;
            }
            end.wait(None)?;
        }
        for ((case, memory), exchange) in cases.iter().zip(memory).zip(&exchanges) {
            verify(case, member, memory, exchange);
        }
    }
    Ok(())
}
