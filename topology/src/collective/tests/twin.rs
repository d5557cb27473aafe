//! The slow obvious executor of lanes: every member's buffer in full, messages copied when they are consumed.

use std::collections::{BTreeMap, VecDeque};

use super::super::{Action, Collective, Schedule, Step, shard};

/// A message in flight: what it says, and how many messages it depends on.
type Message<T> = (Vec<T>, u32);

/// Runs all lanes, one after the other, and gives each member's result and the longest chain of dependent messages. For
/// an alltoallv `input` and output are two buffers.
fn execute<T: Copy + std::ops::Add<Output = T>>(
    schedule: &Schedule,
    input: &[Vec<T>],
    output: &mut [Vec<T>],
    reversed: bool,
) -> Result<u32, String> {
    let in_place = !matches!(schedule.collective(), Collective::AllToAllV { .. });
    let members = schedule.members();
    let mut longest = 0;
    for index in 0..schedule.lanes() {
        let mut lanes: Vec<VecDeque<Step>> =
            (0..members).map(|member| schedule.lane(member, index).collect()).collect();
        let mut queues: BTreeMap<(u32, u32), VecDeque<Message<T>>> = BTreeMap::new();
        let mut depth = vec![0; members as usize];
        let mut progress = true;
        while progress {
            progress = false;
            for turn in 0..members {
                let member = if reversed { members - 1 - turn } else { turn };
                let me = member as usize;
                let Some(step) = lanes[me].front().copied() else { continue };
                let range = step.start as usize..step.end as usize;
                if step.action == Action::Send {
                    let source = if in_place { &output[me] } else { &input[me] };
                    let chain = depth[me] + u32::from(step.peer != member);
                    queues.entry((member, step.peer)).or_default().push_back((source[range].to_vec(), chain));
                } else {
                    let Some((data, chain)) = queues.entry((step.peer, member)).or_default().pop_front() else {
                        continue;
                    };
                    if data.len() != range.len() {
                        return Err(format!("member {member} receives {} elements in {range:?}", data.len()));
                    }
                    depth[me] = depth[me].max(chain);
                    for (held, arrived) in output[me][range].iter_mut().zip(data) {
                        *held = if step.action == Action::RecvSum { *held + arrived } else { arrived };
                    }
                }
                lanes[me].pop_front();
                progress = true;
            }
        }
        if let Some(member) = lanes.iter().position(|lane| !lane.is_empty()) {
            return Err(format!("member {member} never ends lane {index}"));
        }
        if queues.values().any(|queue| !queue.is_empty()) {
            return Err(format!("a message of lane {index} is never received"));
        }
        longest = longest.max(depth.into_iter().max().unwrap_or(0));
    }
    Ok(longest)
}

/// What `member` contributes to `element`.
fn contribution(member: u32, element: u64) -> i64 {
    (i64::from(member) + 1) * 1_000_003 + element as i64 * 17
}

/// What no result may contain.
const GARBAGE: i64 = 1 << 60;

/// Runs a schedule on integers, compares with the meaning of its collective, and gives the longest chain of messages.
pub(super) fn run(schedule: &Schedule, reversed: bool) -> Result<u32, String> {
    let (members, elements) = (schedule.members(), schedule.elements());
    if let Collective::AllToAllV { counts } = schedule.collective() {
        return exchange(schedule, counts, reversed);
    }
    let owner = |element| {
        let has = |member| shard(elements, u64::from(members), u64::from(member)).contains(&element);
        (0..members).find(|member| has(*member)).unwrap_or(0)
    };
    let before = |member: u32, element: u64| {
        let has = match *schedule.collective() {
            Collective::AllGather => owner(element) == member,
            Collective::Broadcast { root } => root == member,
            _ => member < schedule.contributors(),
        };
        if has { contribution(member, element) } else { GARBAGE }
    };
    let buffer = |member| (0..elements).map(|element| before(member, element)).collect::<Vec<i64>>();
    let mut output: Vec<Vec<i64>> = (0..members).map(buffer).collect();
    let depth = execute(schedule, &[], &mut output, reversed)?;
    for (member, buffer) in output.iter().enumerate() {
        for (element, got) in buffer.iter().enumerate() {
            let (member, element) = (member as u32, element as u64);
            let sum = || (0..schedule.contributors()).map(|other| contribution(other, element)).sum::<i64>();
            let expected = match *schedule.collective() {
                Collective::AllReduce => (member < schedule.contributors()).then(sum),
                Collective::ReduceScatter => (owner(element) == member).then(sum),
                Collective::Reduce { root } => (root == member).then(sum),
                Collective::AllGather => Some(contribution(owner(element), element)),
                Collective::Broadcast { root } => Some(contribution(root, element)),
                Collective::AllToAllV { .. } => None,
            };
            if expected.is_some_and(|expected| expected != *got) {
                return Err(format!("member {member} ends with {got} in element {element}, not {expected:?}"));
            }
        }
    }
    Ok(depth)
}

/// Runs an alltoallv: element `e` of block `from → to` is `(from, to, e)` in one number.
fn exchange(schedule: &Schedule, counts: &[u64], reversed: bool) -> Result<u32, String> {
    let p = schedule.members() as usize;
    let block =
        |from: usize, to: usize| (0..counts[from * p + to]).map(move |e| (from * 1000 + to) as i64 * 1000 + e as i64);
    let input: Vec<Vec<i64>> = (0..p).map(|from| (0..p).flat_map(|to| block(from, to)).collect()).collect();
    let expected: Vec<Vec<i64>> = (0..p).map(|to| (0..p).flat_map(|from| block(from, to)).collect()).collect();
    let mut output: Vec<Vec<i64>> = expected.iter().map(|column| vec![GARBAGE; column.len()]).collect();
    let depth = execute(schedule, &input, &mut output, reversed)?;
    if output == expected { Ok(depth) } else { Err(format!("{output:?} is not {expected:?}")) }
}

/// Runs an allreduce on floats and gives what every member ends with.
pub(super) fn floats(schedule: &Schedule, value: impl Fn(u32, u64) -> f32) -> Vec<Vec<f32>> {
    let buffer = |member| (0..schedule.elements()).map(|element| value(member, element)).collect();
    let mut output: Vec<Vec<f32>> = (0..schedule.members()).map(buffer).collect();
    execute(schedule, &[], &mut output, false).expect("runs");
    output
}
