//! Measures the paths between the hosts of a job, pair by pair while all others wait: how long a short message takes,
//! and at which rate a long one arrives.

use std::time::Instant;

use lockstep_exec::transport::{Combine, Transport, TransportError, control};
use lockstep_models::quantile;
use lockstep_report::failure::Failure;
use lockstep_report::progress::Estimate;
use lockstep_topology::Rank;

use super::messages::Pair;
use crate::launch::Launch;

/// Round trips of each pair.
const ROUND_TRIPS: usize = 100;
/// Elements of the two long messages whose difference in time is that of the bytes between: 1 and 5 MiB.
const LONG: [usize; 2] = [1 << 18, 5 << 18];
/// Long messages of each length.
const REPETITIONS: usize = 5;
/// Kinds of messages: short ones, long ones with their answers, and results.
const SHORT: u32 = 1;
const DATA: u32 = 2;
const ANSWER: u32 = 3;
const RESULT: u32 = 10;

/// What one direction between two processes was measured at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredPath {
    /// The sending process.
    pub from: u32,
    /// The receiving one.
    pub to: u32,
    /// Half a round trip of 4 bytes, in seconds: the median.
    pub message_s: f64,
    /// Bytes per second of a message of several MiB, its latency left out.
    pub bytes_per_s: f64,
}

/// Measures every pair of processes on different hosts; rank 0's process gets the paths in both directions. Every
/// process calls it.
///
/// # Errors
/// A lost message.
pub fn paths(launch: &mut Launch, shown: &Estimate) -> Result<Option<Vec<MeasuredPath>>, Failure> {
    let hosts = launch.hosts();
    let ordered: Vec<(u32, u32)> = (0..launch.processes())
        .flat_map(|from| (0..launch.processes()).map(move |to| (from, to)))
        .filter(|(from, to)| hosts[*from as usize] != hosts[*to as usize])
        .collect();
    let measured = launch.run_ranks(launch.processes(), vec![vec![1.0; LONG[1]]], |end, data: &mut Vec<f32>| {
        let own = end.rank().0;
        let mut found = Vec::new();
        for (done, (from, to)) in ordered.iter().copied().enumerate() {
            if own == 0 {
                shown.show(done as f64 / ordered.len() as f64, &format!("host {from} to host {to}"));
            }
            if own == from || own == to {
                let peer = Rank(if own == from { to } else { from });
                let times = one_way(&mut Pair { end: &mut *end, peer, gate: None }, own == from, data)?;
                found.extend((own == from).then_some(times));
            }
            control::barrier(end)?;
        }
        gathered(end, &ordered, &found)
    });
    shown.end();
    let measured = measured.map_err(|error| Failure::Run(error.to_string()))?;
    Ok(measured.into_iter().next().flatten())
}

/// Seconds of a short message, and of each long one, from one side to the other; the receiver's are not used.
fn one_way(pair: &mut Pair<'_>, sends: bool, data: &mut [f32]) -> Result<[f64; 3], TransportError> {
    let (mut short, mut answer) = ([0.0f32], [0.0f32]);
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        quantile(times, 0.5)
    };
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        round_trips.push(there_and_back(pair, sends, &mut short, &mut answer, [SHORT, SHORT])?);
    }
    let mut result = [median(&mut round_trips) / 2.0, 0.0, 0.0];
    for (seconds, elements) in result[1..].iter_mut().zip(LONG) {
        let mut times = Vec::with_capacity(REPETITIONS);
        for _ in 0..REPETITIONS {
            times.push(there_and_back(pair, sends, &mut data[..elements], &mut answer, [DATA, ANSWER])?);
        }
        *seconds = median(&mut times);
    }
    Ok(result)
}

/// Seconds from the sending of `data` to the arrival of the answer.
fn there_and_back(
    pair: &mut Pair<'_>,
    sends: bool,
    data: &mut [f32],
    answer: &mut [f32],
    [there, back]: [u32; 2],
) -> Result<f64, TransportError> {
    let begun = Instant::now();
    if sends {
        pair.send(data, there)?;
        pair.receive(answer, &mut [], back, Combine::Copy)?;
    } else {
        pair.receive(data, &mut [], there, Combine::Copy)?;
        pair.send(answer, back)?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Gathers the times of all senders on rank 0, in the order of the pairs.
fn gathered(
    end: &mut dyn Transport,
    ordered: &[(u32, u32)],
    found: &[[f64; 3]],
) -> Result<Option<Vec<MeasuredPath>>, TransportError> {
    let own = end.rank().0;
    if own != 0 {
        for seconds in found.iter().flatten() {
            control::send(end, Rank(0), RESULT, seconds.to_bits())?;
        }
        return Ok(None);
    }
    let mut own_times = found.iter();
    let mut all = Vec::with_capacity(ordered.len());
    for (from, to) in ordered.iter().copied() {
        let [message_s, less, more] = if from == 0 {
            *own_times.next().expect("a pair that rank 0 sends in")
        } else {
            let mut next = || Ok::<_, TransportError>(f64::from_bits(control::receive(end, Rank(from), RESULT)?));
            [next()?, next()?, next()?]
        };
        let bytes = (4 * (LONG[1] - LONG[0])) as f64;
        all.push(MeasuredPath { from, to, message_s, bytes_per_s: bytes / (more - less).max(1e-9) });
    }
    Ok(Some(all))
}
