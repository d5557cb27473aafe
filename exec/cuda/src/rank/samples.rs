//! How samples come to the device: two buffers on each side, so that one is filled and copied while the other is computed on.

use std::sync::Arc;

use lockstep_exec::device::DeviceError;
use lockstep_models::Shape;

use super::held::ELEMENT;
use super::lanes::{Lane, Lanes};
use crate::driver::{Context, DeviceMemory, Event, Fill, PinnedMemory};
use crate::layers::{Form, arrange};
use crate::{Activation, Command, Scalar, View, ViewMut};

/// Labels and places that can be on their way at once.
const NOTES: usize = 4;

/// A buffer of samples, on the host and on the device.
struct Slot {
    pinned: PinnedMemory,
    device: DeviceMemory,
    /// The copy is done: the host's may be filled again.
    copied: Event,
    /// Computation on it is done: the device's may be written again.
    used: Event,
}

/// Labels and places on the host, until they are copied.
struct Note {
    pinned: PinnedMemory,
    copied: Event,
}

/// The samples of the micro-batch, their labels and their places among all since training began.
pub(super) struct Samples {
    slots: [Slot; 2],
    /// The slot of the micro-batch at hand.
    turn: usize,
    /// Of a sample, and how passes take it.
    shape: Shape,
    form: Form,
    /// Where passes find them, if they do not take them as the host gives them.
    arranged: Option<DeviceMemory>,
    elements: usize,
    notes: Vec<Note>,
    next_note: usize,
    /// Room on the device for so many labels, then as many places.
    most: usize,
    labels: DeviceMemory,
    places: DeviceMemory,
    /// Samples at hand.
    count: usize,
}

impl Samples {
    /// Room for micro-batches of `loaded` samples of `shape`, which passes take in `form`, and for labels of up to `most` samples.
    pub(super) fn new(
        context: &Arc<Context>,
        (loaded, shape): (usize, Shape),
        form: Form,
        most: usize,
    ) -> Result<Samples, DeviceError> {
        let elements = loaded * shape.elements() as usize;
        let bytes = elements as u64 * ELEMENT;
        let arranged = arranged_bytes(elements as u64, shape, form);
        let arranged = (arranged > 0)
            .then(|| DeviceMemory::new(context, "samples as passes take them", arranged, Fill::Poison))
            .transpose()?;
        let slot = || -> Result<Slot, DeviceError> {
            Ok(Slot {
                pinned: PinnedMemory::new(context, bytes)?,
                device: DeviceMemory::new(context, "samples", bytes, Fill::Poison)?,
                copied: Event::new(context, false)?,
                used: Event::new(context, false)?,
            })
        };
        let note = |_| -> Result<Note, DeviceError> {
            Ok(Note { pinned: PinnedMemory::new(context, 12 * most as u64)?, copied: Event::new(context, false)? })
        };
        Ok(Samples {
            slots: [slot()?, slot()?],
            turn: 0,
            shape,
            form,
            arranged,
            elements,
            notes: (0..NOTES).map(note).collect::<Result<_, _>>()?,
            next_note: 0,
            most,
            labels: DeviceMemory::new(context, "labels", 4 * most as u64, Fill::Zeros)?,
            places: DeviceMemory::new(context, "places of samples", 8 * most as u64, Fill::Zeros)?,
            count: 0,
        })
    }

    /// The host's buffer that comes next, as soon as it is free.
    pub(super) fn room(&mut self) -> Result<&mut [f32], DeviceError> {
        let slot = &self.slots[1 - self.turn];
        slot.copied.synchronize()?;
        // SAFETY: the memory has as many elements, all written when it was made; no copy reads it any more, and `self` is
        // borrowed for as long as the slice lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(slot.pinned.floats(), self.elements) })
    }

    /// Copies it to the device; passes that come now see it, and those before have seen the one before.
    pub(super) fn take(&mut self, lanes: &mut Lanes) -> Result<(), DeviceError> {
        self.slots[self.turn].used.record(lanes.stream(Lane::Compute))?;
        self.turn = 1 - self.turn;
        let Slot { pinned, device, copied, used } = &self.slots[self.turn];
        let stream = lanes.give(Lane::Samples);
        stream.wait(used)?;
        // SAFETY: both have as many bytes and live as long as the rank; the host writes again when `copied` has passed.
        unsafe { stream.upload(device.address(), pinned.start(), device.bytes()) }?;
        copied.record(stream)?;
        lanes.order(Lane::Compute, &[Lane::Samples])
    }

    /// Labels and places for the passes that come.
    pub(super) fn note(&mut self, labels: &[u32], places: &[u64], lanes: &mut Lanes) -> Result<(), DeviceError> {
        assert!(labels.len() <= self.most && places.len() <= self.most, "as many labels as a chain has samples");
        self.count = labels.len();
        let Note { pinned, copied } = &self.notes[self.next_note];
        self.next_note = (self.next_note + 1) % NOTES;
        copied.synchronize()?;
        let bytes: Vec<u8> = places
            .iter()
            .flat_map(|place| place.to_le_bytes())
            .chain(labels.iter().flat_map(|label| label.to_le_bytes()))
            .collect();
        let behind = 8 * places.len();
        let stream = lanes.give(Lane::Compute);
        // SAFETY: there is room for all of them, no copy reads it any more, and it lives as long as the rank. On the compute
        // stream the copies come after the passes that read what was there.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pinned.start(), bytes.len());
            stream.upload(self.places.address(), pinned.start(), behind as u64)?;
            stream.upload(self.labels.address(), pinned.start().add(behind), 4 * labels.len() as u64)?;
        }
        copied.record(stream)
    }

    /// The samples themselves, `form`'s activations.
    pub(super) fn input<A: Activation>(&self) -> ViewMut<A> {
        let memory = self.arranged.as_ref().unwrap_or(&self.slots[self.turn].device);
        ViewMut::new(memory.address(), self.elements as u64)
    }

    /// What has to be done on the compute stream before passes can take them.
    pub(super) fn arrange<A: Activation>(&self, into: &mut Vec<Command>) {
        if self.arranged.is_some() {
            let given = View::new(self.slots[self.turn].device.address(), self.elements as u64);
            arrange(given, self.input::<A>(), self.shape, self.form, into);
        }
    }

    /// Their labels.
    pub(super) fn labels(&self) -> View<u32> {
        View::new(self.labels.address(), self.count as u64)
    }

    /// Their places.
    pub(super) fn places(&self) -> View<u64> {
        View::new(self.places.address(), self.count as u64)
    }
}

/// Bytes that samples of so many `elements` take as passes take them, if that is not as the host gives them.
pub(super) fn arranged_bytes(elements: u64, shape: Shape, form: Form) -> u64 {
    if form.is_plain(shape) { 0 } else { elements * Scalar::of(form.precision).bytes() }
}
