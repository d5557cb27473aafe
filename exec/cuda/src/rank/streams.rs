//! Manages the streams of a rank, and the order between them.
//!
//! Where work on one stream must wait for another, the device waits: for an event after all work submitted to the other
//! stream so far. The host waits for none of them. Independent work (a copy of gradients during the next layers'
//! backward pass) overlaps.

use std::sync::Arc;

use lockstep_exec::device::DeviceError;

use crate::driver::{Context, Event, GpuStream, Priority};

/// A stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamRole {
    /// Passes, updates and copies on the device.
    Compute,
    /// Copies of buffers to the host.
    Out,
    /// Copies of buffers back to the device.
    In,
    /// Updates of the average model, concurrent with the compute stream (Koliousis et al. 2019, §4.2).
    Average,
    /// Copies of samples to the device.
    Samples,
    /// Sums of buffers over a group. Other streams need not wait for it, since the host has seen that a sum is
    /// complete.
    Sum,
}

const ALL: [StreamRole; 6] =
    [StreamRole::Compute, StreamRole::Out, StreamRole::In, StreamRole::Average, StreamRole::Samples, StreamRole::Sum];

#[derive(Debug)]
struct Track {
    stream: Arc<GpuStream>,
    /// Recorded after some of the submitted work.
    tail: Event,
    /// Amount of work submitted so far, and when the tail was recorded.
    given: u64,
    recorded: u64,
    /// For each stream, the amount of its work that this one has waited for.
    seen: [u64; ALL.len()],
}

/// All streams of a rank.
#[derive(Debug)]
pub(super) struct Streams([Track; ALL.len()]);

impl Streams {
    /// Creates the streams on a device. Copies have priority over computation, since they are waited for.
    pub(super) fn new(context: &Arc<Context>) -> Result<Streams, DeviceError> {
        let track = |role: StreamRole| -> Result<Track, DeviceError> {
            let priority = if role == StreamRole::Compute { Priority::Usual } else { Priority::High };
            let stream = Arc::new(GpuStream::new(context, priority)?);
            Ok(Track { stream, tail: Event::new(context, false)?, given: 0, recorded: 0, seen: [0; ALL.len()] })
        };
        let [compute, out, back, average, samples, sum] = ALL.map(track);
        Ok(Streams([compute?, out?, back?, average?, samples?, sum?]))
    }

    /// A stream, to which work is about to be submitted.
    pub(super) fn give(&mut self, role: StreamRole) -> &Arc<GpuStream> {
        let track = &mut self.0[role as usize];
        track.given += 1;
        &track.stream
    }

    /// A stream, to which nothing is submitted.
    pub(super) fn get(&self, role: StreamRole) -> &Arc<GpuStream> {
        &self.0[role as usize].stream
    }

    /// Whether `role` would have to wait for `after`.
    pub(super) fn is_behind(&self, role: StreamRole, after: StreamRole) -> bool {
        self.0[role as usize].seen[after as usize] < self.0[after as usize].given
    }

    /// Makes later work of `role` wait for all work submitted to the others so far.
    pub(super) fn order(&mut self, role: StreamRole, after: &[StreamRole]) -> Result<(), DeviceError> {
        for other in after.iter().copied() {
            if other == role || !self.is_behind(role, other) {
                continue;
            }
            let track = &mut self.0[other as usize];
            if track.recorded < track.given {
                track.tail.record(&track.stream)?;
                track.recorded = track.given;
            }
            let given = track.given;
            self.0[role as usize].stream.wait(&self.0[other as usize].tail)?;
            let waiting = &mut self.0[role as usize];
            waiting.seen[other as usize] = given;
            // A later wait for this stream includes that one.
            waiting.given += 1;
        }
        Ok(())
    }

    /// Waits until all submitted work of all streams is done.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.0.iter().try_for_each(|track| track.stream.synchronize())
    }
}
