//! Copies samples to the device through two buffers on each side, so that one is filled and copied while the other is
//! in use.
//!
//! Where several micro-batches are in flight, each has a fixed place for its samples, to which the device moves them,
//! so that passes find them at the same address in every step.

use std::sync::Arc;

use lockstep_data::Untransformed;
use lockstep_exec::BatchMemory;
use lockstep_exec::device::DeviceError;
use lockstep_models::{ImageShape, SampleTensor};
use lockstep_topology::Dtype;

use super::streams::{StreamRole, Streams};
use crate::driver::{Context, Event, Fill, GpuMemory, PinnedMemory};
use crate::layers::{TensorForm, arrange};
use crate::pictures::{picture_word_count, picture_words};
use crate::table::TransformPictures;
use crate::{Activation, Command, KernelLaunch, Scalar, View, ViewMut};

/// The most copies of labels and places in flight.
const NOTES: usize = 4;

/// A buffer of samples, on the host and on the device.
struct Slot {
    pinned: PinnedMemory,
    device: GpuMemory,
    /// Memory in which threads have prepared the samples, until the device has copied them from there.
    lent: Option<Arc<BatchMemory>>,
    /// Decoded pictures that the device makes samples of, on both sides.
    pictures: Option<(PinnedMemory, GpuMemory)>,
    /// Passed when the copy is done: the host buffer may be refilled.
    copied: Event,
    /// Passed when computation on it is done: the device buffer may be overwritten.
    used: Event,
}

impl Slot {
    /// Gives prepared memory back, if the device has copied from it.
    fn give_back(&mut self) -> Result<(), DeviceError> {
        if self.lent.is_some() && self.copied.finished()? {
            self.lent.take().iter().for_each(|memory| memory.give_back());
        }
        Ok(())
    }
}

impl Drop for Slot {
    /// Pending copies end before the memory that they read is filled again or freed.
    fn drop(&mut self) {
        if let Some(memory) = self.lent.take() {
            // On a lost device nothing is pending.
            let _ = self.copied.synchronize();
            memory.give_back();
        }
    }
}

/// Labels and places on the host, until they are copied.
struct Note {
    pinned: PinnedMemory,
    copied: Event,
}

/// The samples of a micro-batch, their labels and their places among all since training began.
struct Taken {
    /// Where passes read them, if not where the host's copy arrives.
    arranged: Option<GpuMemory>,
    labels: GpuMemory,
    places: GpuMemory,
    /// Number of samples, and of their labels.
    samples: usize,
    count: usize,
}

/// The samples of the micro-batches in flight.
pub(super) struct Samples {
    slots: [Slot; 2],
    /// The slot filled last.
    turn: usize,
    /// By micro-batch in flight, and the index of the current one.
    taken: Vec<Taken>,
    at: usize,
    /// Shape and format of a sample, and the layout that passes expect.
    sample: SampleTensor,
    form: TensorForm,
    elements: usize,
    notes: Vec<Note>,
    next_note: usize,
    /// The most places, and the most labels.
    most: (usize, usize),
}

impl Samples {
    /// Buffers for `in_flight` micro-batches of `elements` elements of samples of `sample`, which passes take in `form`,
    /// and for `each` labels of up to `most` samples of each.
    pub(super) fn new(
        context: &Arc<Context>,
        (elements, sample): (usize, SampleTensor),
        form: TensorForm,
        (most, each, in_flight): (usize, usize, usize),
    ) -> Result<Samples, DeviceError> {
        let bytes = sample.dtype.bytes(elements as u64);
        let arranged = arranged_bytes(elements as u64, sample, form, in_flight as u64) / in_flight as u64;
        let most = (most, most * each);
        let (places, labels) = (8 * most.0 as u64, Dtype::U32.bytes(most.1 as u64));
        let taken = |_| -> Result<Taken, DeviceError> {
            let arranged = (arranged > 0)
                .then(|| GpuMemory::new(context, "samples as passes take them", arranged, Fill::Poison))
                .transpose()?;
            Ok(Taken {
                arranged,
                labels: GpuMemory::new(context, "labels", labels.max(4), Fill::Zeros)?,
                places: GpuMemory::new(context, "places of samples", places, Fill::Zeros)?,
                samples: 0,
                count: 0,
            })
        };
        let slot = || -> Result<Slot, DeviceError> {
            Ok(Slot {
                pinned: PinnedMemory::new(context, bytes)?,
                device: GpuMemory::new(context, "samples", bytes, Fill::Poison)?,
                lent: None,
                pictures: None,
                copied: Event::new(context, false)?,
                used: Event::new(context, false)?,
            })
        };
        let note = |_| -> Result<Note, DeviceError> {
            Ok(Note { pinned: PinnedMemory::new(context, places + labels)?, copied: Event::new(context, false)? })
        };
        Ok(Samples {
            slots: [slot()?, slot()?],
            turn: 0,
            taken: (0..in_flight).map(taken).collect::<Result<_, _>>()?,
            at: 0,
            sample,
            form,
            elements,
            notes: (0..NOTES * in_flight).map(note).collect::<Result<_, _>>()?,
            next_note: 0,
            most,
        })
    }

    /// Switches to another of the micro-batches in flight.
    pub(super) fn turn(&mut self, to: usize) {
        self.at = to;
    }

    /// The next host buffer, once it is free.
    pub(super) fn next_buffer(&mut self) -> Result<&mut [u8], DeviceError> {
        let slot = &self.slots[1 - self.turn];
        slot.copied.synchronize()?;
        let bytes = self.sample.dtype.bytes(self.elements as u64) as usize;
        // SAFETY: the memory has that many bytes, initialised at allocation; no copy reads it any more, and `self`
        // is borrowed for as long as the slice lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(slot.pinned.start(), bytes) })
    }

    /// Copies the host buffer to the device: later passes read it, and earlier ones read the previous one.
    pub(super) fn take(&mut self, streams: &mut Streams) -> Result<(), DeviceError> {
        self.turn_slot(streams)?;
        let Slot { pinned, device, .. } = &self.slots[self.turn];
        self.upload((pinned.start(), device), device.bytes(), streams)
    }

    /// Copies samples that threads have prepared to the device, from where they are; takes the memory until then.
    pub(super) fn take_from(&mut self, memory: &Arc<BatchMemory>, streams: &mut Streams) -> Result<(), DeviceError> {
        self.turn_slot(streams)?;
        let bytes = self.sample.dtype.bytes(self.elements as u64);
        assert!(memory.arena().len() as u64 >= bytes, "memory of a batch");
        let start = memory.arena().start();
        memory.lend();
        self.slots[self.turn].lent = Some(Arc::clone(memory));
        let device = &self.slots[self.turn].device;
        self.upload((start, device), device.bytes(), streams)
    }

    /// Copies decoded pictures to the device, and appends the work on the compute stream that makes samples of them.
    pub(super) fn take_pictures(
        &mut self,
        of: &Untransformed<'_>,
        streams: &mut Streams,
        into: &mut Vec<Command>,
    ) -> Result<(), DeviceError> {
        self.turn_slot(streams)?;
        let count = picture_word_count(of);
        let bytes = 4 * count as u64;
        let slot = &mut self.slots[self.turn];
        slot.copied.synchronize()?;
        if slot.pictures.as_ref().is_none_or(|(pinned, _)| pinned.bytes() < bytes) {
            slot.used.synchronize()?;
            slot.pictures = None;
            // Batches differ by the sizes of their pictures.
            let room = bytes + bytes / 4;
            let context = slot.device.context();
            let device = GpuMemory::new(context, "decoded pictures", room, Fill::Poison)?;
            slot.pictures = Some((PinnedMemory::new(context, room)?, device));
        }
        let slot = &self.slots[self.turn];
        let (pinned, device) = slot.pictures.as_ref().expect("just made");
        // SAFETY: the memory has that many words, initialised at allocation, no copy reads it any more, and `self` is
        // borrowed for as long as the slice lives.
        picture_words(of, unsafe { std::slice::from_raw_parts_mut(pinned.floats().cast::<u32>(), count) });
        self.upload((pinned.start(), device), bytes, streams)?;
        let ImageShape { channels, height, width } = of.shape;
        let launch = TransformPictures {
            words: View::new(device.address(), Dtype::U32.elements_within(device.bytes())),
            images: ViewMut::new(slot.device.address(), self.elements as u64),
            samples: of.samples.len() as u32,
            channels,
            height,
            width,
        };
        into.push(Command::Launch(launch.call()));
        Ok(())
    }

    /// Switches slots, after the passes that read the current one.
    fn turn_slot(&mut self, streams: &mut Streams) -> Result<(), DeviceError> {
        self.slots[self.turn].used.record(streams.get(StreamRole::Compute))?;
        self.turn = 1 - self.turn;
        let next = &mut self.slots[self.turn];
        if next.lent.is_some() {
            next.copied.synchronize()?;
        }
        self.slots.iter_mut().try_for_each(Slot::give_back)
    }

    /// Copies `bytes` bytes of the current slot to the device, once computation on its samples is done.
    fn upload(
        &self,
        (start, device): (*mut u8, &GpuMemory),
        bytes: u64,
        streams: &mut Streams,
    ) -> Result<(), DeviceError> {
        let Slot { copied, used, .. } = &self.slots[self.turn];
        let stream = streams.give(StreamRole::Samples);
        stream.wait(used)?;
        // SAFETY: both have that many bytes and live until `copied` has passed, after which alone the host writes again.
        unsafe { stream.upload(device.address(), start, bytes) }?;
        copied.record(stream)?;
        streams.order(StreamRole::Compute, &[StreamRole::Samples])
    }

    /// Sets labels and places for the following passes.
    pub(super) fn note(&mut self, labels: &[u32], places: &[u64], streams: &mut Streams) -> Result<(), DeviceError> {
        assert!(places.len() <= self.most.0 && labels.len() <= self.most.1, "as many labels as a chain has samples");
        let taken = &mut self.taken[self.at];
        (taken.samples, taken.count) = (places.len(), labels.len());
        let Note { pinned, copied } = &self.notes[self.next_note];
        self.next_note = (self.next_note + 1) % self.notes.len();
        copied.synchronize()?;
        let bytes: Vec<u8> = places
            .iter()
            .flat_map(|place| place.to_le_bytes())
            .chain(labels.iter().flat_map(|label| label.to_le_bytes()))
            .collect();
        let behind = 8 * places.len();
        let stream = streams.give(StreamRole::Compute);
        // SAFETY: there is space for all of them, no copy reads it any more, and it lives as long as the rank. On the
        // compute stream the copies come after the passes that read the previous content.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pinned.start(), bytes.len());
            stream.upload(taken.places.address(), pinned.start(), behind as u64)?;
            stream.upload(taken.labels.address(), pinned.start().add(behind), 4 * labels.len() as u64)?;
        }
        copied.record(stream)
    }

    /// The samples, as `form`'s activations.
    pub(super) fn input<A: Activation>(&self) -> ViewMut<A> {
        let memory = self.taken[self.at].arranged.as_ref().unwrap_or(&self.slots[self.turn].device);
        ViewMut::new(memory.address(), self.elements as u64)
    }

    /// Appends the work on the compute stream that makes the samples usable by passes.
    pub(super) fn arrange<A: Activation>(&self, into: &mut Vec<Command>) {
        if self.taken[self.at].arranged.is_some() {
            let given = View::new(self.slots[self.turn].device.address(), self.elements as u64);
            arrange(given, self.input::<A>(), self.sample.shape, self.form, into);
        }
    }

    /// Their labels.
    pub(super) fn labels(&self) -> View<u32> {
        let Taken { labels, count, .. } = &self.taken[self.at];
        View::new(labels.address(), *count as u64)
    }

    /// Number of samples.
    pub(super) fn count(&self) -> u64 {
        self.taken[self.at].samples as u64
    }

    /// The bytes of the samples as the data set gives them, if they are integers; passes of layers that read them find
    /// them where the host's copy arrives.
    pub(super) fn integers(&self) -> Option<View<u8>> {
        let bytes = self.sample.dtype.bytes(self.elements as u64);
        let arrived = || View::new(self.slots[self.turn].device.address(), bytes);
        self.sample.dtype.is_integer().then(arrived)
    }

    /// Their places.
    pub(super) fn places(&self) -> View<u64> {
        let Taken { places, samples, .. } = &self.taken[self.at];
        View::new(places.address(), *samples as u64)
    }
}

/// Bytes of device memory for samples of `elements` elements of each micro-batch `in_flight`, beside the host's copies.
pub(super) fn arranged_bytes(elements: u64, sample: SampleTensor, form: TensorForm, in_flight: u64) -> u64 {
    // Integers are read as they arrive.
    let in_place = sample.dtype.is_integer() || in_flight == 1 && form.is_plain(sample.shape);
    if in_place { 0 } else { Scalar::of(form.precision).dtype().bytes(in_flight * elements) }
}
