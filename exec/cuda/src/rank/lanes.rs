//! The streams of a rank, and the order between them.
//!
//! Work on one stream waits for another where it must, at the device: an event behind all that the other stream was given so
//! far. The host waits for none of them. What need not wait (a copy of gradients beside the next layers' backward pass) does not.

use std::sync::Arc;

use lockstep_exec::device::DeviceError;

use crate::driver::{Context, Event, Priority, Stream};

/// A stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Passes, steps and copies on the device.
    Compute,
    /// Buffers on their way to the host.
    Out,
    /// Buffers on their way back.
    In,
    /// The average model, beside the compute stream (Koliousis et al. 2019, §4.2).
    Average,
    /// Samples on their way to the device.
    Samples,
    /// Buffers that are added up over a group. Others need not wait for it, for the host has seen that a sum is there.
    Sum,
}

const ALL: [Lane; 6] = [Lane::Compute, Lane::Out, Lane::In, Lane::Average, Lane::Samples, Lane::Sum];

#[derive(Debug)]
struct Track {
    stream: Arc<Stream>,
    /// Behind all that had been given when it was last recorded.
    tail: Event,
    /// How much was given so far, and how much when the tail was recorded.
    given: u64,
    recorded: u64,
    /// How much of each lane this one has waited for.
    seen: [u64; ALL.len()],
}

/// All streams of a rank.
#[derive(Debug)]
pub(super) struct Lanes([Track; ALL.len()]);

impl Lanes {
    /// Streams on a device. Copies go before computation where both could, for somebody waits for them.
    pub(super) fn new(context: &Arc<Context>) -> Result<Lanes, DeviceError> {
        let track = |lane: Lane| -> Result<Track, DeviceError> {
            let priority = if lane == Lane::Compute { Priority::Usual } else { Priority::High };
            let stream = Arc::new(Stream::new(context, priority)?);
            Ok(Track { stream, tail: Event::new(context, false)?, given: 0, recorded: 0, seen: [0; ALL.len()] })
        };
        let [compute, out, back, average, samples, sum] = ALL.map(track);
        Ok(Lanes([compute?, out?, back?, average?, samples?, sum?]))
    }

    /// A lane's stream, which is about to be given something.
    pub(super) fn give(&mut self, lane: Lane) -> &Arc<Stream> {
        let track = &mut self.0[lane as usize];
        track.given += 1;
        &track.stream
    }

    /// A lane's stream, which is given nothing.
    pub(super) fn stream(&self, lane: Lane) -> &Arc<Stream> {
        &self.0[lane as usize].stream
    }

    /// Whether `lane` would have to wait for `after`.
    pub(super) fn is_behind(&self, lane: Lane, after: Lane) -> bool {
        self.0[lane as usize].seen[after as usize] < self.0[after as usize].given
    }

    /// What `lane` is given from now on comes after all that the others were given so far.
    pub(super) fn order(&mut self, lane: Lane, after: &[Lane]) -> Result<(), DeviceError> {
        for other in after.iter().copied() {
            if other == lane || !self.is_behind(lane, other) {
                continue;
            }
            let track = &mut self.0[other as usize];
            if track.recorded < track.given {
                track.tail.record(&track.stream)?;
                track.recorded = track.given;
            }
            let given = track.given;
            self.0[lane as usize].stream.wait(&self.0[other as usize].tail)?;
            let waiting = &mut self.0[lane as usize];
            waiting.seen[other as usize] = given;
            // Who waits for this lane later waits for that one too.
            waiting.given += 1;
        }
        Ok(())
    }

    /// Waits until all of them have done what they were given.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.0.iter().try_for_each(|track| track.stream.synchronize())
    }
}
