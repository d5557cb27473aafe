//! Proves symbolically that lanes compute the result of their collective for every timing, and reports the sums.
//!
//! Each lane is replayed on expressions instead of numbers (`replay.rs`). What a lane reads and when is decided by its
//! own order and its messages alone, so one replay covers all timings, and vector clocks show that no sent range is
//! written too early in any of them.

use std::ops::Range;

use super::blocks::Blocks;
use super::contract::Contract;
use super::fault::{Reason, ScheduleError};
use super::reduction_order::{Expressions, ReductionOrder};
use super::replay::Replay;
use super::schedule::Schedule;
use super::step::LaneStep;

/// Proves a schedule against its collective.
///
/// It expands every lane of every member; memory grows with members × steps of one lane. Meant for groups of up to some
/// hundred members.
///
/// # Errors
///
/// The first fault: for a deadlock, the members that wait for each other.
pub fn check(schedule: &Schedule) -> Result<ReductionOrder, ScheduleError> {
    prove(&schedule.contract(), |member, lane| schedule.lane(member, lane))
}

/// Proves lanes from any source, broken ones included: `lane(member, index)` gives the steps of a lane on a member.
pub(super) fn prove<I: Iterator<Item = LaneStep>>(
    contract: &Contract,
    lane: impl Fn(u32, u32) -> I,
) -> Result<ReductionOrder, ScheduleError> {
    let mut expressions = Expressions::new(contract.members);
    let mut replay = Replay::new(contract);
    let mut results = Vec::new();
    let mut touched: Vec<(Range<u64>, u32)> = Vec::new();
    let mut received: Vec<(u32, Range<u64>, u32)> = Vec::new();
    for index in 0..contract.lanes {
        replay.run(index, |member| lane(member, index), &mut expressions)?;
        if replay.blocks.is_some() {
            received.extend(replay.received().map(|(member, range)| (member, range, index)));
            continue;
        }
        for (range, values) in replay.segments() {
            let result =
                contract.combine(range.clone(), Some(index), |member| values[member as usize], &expressions)?;
            results.push((range.clone(), result));
            match touched.last_mut() {
                Some((last, same)) if last.end == range.start && *same == index => last.end = range.end,
                _ => touched.push((range, index)),
            }
        }
    }
    if let Some(blocks) = &replay.blocks {
        return covered(contract, blocks, received).map(|()| expressions.finish(Vec::new()));
    }
    touched.sort_by_key(|(range, _)| range.start);
    // elements that no lane touches must be right from the start
    let mut untouched = |gap: Range<u64>| {
        contract.parts(gap).try_for_each(|part| {
            let initial = |member| contract.initial(member, part.start);
            results.push((part.clone(), contract.combine(part.clone(), None, initial, &expressions)?));
            Ok(())
        })
    };
    let (mut end, mut before) = (0, 0);
    for (range, index) in touched {
        if range.start < end {
            let reason = Reason::LanesOverlap { other: before, range: range.start..end.min(range.end) };
            return Err(ScheduleError { member: 0, lane: Some(index), step: None, reason });
        }
        untouched(end..range.start)?;
        (end, before) = (range.end, index);
    }
    untouched(end..contract.elements)?;
    Ok(expressions.finish(results))
}

/// Checks that each member of an alltoallv has received each element of its output exactly once.
fn covered(
    contract: &Contract,
    blocks: &Blocks,
    mut received: Vec<(u32, Range<u64>, u32)>,
) -> Result<(), ScheduleError> {
    received.sort_by_key(|(member, range, _)| (*member, range.start));
    let mut received = received.into_iter().peekable();
    for member in 0..contract.members {
        let (mut end, mut before) = (0, 0);
        let last = blocks.received(contract.members - 1, member).end;
        let missing = |range: Range<u64>| {
            let from = (0..contract.members).find(|from| blocks.received(*from, member).end > range.start).unwrap_or(0);
            Err(ScheduleError { member, lane: None, step: None, reason: Reason::Missing { range, contributor: from } })
        };
        while let Some((_, range, lane)) = received.next_if(|(of, ..)| *of == member) {
            if range.start < end {
                let reason = Reason::LanesOverlap { other: before, range: range.start..end.min(range.end) };
                return Err(ScheduleError { member, lane: Some(lane), step: None, reason });
            }
            if range.start > end {
                return missing(end..range.start);
            }
            (end, before) = (range.end, lane);
        }
        if end < last {
            return missing(end..last);
        }
    }
    Ok(())
}
