//! Runs lanes the slow, obvious way: every member's buffer in full, a window of lanes in flight, sends without a copy.
//!
//! A message only refers to the sender's range; the receiver reads the sender's buffer when it consumes it. The order
//! in which members and lanes take their steps is drawn at random, so a range written too early shows as a wrong sum.

use std::collections::{BTreeMap, VecDeque};

use super::super::{Action, Collective, LaneStep, Schedule, shard};

/// The order in which members step, and how many lanes each has in flight.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// The seed of the random order.
    pub(super) seed: u64,
    /// Lanes in flight.
    pub(super) window: u32,
}

/// A lane in flight on a member.
struct Flight {
    lane: u32,
    steps: VecDeque<LaneStep>,
    /// Messages on the longest chain that led here.
    chain: u32,
}

/// A message in flight: the sent range, its copy if sends are copied, and the chain of messages that it ends.
struct Message<T> {
    range: std::ops::Range<usize>,
    copy: Option<Vec<T>>,
    chain: u32,
}

/// Runs all lanes; `output` is each member's buffer. For an alltoallv `input` is another one. Returns the longest chain
/// of dependent messages in a lane.
fn execute<T: Copy + std::ops::Add<Output = T>>(
    schedule: &Schedule,
    input: &[Vec<T>],
    output: &mut [Vec<T>],
    order: Order,
) -> Result<u32, String> {
    let in_place = !matches!(schedule.collective(), Collective::AllToAllV { .. });
    let members = schedule.members();
    let mut random = order.seed;
    let mut queues: BTreeMap<(u32, u32, u32), VecDeque<Message<T>>> = BTreeMap::new();
    let mut unread: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut flights: Vec<Vec<Flight>> = (0..members).map(|_| Vec::new()).collect();
    let mut next = vec![0; members as usize];
    let mut longest = 0;
    let mut idle_turns = 0;
    // enough turns without any progress that every member had one: then none can continue
    while idle_turns < 64 * members {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let turn = idle_turns.checked_sub(32 * members).unwrap_or((random >> 33) as u32);
        let member = turn % members;
        let me = member as usize;
        idle_turns += 1;
        while next[me] < schedule.lanes() && flights[me].len() < order.window as usize {
            let steps = schedule.lane(member, next[me]).collect();
            flights[me].push(Flight { lane: next[me], steps, chain: 0 });
            next[me] += 1;
            idle_turns = 0;
        }
        for flight in &mut flights[me] {
            let Some(step) = flight.steps.front().copied() else { continue };
            let range = step.start as usize..step.end as usize;
            if step.action == Action::Send {
                let copy = schedule.buffered_sends().then(|| output[me][range.clone()].to_vec());
                let chain = flight.chain + u32::from(step.peer != member);
                *unread.entry((member, flight.lane)).or_default() += 1;
                queues.entry((flight.lane, member, step.peer)).or_default().push_back(Message { range, copy, chain });
            } else {
                let queue = queues.entry((flight.lane, step.peer, member)).or_default();
                let Some(message) = queue.pop_front() else { continue };
                if message.range.len() != range.len() {
                    return Err(format!("member {member} receives {:?} in {range:?}", message.range));
                }
                *unread.entry((step.peer, flight.lane)).or_default() -= 1;
                flight.chain = flight.chain.max(message.chain);
                let source = if in_place { &output[step.peer as usize] } else { &input[step.peer as usize] };
                let data = message.copy.unwrap_or_else(|| source[message.range].to_vec());
                for (held, arrived) in output[me][range].iter_mut().zip(data) {
                    *held = if step.action == Action::RecvSum { *held + arrived } else { arrived };
                }
            }
            longest = longest.max(flight.chain);
            flight.steps.pop_front();
            idle_turns = 0;
        }
        // a lane ends when its sends have been consumed
        flights[me]
            .retain(|flight| !flight.steps.is_empty() || unread.get(&(member, flight.lane)).is_some_and(|n| *n > 0));
    }
    match flights.iter().position(|flights| !flights.is_empty()) {
        Some(member) => Err(format!("member {member} never ends its lanes")),
        None => Ok(longest),
    }
}

/// What `member` contributes to `element`.
fn contribution(member: u32, element: u64) -> i64 {
    (i64::from(member) + 1) * 1_000_003 + element as i64 * 17
}

/// A value that no result may contain.
const GARBAGE: i64 = 1 << 60;

/// Runs a schedule on integers, compares with the meaning of its collective, and returns the longest chain of messages.
pub(super) fn run(schedule: &Schedule, order: Order) -> Result<u32, String> {
    let (members, elements) = (schedule.members(), schedule.elements());
    if let Collective::AllToAllV { counts } = schedule.collective() {
        return exchange(schedule, counts, order);
    }
    let owner = |element| {
        let part = |member: u32| match schedule.collective() {
            Collective::AllGatherV { counts }
            | Collective::ReduceScatterV { counts }
            | Collective::GatherV { counts, .. } => {
                let start: u64 = counts[..member as usize].iter().sum();
                start..start + counts[member as usize]
            }
            _ => shard(elements, u64::from(schedule.contributors()), u64::from(member)),
        };
        let has = |member: u32| part(member).contains(&element);
        (0..members).find(|member: &u32| has(*member)).unwrap_or(0)
    };
    let owners: Vec<u32> = (0..elements).map(owner).collect();
    let owner = |element: u64| owners[element as usize];
    let pair = |element: u64| {
        let has = |pair: &(u32, u32)| Collective::block(elements, members, *pair).contains(&element);
        let mut pairs = (0..members).flat_map(|from| (0..members).map(move |to| (from, to)));
        pairs.find(has).expect("blocks cover the buffer")
    };
    let before = |member: u32, element: u64| {
        let has = match *schedule.collective() {
            Collective::AllGather
            | Collective::AllGatherV { .. }
            | Collective::Gather { .. }
            | Collective::GatherV { .. } => owner(element) == member,
            Collective::Broadcast { root } | Collective::Scatter { root } => root == member,
            Collective::AllToAll => pair(element).0 == member,
            _ => schedule.contributes(member),
        };
        if has { contribution(member, element) } else { GARBAGE }
    };
    let buffer = |member| (0..elements).map(|element| before(member, element)).collect::<Vec<i64>>();
    let mut output: Vec<Vec<i64>> = (0..members).map(buffer).collect();
    let chain = execute(schedule, &[], &mut output, order)?;
    let counts = |member: &u32| schedule.contributes(*member);
    let sum = |element| (0..members).filter(counts).map(|other| contribution(other, element)).sum::<i64>();
    let sums: Vec<i64> = (0..elements).map(sum).collect();
    for (member, buffer) in output.iter().enumerate() {
        for (element, got) in buffer.iter().enumerate() {
            let (member, sum) = (member as u32, sums[element]);
            let element = element as u64;
            let expected = match *schedule.collective() {
                _ if member >= schedule.contributors() => None,
                Collective::AllReduce | Collective::AllReduceToLeaders => schedule.receives(member).then_some(sum),
                Collective::ReduceScatter | Collective::ReduceScatterV { .. } => {
                    (owner(element) == member).then_some(sum)
                }
                Collective::Reduce { root } => (root == member).then_some(sum),
                Collective::AllGather | Collective::AllGatherV { .. } => Some(contribution(owner(element), element)),
                Collective::Broadcast { root } => Some(contribution(root, element)),
                Collective::Scatter { root } => (owner(element) == member).then_some(contribution(root, element)),
                Collective::Gather { root } | Collective::GatherV { root, .. } => {
                    (root == member).then_some(contribution(owner(element), element))
                }
                Collective::AllToAll => {
                    let (from, to) = pair(element);
                    (to == member).then_some(contribution(from, element))
                }
                Collective::AllToAllV { .. } => None,
            };
            if expected.is_some_and(|expected| expected != *got) {
                return Err(format!("member {member} ends with {got} in element {element}, not {expected:?}"));
            }
        }
    }
    Ok(chain)
}

/// Runs an alltoallv: element `e` of block `from → to` is `(from, to, e)` in one number.
fn exchange(schedule: &Schedule, counts: &[u64], order: Order) -> Result<u32, String> {
    let p = schedule.members() as usize;
    let block = |from: usize, to: usize| {
        let first = (from * 1000 + to) as i64 * 1000;
        first..first + counts[from * p + to] as i64
    };
    let input: Vec<Vec<i64>> = (0..p).map(|from| (0..p).flat_map(|to| block(from, to)).collect()).collect();
    let expected: Vec<Vec<i64>> = (0..p).map(|to| (0..p).flat_map(|from| block(from, to)).collect()).collect();
    let mut output: Vec<Vec<i64>> = expected.iter().map(|column| vec![GARBAGE; column.len()]).collect();
    let chain = execute(schedule, &input, &mut output, order)?;
    if output == expected { Ok(chain) } else { Err(format!("{output:?} is not {expected:?}")) }
}

/// Runs an allreduce on floats and returns each member's result.
pub(super) fn floats(schedule: &Schedule, value: impl Fn(u32, u64) -> f32) -> Vec<Vec<f32>> {
    let buffer = |member| (0..schedule.elements()).map(|element| value(member, element)).collect();
    let mut output: Vec<Vec<f32>> = (0..schedule.members()).map(buffer).collect();
    execute(schedule, &[], &mut output, Order { seed: 1, window: 2 }).expect("runs");
    output
}
