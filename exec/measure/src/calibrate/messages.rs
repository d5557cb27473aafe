//! Times single messages between two ranks, of this process or of two: latency α, overhead o, and per byte β (copied,
//! and copied into memory that no cache holds) and γ (summed), also of buffers that are used again and again.
//!
//! Times have a sign: a negative one is of a message during which the side was preempted, and does not count.

use lockstep_exec::Pins;
use lockstep_exec::transport::{Combine, Region, RegionMut, Tag, Transport, TransportError, control, memory};
use lockstep_models::profile::{Interval, RepeatedEntry, TransportEntry};
use lockstep_report::failure::Failure;
use lockstep_topology::Rank;

use super::bench::{Elsewhere, Gate};
use super::interval::interval;
use super::samples::FEWEST;
use crate::host::Cores;
use crate::launch::Launch;
use crate::stopwatch::Stopwatch;

/// Elements of large messages: 2 MiB, beyond the nearest caches as gradients are.
const LARGE: usize = 512 * 1024;
/// Bytes walked over between large messages.
const ELSEWHERE: usize = 8 << 20;
/// Elements of messages that only the last-level cache may hold when they are sent: 8 MiB.
const COLD: usize = 4 * LARGE;
/// Receive buffers that such messages use in turn: 64 MiB in all, more than most last-level caches.
const PLACES: usize = 8;
/// Elements of buffers that are used again and again, 16 KiB to 32 MiB, and how often each is timed.
const REPEATED: [(usize, usize); 5] = [(1 << 12, 100), (1 << 15, 100), (1 << 18, 50), (1 << 21, 20), (1 << 23, 10)];
/// Rounds in which all of this is timed: two cores of a virtual machine are near each other or far for a tenth of a second.
const ROUNDS: usize = 10;
/// The first messages with such a buffer bring it into caches; only the others count.
const WARMING: usize = 2;
/// Messages of one element in a burst, for measuring the overhead of one.
const BURST: usize = 64;
/// Kinds of the control messages of pairs in two processes: a common start, and the receiver's measurements.
const START: u32 = 8;
const MEASURED: u32 = 9;

/// One rank's memory; it outlives the transport.
struct Side {
    data: Vec<f32>,
    sums: Vec<f32>,
    /// Scratch for sums, on transports that need it.
    scratch: Vec<f32>,
    /// On the sender cold data, on the receiver the receive buffers in turn; empty until then.
    cold: Vec<f32>,
    place: usize,
    /// The buffer that is used again and again, and scratch for it; empty until then.
    repeated: [Vec<f32>; 2],
    elsewhere: Elsewhere,
}

impl Side {
    fn new() -> Side {
        let elsewhere = Elsewhere::new(ELSEWHERE);
        let (data, [sums, scratch]) = (vec![1.0; LARGE], [0, 1].map(|_| vec![0.0; LARGE]));
        Side { data, sums, scratch, cold: Vec::new(), place: 0, repeated: Default::default(), elsewhere }
    }
}

/// Two measuring ranks, from the view of one of them.
pub(super) struct Pair<'a> {
    pub(super) end: &'a mut dyn Transport,
    pub(super) peer: Rank,
    /// How they start together: a gate of their process, or a message each way.
    pub(super) gate: Option<&'a Gate>,
}

/// Figures of messages, and whether one of them could not be measured undisturbed.
#[derive(Debug, Clone)]
pub struct MeasuredMessages {
    /// The figures.
    pub entry: TransportEntry,
    /// Whether one of them rests on times during which other programs had the cores.
    pub disturbed: bool,
}

/// Measurements of one side, in seconds, negative where it was preempted.
#[derive(Default)]
struct Times {
    round_trip: Vec<f64>,
    overhead: Vec<f64>,
    copy: Vec<f64>,
    cold: Vec<f64>,
    sum: Vec<f64>,
    both: Vec<f64>,
    /// By size of [`REPEATED`]: copies, then sums.
    repeated: Vec<[Vec<f64>; 2]>,
}

/// Measures the transport between threads of this process.
///
/// # Errors
/// When a measuring rank fails.
pub(super) fn messages(cores: &Cores, repetitions: usize) -> Result<MeasuredMessages, TransportError> {
    let gate = Gate::new(2);
    let spin = if cores.count() >= 2 { memory::SPIN } else { 0 };
    let pins = cores.pins(2);
    let run = |spin: u32, repetitions: usize, asleep: bool| {
        memory::run(vec![Side::new(), Side::new()], spin, |end, side| {
            let _bound = pins.bind(end.rank().0 as usize);
            let peer = Rank(1 - end.rank().0);
            let mut pair = Pair { end, peer, gate: Some(&gate) };
            if asleep { pair.round_trips(side, repetitions) } else { pair.times(side, repetitions) }
        })
    };
    let times = run(spin, repetitions, false)?;
    let MeasuredMessages { entry, disturbed } = evaluate(&times[0], &times[1]);
    let sleeping = run(0, repetitions, true)?;
    let mut list = Undisturbed::default();
    let half = |t: f64| (t / 2.0 - entry.overhead.value).max(0.0);
    let asleep = interval(list.of(&sleeping[0].round_trip, &sleeping[1].round_trip, half));
    let more = |asleep: f64| (asleep - entry.latency.value).max(0.0);
    let wake = Interval { value: more(asleep.value), low: more(asleep.low), high: more(asleep.high) };
    Ok(MeasuredMessages { entry: TransportEntry { wake: Some(wake), ..entry }, disturbed: disturbed || list.disturbed })
}

/// Measures the transport between two processes on the host of rank 0; `None` where there is only one. Every process
/// calls it, and rank 0's process gets the result.
///
/// # Errors
/// When a measuring rank fails.
pub(super) fn between_processes(launch: &mut Launch, repetitions: usize) -> Result<Option<MeasuredMessages>, Failure> {
    let hosts = launch.hosts();
    let Some(other) = hosts.iter().skip(1).position(|host| *host == 0).map(|index| index as u32 + 1) else {
        return Ok(None);
    };
    let measured = launch.run_ranks(launch.processes(), vec![Side::new()], |end, side| {
        let own = end.rank().0;
        if own != 0 && own != other {
            return Ok(None);
        }
        let pins = Pins::anywhere(2);
        let _bound = pins.bind(usize::from(own != 0));
        let mut pair = Pair { end, peer: Rank(if own == 0 { other } else { 0 }), gate: None };
        let times = pair.times(side, repetitions)?;
        if own != 0 {
            let sent = [&times.round_trip, &times.overhead, &times.copy, &times.cold, &times.sum, &times.both];
            let sent = sent.into_iter().chain(times.repeated.iter().flatten());
            let values: Vec<f32> = sent.flatten().map(|seconds| *seconds as f32).collect();
            control::send_elements(pair.end, Rank(0), MEASURED, values)?;
            return Ok(None);
        }
        let count = 6 * repetitions + REPEATED.iter().map(|(_, repetitions)| 2 * repetitions).sum::<usize>();
        let values: Vec<f32> = control::receive_elements(pair.end, Rank(other), MEASURED, count)?;
        let mut values = values.into_iter().map(f64::from);
        let mut list = |repetitions| values.by_ref().take(repetitions).collect();
        let receiver = Times {
            round_trip: list(repetitions),
            overhead: list(repetitions),
            copy: list(repetitions),
            cold: list(repetitions),
            sum: list(repetitions),
            both: list(repetitions),
            repeated: REPEATED.map(|(_, repetitions)| [list(repetitions), list(repetitions)]).into(),
        };
        Ok(Some(evaluate(&times, &receiver)))
    });
    let measured = measured.map_err(|error| Failure::Run(error.to_string()))?;
    Ok(measured.into_iter().next().flatten())
}

/// Selects the times of messages during which neither side was preempted.
#[derive(Default)]
struct Undisturbed {
    /// Whether there were too few of a kind, so that all were taken.
    disturbed: bool,
}

impl Undisturbed {
    /// `convert` of the times of one side, without those that either side marked.
    fn of(&mut self, own: &[f64], other: &[f64], convert: impl Fn(f64) -> f64) -> Vec<f64> {
        let marked = |seconds: &f64| seconds.is_sign_negative();
        let both = || own.iter().zip(other);
        let sound: Vec<f64> =
            both().filter(|(own, other)| !marked(own) && !marked(other)).map(|(own, _)| convert(*own)).collect();
        if sound.len() >= FEWEST.min(own.len()) {
            return sound;
        }
        self.disturbed = true;
        own.iter().map(|seconds| convert(seconds.abs())).collect()
    }
}

/// Combines the measurements of the two sides; the second one received.
fn evaluate(first: &Times, receiver: &Times) -> MeasuredMessages {
    let mut list = Undisturbed::default();
    let per_byte = |seconds: f64| seconds / (4 * LARGE) as f64;
    let overhead = interval(list.of(&receiver.overhead, &first.overhead, |seconds| seconds / BURST as f64));
    let copy = interval(list.of(&receiver.copy, &first.copy, per_byte));
    let cold = interval(list.of(&receiver.cold, &first.cold, |seconds| seconds / (4 * COLD) as f64));
    let sum = interval(list.of(&receiver.sum, &first.sum, per_byte));
    let exchanged = [(&first.both, &receiver.both), (&receiver.both, &first.both)];
    let both = interval(exchanged.into_iter().flat_map(|(own, other)| list.of(own, other, per_byte)).collect());
    let half = |seconds: f64| (seconds / 2.0 - overhead.value).max(0.0);
    let latency = interval(list.of(&first.round_trip, &receiver.round_trip, half));
    let mut repeated = Vec::new();
    for (number, (elements, _)) in REPEATED.iter().enumerate() {
        let bytes = 4 * *elements as u64;
        let each = |seconds: f64| (seconds - overhead.value).max(0.0) / bytes as f64;
        let [copy, sum] =
            [0, 1].map(|kind| interval(list.of(&receiver.repeated[number][kind], &first.repeated[number][kind], each)));
        repeated.push(RepeatedEntry { bytes, copy, sum });
    }
    let slowdown = (both.value / sum.value).max(1.0);
    let entry = TransportEntry { latency, wake: None, overhead, copy, cold: Some(cold), sum, slowdown, repeated };
    MeasuredMessages { entry, disturbed: list.disturbed }
}

impl Pair<'_> {
    /// Times everything, `repetitions` times, all kinds of messages in turn.
    fn times(&mut self, side: &mut Side, repetitions: usize) -> Result<Times, TransportError> {
        let mut times = Times { repeated: vec![Default::default(); REPEATED.len()], ..Times::default() };
        for round in 0..ROUNDS {
            let share = |repetitions: usize| (round + 1) * repetitions / ROUNDS - round * repetitions / ROUNDS;
            for _ in 0..share(repetitions) {
                times.round_trip.push(self.round_trip(side)?);
                times.overhead.push(self.burst(side)?);
                times.copy.push(self.large(side, Combine::Copy, false)?);
                times.cold.push(self.cold(side)?);
                times.sum.push(self.large(side, Combine::Sum, false)?);
                times.both.push(self.large(side, Combine::Sum, true)?);
            }
            for ((elements, repetitions), [copies, sums]) in REPEATED.into_iter().zip(&mut times.repeated) {
                copies.extend(self.repeated(side, elements, Combine::Copy, share(repetitions))?);
                sums.extend(self.repeated(side, elements, Combine::Sum, share(repetitions))?);
            }
        }
        Ok(times)
    }

    /// Times only round trips.
    fn round_trips(&mut self, side: &mut Side, repetitions: usize) -> Result<Times, TransportError> {
        let round_trip =
            (0..repetitions).map(|_| self.round_trip(side)).collect::<Result<Vec<f64>, TransportError>>()?;
        Ok(Times { round_trip, ..Times::default() })
    }

    /// Whether this side sends where only one does.
    fn sends(&self) -> bool {
        self.end.rank() < self.peer
    }

    fn begin(&mut self) -> Result<(), TransportError> {
        match self.gate {
            Some(gate) => {
                gate.pass();
                Ok(())
            }
            None => control::swap(self.end, self.peer, self.peer, START, 0).map(drop),
        }
    }

    fn post(&mut self, data: &[f32], tag: u32) -> Result<lockstep_exec::transport::SendId, TransportError> {
        // SAFETY: the sides outlive the endpoints, and the data is not written before the send is done.
        let region = unsafe { Region::new(data.as_ptr(), data.len()) };
        self.end.post_send(self.peer, Tag::control(tag), region)
    }

    fn sent(&mut self, id: lockstep_exec::transport::SendId) -> Result<(), TransportError> {
        loop {
            self.end.poll()?;
            if self.end.send_done(id)? {
                return Ok(());
            }
            self.end.wait(None)?;
        }
    }

    pub(super) fn send(&mut self, data: &[f32], tag: u32) -> Result<(), TransportError> {
        let id = self.post(data, tag)?;
        self.sent(id)
    }

    pub(super) fn receive(
        &mut self,
        into: &mut [f32],
        scratch: &mut [f32],
        tag: u32,
        combine: Combine,
    ) -> Result<(), TransportError> {
        // SAFETY: as above; the regions are read again only after the receive is done.
        let region = unsafe { RegionMut::new(into.as_mut_ptr(), into.len()) };
        let scratch = match self.end.needs_scratch() && combine == Combine::Sum {
            // SAFETY: as above.
            true => unsafe { RegionMut::new(scratch.as_mut_ptr(), into.len()) },
            false => RegionMut::empty(),
        };
        let id = self.end.post_recv(self.peer, Tag::control(tag), region, combine, scratch)?;
        loop {
            self.end.poll()?;
            if self.end.recv_done(id)? {
                return Ok(());
            }
            self.end.wait(None)?;
        }
    }

    /// Times a message of one element there and back, both sides waiting.
    fn round_trip(&mut self, side: &mut Side) -> Result<f64, TransportError> {
        let Side { data, sums, scratch, .. } = side;
        let watch = Stopwatch::start();
        if self.sends() {
            self.send(&data[..1], 1)?;
            self.receive(&mut sums[..1], scratch, 1, Combine::Copy)?;
        } else {
            self.receive(&mut sums[..1], scratch, 1, Combine::Copy)?;
            self.send(&data[..1], 1)?;
        }
        Ok(watch.stop().signed())
    }

    /// Times many messages that have already arrived when the second rank receives them.
    fn burst(&mut self, side: &mut Side) -> Result<f64, TransportError> {
        let Side { data, sums, scratch, .. } = side;
        if self.sends() {
            let ids: Result<Vec<_>, _> = data[..BURST].chunks(1).map(|element| self.post(element, 2)).collect();
            self.begin()?;
            ids?.into_iter().try_for_each(|id| self.sent(id))?;
            return Ok(0.0);
        }
        self.begin()?;
        let watch = Stopwatch::start();
        for _ in 0..BURST {
            self.receive(&mut sums[..1], scratch, 2, Combine::Sum)?;
        }
        Ok(watch.stop().signed())
    }

    /// Times one large message that has already been sent when it is received; with `both` the two sides exchange at
    /// once.
    fn large(&mut self, side: &mut Side, combine: Combine, both: bool) -> Result<f64, TransportError> {
        side.elsewhere.walk();
        side.data.iter_mut().for_each(|value| *value *= 0.5); // a sender has just written what it sends
        let (first, Side { data, sums, scratch, .. }) = (self.sends(), side);
        self.message(3, (first || both).then_some(data), (!first || both).then_some((sums, scratch)), combine)
    }

    /// Times a message that has already been sent when it is received: what this side sends, and its receive buffer with
    /// scratch.
    fn message(
        &mut self,
        tag: u32,
        send: Option<&mut [f32]>,
        receive: Option<(&mut [f32], &mut [f32])>,
        combine: Combine,
    ) -> Result<f64, TransportError> {
        let sent = send.map(|data| self.post(data, tag)).transpose()?;
        self.begin()?;
        let watch = Stopwatch::start();
        if let Some((into, scratch)) = receive {
            self.receive(into, scratch, tag, combine)?;
        }
        let seconds = watch.stop().signed();
        sent.map_or(Ok(()), |id| self.sent(id))?;
        self.begin()?;
        Ok(seconds)
    }

    /// Times messages with a buffer of `elements` that nothing evicts from caches in between.
    fn repeated(
        &mut self,
        side: &mut Side,
        elements: usize,
        combine: Combine,
        repetitions: usize,
    ) -> Result<Vec<f64>, TransportError> {
        let sends = self.sends();
        let [data, scratch] = &mut side.repeated;
        data.resize(data.len().max(elements), 1.0);
        scratch.resize(data.len(), 0.0);
        let mut all = Vec::with_capacity(WARMING + repetitions);
        for _ in 0..WARMING + repetitions {
            let buffer = &mut data[..elements];
            let (send, receive) = if sends {
                // A member of a collective has just written what it sends.
                buffer.iter_mut().for_each(|value| *value = -*value);
                (Some(buffer), None)
            } else {
                (None, Some((buffer, &mut scratch[..])))
            };
            all.push(self.message(5, send, receive, combine)?);
        }
        Ok(all.split_off(WARMING))
    }

    /// Times one larger message, which its sender has just written, into memory that no cache holds.
    fn cold(&mut self, side: &mut Side) -> Result<f64, TransportError> {
        let sends = self.sends();
        // Ones, since zeros would be lazily mapped pages, which the system clears at the first write.
        side.cold.resize(if sends { COLD } else { PLACES * COLD }, 1.0);
        if sends {
            side.cold.iter_mut().for_each(|value| *value *= 0.5);
            return self.message(4, Some(&mut side.cold), None, Combine::Copy);
        }
        let place = side.place * COLD;
        side.place = (side.place + 1) % PLACES;
        self.message(4, None, Some((&mut side.cold[place..place + COLD], &mut side.scratch)), Combine::Copy)
    }
}
