//! Collects the results that a rank's device has not reported yet: losses being copied to the host, and the times of
//! marks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_exec::device::{DeviceError, IterationResults, Loss, Mark};

use super::streams::{StreamRole, Streams};
use crate::driver::{Context, Event, PinnedMemory};
use crate::{View, layers::CrossEntropyKernels};

/// The most losses in flight.
const LOSSES: usize = 4096;
/// Bytes of a loss: its sum, and the number of correct samples.
const LOSS: usize = 16;

/// The results of an iteration.
#[derive(Default)]
struct Iteration {
    /// Slots of its losses, each with how many labels a sample's loss is the mean over.
    losses: Vec<(usize, u32)>,
    marks: Vec<Event>,
}

/// Outstanding results.
pub(super) struct Outstanding {
    context: Arc<Context>,
    pinned: PinnedMemory,
    /// Losses ever requested.
    requested: usize,
    /// Losses reported or dropped.
    reported: usize,
    present: Iteration,
    /// Iterations that were ended, each with its end.
    ended: VecDeque<(Iteration, Event)>,
    /// Events for reuse in further marks.
    spare: Vec<Event>,
    /// The same moment on both clocks.
    base: (Event, Instant),
}

impl Outstanding {
    /// Without results; waits until earlier work is done.
    pub(super) fn new(context: &Arc<Context>, streams: &Streams) -> Result<Outstanding, DeviceError> {
        let base = Event::new(context, true)?;
        base.record(streams.get(StreamRole::Compute))?;
        base.synchronize()?;
        Ok(Outstanding {
            context: Arc::clone(context),
            pinned: PinnedMemory::new(context, (LOSSES * LOSS) as u64)?,
            requested: 0,
            reported: 0,
            present: Iteration::default(),
            ended: VecDeque::new(),
            spare: Vec::new(),
            base: (base, Instant::now()),
        })
    }

    /// Starts the copy of a loss to the host, after the last forward pass.
    pub(super) fn copy_loss(&mut self, of: &CrossEntropyKernels, streams: &mut Streams) -> Result<(), DeviceError> {
        if self.requested - self.reported == LOSSES {
            let reason = format!("{LOSSES} of a step are on their way, and there is room for no more: accumulate less");
            return Err(DeviceError::Refused { call: "a loss".to_owned(), reason });
        }
        let place = self.requested % LOSSES;
        self.requested += 1;
        self.present.losses.push((place, of.labels_each()));
        let stream = streams.give(StreamRole::Compute);
        // SAFETY: there is space for both numbers, which are not read before the iteration's end has passed.
        unsafe {
            let to = self.pinned.start().add(place * LOSS);
            stream.download(to, of.totals().address(), 8)?;
            stream.download(to.add(8), of.counts().address(), 4)
        }
    }

    /// A mark after all work submitted to the compute stream.
    pub(super) fn mark(&mut self, streams: &mut Streams) -> Result<Mark, DeviceError> {
        let event = self.event()?;
        event.record(streams.get(StreamRole::Compute))?;
        self.present.marks.push(event);
        Ok(Mark(self.present.marks.len() - 1))
    }

    fn event(&mut self) -> Result<Event, DeviceError> {
        self.spare.pop().map_or_else(|| Event::new(&self.context, true), Ok)
    }

    /// Ends the iteration.
    pub(super) fn end_iteration(&mut self, streams: &mut Streams) -> Result<(), DeviceError> {
        let end = self.event()?;
        end.record(streams.get(StreamRole::Compute))?;
        self.ended.push_back((std::mem::take(&mut self.present), end));
        Ok(())
    }

    /// The results of the oldest iteration that was ended, if it is done.
    pub(super) fn finished_iteration(&mut self) -> Result<Option<IterationResults>, DeviceError> {
        match self.ended.front() {
            None => return Ok(Some(IterationResults::default())),
            Some((_, end)) if !end.finished()? => return Ok(None),
            Some(_) => {}
        }
        let Some((iteration, end)) = self.ended.pop_front() else { return Ok(None) };
        let at = |event: &Event| -> Result<Instant, DeviceError> {
            let seconds = event.seconds_since(&self.base.0)?;
            Ok(self.base.1 + Duration::from_secs_f64(seconds.max(0.0)))
        };
        let times = iteration.marks.iter().map(at).collect::<Result<_, _>>()?;
        let over = at(&end)?;
        let losses = iteration.losses.iter().map(|(place, each)| self.loss(*place, *each)).collect();
        self.reported += iteration.losses.len();
        self.spare.extend(iteration.marks);
        // Times are relative to the last end, since the device reports them in fp32.
        let (before, _) = std::mem::replace(&mut self.base, (end, over));
        self.spare.push(before);
        Ok(Some(IterationResults { losses, times, end: Some(over) }))
    }

    fn loss(&self, place: usize, each: u32) -> Loss {
        // SAFETY: the numbers were copied there by completed work, and are not overwritten before they are reported.
        let bytes = unsafe { std::slice::from_raw_parts(self.pinned.start().add(place * LOSS), LOSS) };
        let (mut sum, mut correct) = ([0; 8], [0; 4]);
        sum.copy_from_slice(&bytes[..8]);
        correct.copy_from_slice(&bytes[8..12]);
        Loss { sum: f64::from_le_bytes(sum) / f64::from(each), correct: u32::from_le_bytes(correct) as usize }
    }
}

/// The bytes of a tensor of numbers.
pub(super) fn bytes<T>(view: &View<T>) -> usize {
    view.elements() as usize * size_of::<T>()
}
