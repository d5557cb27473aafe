//! Packs and unpacks messages that carry samples from the memory of one rank to that of another.
//!
//! A message has the numbers of its samples in the format in which ranks hold them: fp32 values, or the bytes of packed
//! samples. All ranks have the same machine type, so bytes are sent as they are in memory. Every rank knows the labels and
//! lengths of all samples, and which samples arrive, so nothing else is sent.

use std::mem::MaybeUninit;
use std::sync::Arc;

use lockstep_models::Partition;
use lockstep_topology::{Dtype, InputError};

use super::Dataset;
use super::changed::changed;
use super::encoded::Encoded;
use super::pixels::Pixels;
use super::tokens::IN_MEMORY;
use crate::number::{bytes_of, bytes_of_mut};

/// Samples that arrive, and their slots: `samples[n]` of the whole set goes to `slots[n]`, a free slot or the next at
/// the end.
#[derive(Clone, Copy)]
pub struct Coming<'a> {
    /// The whole set.
    pub whole: &'a Dataset,
    /// Their numbers in it.
    pub samples: &'a [u32],
    /// Where each goes.
    pub slots: &'a [u32],
}

impl Coming<'_> {
    /// Each sample with its slot.
    fn pairs(&self) -> impl Iterator<Item = (u32, usize)> {
        self.samples.iter().copied().zip(self.slots.iter().map(|slot| *slot as usize))
    }

    /// Bytes of a packed sample.
    fn length(&self, sample: u32) -> usize {
        let Pixels::Encoded(samples) = &self.whole.pixels else { unreachable!("parts are kept as the whole set is") };
        samples.length(sample)
    }
}

/// Receive memory for packed samples; values are received directly into their slots.
#[derive(Default)]
pub struct Reserved(Vec<Arc<[MaybeUninit<u8>]>>);

/// Most bytes of memory of departed samples that are kept: a chunk.
const SPARE: usize = Partition::CHUNK as usize;

/// The same memory, whose elements may be overwritten.
fn overwritable(bytes: Arc<[u8]>) -> Arc<[MaybeUninit<u8>]> {
    // SAFETY: both have the same layout, and any byte may be in memory that counts as not initialised.
    unsafe { Arc::from_raw(Arc::into_raw(bytes) as *const [MaybeUninit<u8>]) }
}

impl Dataset {
    /// The format of the elements of messages with samples: that of the values held, or bytes of packed samples.
    pub fn message_dtype(&self) -> Dtype {
        match &self.pixels {
            Pixels::Values(_) => Dtype::F32,
            Pixels::Encoded(_) => Dtype::U8,
            Pixels::Tokens(_) => IN_MEMORY,
        }
    }

    /// Elements of a message with this sample: those of its image, its packed bytes, or the tokens of its window.
    pub fn message_elements(&self, sample: u32) -> u64 {
        match &self.pixels {
            Pixels::Values(_) => self.shape.elements(),
            Pixels::Encoded(samples) => samples.length(sample) as u64,
            Pixels::Tokens(tokens) => tokens.each() as u64,
        }
    }

    /// How many elements of which format a message with a sample has: the mean over all samples, rounded up.
    pub fn mean_message(&self) -> (u64, Dtype) {
        let all: u64 = (0..self.len() as u32).map(|sample| self.message_elements(sample)).sum();
        (all.div_ceil(self.len() as u64), self.message_dtype())
    }

    /// Packs the samples at `slots` one after the other; `message` has exactly their bytes.
    ///
    /// # Errors
    /// Damaged packed samples.
    pub fn pack(&self, slots: &[u32], message: &mut [u8]) -> Result<(), InputError> {
        let each = self.shape.elements() as usize;
        let mut rest = message;
        for slot in slots {
            let bytes = match &self.pixels {
                Pixels::Values(values) => bytes_of(&values[*slot as usize * each..][..each]),
                Pixels::Encoded(samples) => samples.sample(*slot)?,
                Pixels::Tokens(tokens) => tokens.bytes(*slot),
            };
            let sample;
            (sample, rest) = rest.split_at_mut(bytes.len());
            sample.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Frees the memory of packed samples that have left; slots of values are reused.
    pub fn release(&mut self, slots: &[u32]) {
        if let Pixels::Encoded(samples) = &mut self.pixels {
            Arc::make_mut(samples).release(slots, SPARE);
        }
    }

    /// Unpacks samples that were packed one after the other.
    pub fn unpack(&mut self, message: &[u8], coming: Coming<'_>) {
        self.label_coming(coming);
        match &mut self.pixels {
            Pixels::Values(values) => {
                let (values, each) = (changed(values), self.shape.elements() as usize);
                for (sample, (_, slot)) in message.chunks_exact(size_of::<f32>() * each).zip(coming.pairs()) {
                    bytes_of_mut(&mut values[slot * each..(slot + 1) * each]).copy_from_slice(sample);
                }
            }
            Pixels::Tokens(tokens) => {
                let each = IN_MEMORY.bytes(tokens.each() as u64) as usize;
                let memory = tokens.bytes_mut();
                for (sample, (_, slot)) in message.chunks_exact(each).zip(coming.pairs()) {
                    memory[slot * each..(slot + 1) * each].copy_from_slice(sample);
                }
            }
            Pixels::Encoded(samples) => {
                let samples = Arc::make_mut(samples);
                let memory = |samples: &mut Encoded, sample: &[u8]| match samples.spare().take(sample.len()) {
                    Some(mut values) => {
                        let whole = Arc::get_mut(&mut values).expect("spare memory has one owner");
                        whole[..sample.len()].copy_from_slice(sample);
                        values
                    }
                    None => sample.into(),
                };
                let mut rest = message;
                for (number, slot) in coming.pairs() {
                    let (sample, length);
                    length = coming.length(number);
                    (sample, rest) = rest.split_at(length);
                    let bytes = memory(samples, sample);
                    samples.put(slot, bytes, length);
                }
            }
        }
    }

    /// Sets the labels of arriving samples, and allocates space for their values.
    fn label_coming(&mut self, coming: Coming<'_>) {
        let end = coming.slots.iter().max().map_or(0, |last| *last as usize + 1).max(self.len());
        let each = self.labels_each();
        self.samples = end;
        if let Pixels::Tokens(tokens) = &mut self.pixels {
            return tokens.resize(end);
        }
        self.labels.resize(end * each, 0);
        for (sample, slot) in coming.pairs() {
            coming.whole.copy_labels(&[sample], &mut self.labels[slot * each..(slot + 1) * each]);
        }
        if let Pixels::Values(values) = &mut self.pixels {
            let (values, elements) = (changed(values), end * self.shape.elements() as usize);
            values.reserve_exact(elements.saturating_sub(values.len()));
            values.resize(elements, 0.0);
        }
    }

    /// Reserves space for the values of `samples` samples, so that later arrivals do not move existing ones.
    pub fn reserve(&mut self, samples: usize) {
        if let Pixels::Values(values) = &mut self.pixels {
            let values = changed(values);
            values.reserve_exact((samples * self.shape.elements() as usize).saturating_sub(values.len()));
        }
        if let Pixels::Tokens(tokens) = &mut self.pixels {
            tokens.reserve(samples);
        }
    }

    /// Address of the values.
    fn start(&self) -> *const u8 {
        match &self.pixels {
            Pixels::Values(values) => values.as_ptr().cast(),
            Pixels::Encoded(_) => std::ptr::null(),
            Pixels::Tokens(tokens) => tokens.start(),
        }
    }

    /// The memory of the samples at `slots`, to send from.
    ///
    /// # Panics
    /// For packed samples that are mapped.
    pub fn places(&self, slots: &[u32]) -> Vec<&[u8]> {
        let each = self.shape.elements() as usize;
        let place = |slot: &u32| match &self.pixels {
            Pixels::Values(values) => bytes_of(&values[*slot as usize * each..][..each]),
            Pixels::Encoded(samples) => samples.resident_bytes(*slot),
            Pixels::Tokens(tokens) => tokens.bytes(*slot),
        };
        slots.iter().map(place).collect()
    }

    /// The memory for samples that arrive, valid until they are taken.
    ///
    /// # Panics
    /// When space for values has not been reserved: moving them could break other messages in flight.
    pub fn reserve_for(&mut self, coming: Coming<'_>) -> (Reserved, Vec<*mut [u8]>) {
        let lie = self.start();
        self.label_coming(coming);
        assert!(lie == self.start(), "room is reserved");
        match &mut self.pixels {
            Pixels::Values(values) => {
                let (values, each) = (changed(values), self.shape.elements() as usize);
                let place = |(_, slot): (u32, usize)| {
                    std::ptr::from_mut(bytes_of_mut(&mut values[slot * each..(slot + 1) * each]))
                };
                (Reserved::default(), coming.pairs().map(place).collect())
            }
            Pixels::Tokens(tokens) => {
                let each = IN_MEMORY.bytes(tokens.each() as u64) as usize;
                let memory = tokens.bytes_mut();
                let place = |(_, slot): (u32, usize)| std::ptr::from_mut(&mut memory[slot * each..(slot + 1) * each]);
                (Reserved::default(), coming.pairs().map(place).collect())
            }
            Pixels::Encoded(samples) => {
                let spare = Arc::make_mut(samples).spare();
                let lengths: Vec<usize> = coming.pairs().map(|(sample, _)| coming.length(sample)).collect();
                let memory = |length: &usize| match spare.take(*length) {
                    Some(bytes) => overwritable(bytes),
                    None => Arc::new_uninit_slice(*length),
                };
                let mut reserved: Vec<Arc<[MaybeUninit<u8>]>> = lengths.iter().map(memory).collect();
                let place = |(bytes, length): (&mut Arc<[MaybeUninit<u8>]>, &usize)| {
                    let bytes = Arc::get_mut(bytes).expect("new memory, and spare memory, has one owner");
                    std::ptr::slice_from_raw_parts_mut(bytes.as_mut_ptr().cast(), *length)
                };
                let places = reserved.iter_mut().zip(&lengths).map(place).collect();
                (Reserved(reserved), places)
            }
        }
    }

    /// Stores samples that have arrived in their receive memory.
    ///
    /// # Safety
    /// All have arrived.
    pub unsafe fn take(&mut self, reserved: Reserved, coming: Coming<'_>) {
        if let Pixels::Encoded(samples) = &mut self.pixels {
            let samples = Arc::make_mut(samples);
            for (bytes, (sample, slot)) in reserved.0.into_iter().zip(coming.pairs()) {
                // SAFETY: the message has written all of it, by the caller's promise.
                samples.put(slot, unsafe { bytes.assume_init() }, coming.length(sample));
            }
        }
    }
}
