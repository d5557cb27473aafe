//! Times single messages between two ranks of this process: latency α, overhead o, and per byte β (copied) and γ (summed).

use std::time::Instant;

use lockstep_exec::Pins;
use lockstep_exec::transport::{Combine, Region, RegionMut, Tag, Transport, TransportError, memory};
use lockstep_sim::{Interval, TransportEntry};
use lockstep_topology::Rank;

use super::bench::{Elsewhere, Gate};
use super::interval::interval;

/// Elements of the messages whose bytes are timed: 2 MiB, beyond the nearest caches as gradients are.
const LARGE: usize = 512 * 1024;
/// Bytes walked over between large messages.
const ELSEWHERE: usize = 8 << 20;
/// Messages of one element in a burst, to find the overhead of one.
const BURST: usize = 64;

/// One rank's memory; it outlives the wires.
struct Side {
    data: Vec<f32>,
    sums: Vec<f32>,
    elsewhere: Elsewhere,
}

/// What one side measured, in seconds.
#[derive(Default)]
struct Times {
    round_trip: Vec<f64>,
    overhead: Vec<f64>,
    copy: Vec<f64>,
    sum: Vec<f64>,
    both: Vec<f64>,
}

/// The transport between threads of this process.
///
/// # Errors
/// When a rank of the measurement fails.
pub(super) fn messages(cores: usize, repetitions: usize) -> Result<TransportEntry, TransportError> {
    let side = || Side { data: vec![1.0; LARGE], sums: vec![0.0; LARGE], elsewhere: Elsewhere::new(ELSEWHERE) };
    let gate = Gate::new(2);
    let spin = if cores >= 2 { memory::SPIN } else { 0 };
    let pins = Pins::new(2, 1);
    let times = memory::run(vec![side(), side()], spin, |end, side| {
        let _bound = pins.bind(end.rank().0 as usize);
        let mut times = Times::default();
        for _ in 0..repetitions {
            times.round_trip.push(round_trip(end, side)?);
            times.overhead.push(burst(end, side, &gate)?);
            times.copy.push(large(end, side, &gate, Combine::Copy, false)?);
            times.sum.push(large(end, side, &gate, Combine::Sum, false)?);
            times.both.push(large(end, side, &gate, Combine::Sum, true)?);
        }
        Ok::<Times, TransportError>(times)
    })?;
    let receiver = &times[1];
    let overhead = interval(receiver.overhead.iter().map(|t| t / BURST as f64).collect());
    let half = |t: &f64| (t / 2.0 - overhead.value).max(0.0);
    let per_byte = |times: &[f64]| -> Interval { interval(times.iter().map(|t| t / (4 * LARGE) as f64).collect()) };
    let (copy, sum) = (per_byte(&receiver.copy), per_byte(&receiver.sum));
    let both = interval(times.iter().flat_map(|side| side.both.iter().map(|t| t / (4 * LARGE) as f64)).collect());
    let latency = interval(times[0].round_trip.iter().map(half).collect());
    let sleeping = memory::run(vec![side(), side()], 0, |end, side| {
        let _bound = pins.bind(end.rank().0 as usize);
        (0..repetitions).map(|_| round_trip(end, side)).collect::<Result<Vec<f64>, TransportError>>()
    })?;
    let asleep = interval(sleeping[0].iter().map(half).collect());
    let more = |asleep: f64| (asleep - latency.value).max(0.0);
    let wake = Interval { value: more(asleep.value), low: more(asleep.low), high: more(asleep.high) };
    Ok(TransportEntry { latency, wake: Some(wake), overhead, copy, sum, slowdown: (both.value / sum.value).max(1.0) })
}

fn peer(end: &dyn Transport) -> Rank {
    Rank(1 - end.rank().0)
}

fn send(end: &mut dyn Transport, data: &[f32], tag: u32) -> Result<(), TransportError> {
    // SAFETY: the sides outlive the ends, and nobody writes the data before the send is done.
    let region = unsafe { Region::new(data.as_ptr(), data.len()) };
    let id = end.post_send(peer(end), Tag::control(tag), region)?;
    loop {
        end.poll()?;
        if end.send_done(id)? {
            return Ok(());
        }
        end.wait(None)?;
    }
}

fn receive(end: &mut dyn Transport, into: &mut [f32], tag: u32, combine: Combine) -> Result<(), TransportError> {
    // SAFETY: as above; the region is read again only after the receive is done.
    let region = unsafe { RegionMut::new(into.as_mut_ptr(), into.len()) };
    let id = end.post_recv(peer(end), Tag::control(tag), region, combine, RegionMut::empty())?;
    loop {
        end.poll()?;
        if end.recv_done(id)? {
            return Ok(());
        }
        end.wait(None)?;
    }
}

/// A message of one element there and back, both sides waiting.
fn round_trip(end: &mut dyn Transport, side: &mut Side) -> Result<f64, TransportError> {
    let start = Instant::now();
    if end.rank().0 == 0 {
        send(end, &side.data[..1], 1)?;
        receive(end, &mut side.sums[..1], 1, Combine::Copy)?;
    } else {
        receive(end, &mut side.sums[..1], 1, Combine::Copy)?;
        send(end, &side.data[..1], 1)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Many messages that are there already when rank 1 takes them.
fn burst(end: &mut dyn Transport, side: &mut Side, gate: &Gate) -> Result<f64, TransportError> {
    let to = peer(end);
    if end.rank().0 == 0 {
        let mut ids = Vec::new();
        for element in side.data[..BURST].chunks(1) {
            // SAFETY: as in `send`.
            ids.push(end.post_send(to, Tag::control(2), unsafe { Region::new(element.as_ptr(), 1) })?);
        }
        gate.pass();
        for id in ids {
            loop {
                end.poll()?;
                if end.send_done(id)? {
                    break;
                }
                end.wait(None)?;
            }
        }
        return Ok(0.0);
    }
    gate.pass();
    let start = Instant::now();
    for _ in 0..BURST {
        receive(end, &mut side.sums[..1], 2, Combine::Sum)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// One large message that is there already when it is taken; with `both` the two sides exchange at once.
fn large(
    end: &mut dyn Transport,
    side: &mut Side,
    gate: &Gate,
    combine: Combine,
    both: bool,
) -> Result<f64, TransportError> {
    side.elsewhere.walk();
    side.data.iter_mut().for_each(|value| *value *= 0.5); // a sender has just written what it sends
    let (to, first) = (peer(end), end.rank().0 == 0);
    // SAFETY: as in `send`.
    let region = unsafe { Region::new(side.data.as_ptr(), side.data.len()) };
    let sent = if first || both { Some(end.post_send(to, Tag::control(3), region)?) } else { None };
    gate.pass();
    let start = Instant::now();
    if !first || both {
        receive(end, &mut side.sums, 3, combine)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    if let Some(id) = sent {
        loop {
            end.poll()?;
            if end.send_done(id)? {
                break;
            }
            end.wait(None)?;
        }
    }
    gate.pass();
    Ok(seconds)
}
