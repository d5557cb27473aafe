//! Stores the samples of a packed set, mapped from its file or in memory.
//!
//! They stay packed: arrays of bytes and JPEG files become fp32 values when they are drawn, so a batch needs no copy of
//! compressed bytes.

use std::sync::Arc;

use crate::format::Encoding;
use crate::{Normalisation, Packed, Picture, decode_jpeg};
use lockstep_models::{SampleForm, Shape, StoredSamples};
use lockstep_topology::InputError;

use super::augmentation::{Augmented, augment};
use super::spare::Spare;
use super::transform::{Decoded, Transform};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Samples whose first bytes tell the form of a set.
const SEEN: usize = 256;

/// Samples of a packed set.
#[derive(Debug, Clone)]
pub(super) struct Encoded {
    packed: Arc<Packed>,
    form: SampleForm,
    kept: Kept,
    /// By channel and byte: the normalised value.
    levels: Vec<[f32; 256]>,
    normalisation: Normalisation,
}

/// Where the bytes are.
#[derive(Debug, Clone)]
enum Kept {
    /// In the mapped file: the numbers of the samples.
    Mapped(Vec<u32>),
    /// In memory, each in its own allocation, so that a sample can be replaced by another; and the memory of samples
    /// that have left, for those that arrive.
    Resident(Vec<Resident>, Spare),
}

/// A sample in memory.
#[derive(Debug, Clone, Default)]
struct Resident {
    /// Its bytes, and after them what is left of the memory of a longer sample.
    memory: Arc<[u8]>,
    /// How many bytes are its own.
    length: usize,
}

impl Resident {
    fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl Encoded {
    /// All samples of a file.
    pub(super) fn all(packed: Arc<Packed>) -> Encoded {
        let samples = (0..packed.entries().len() as u32).collect();
        let (pngs, seen) = packed.pngs(SEEN);
        let form = match packed.header().encoding {
            Encoding::Raw(_) => SampleForm::Bytes,
            Encoding::Jpeg { .. } if 2 * pngs > seen => SampleForm::Png,
            Encoding::Jpeg { .. } => SampleForm::Jpeg,
        };
        let normalisation = Normalisation { mean: Vec::new(), deviation: Vec::new() };
        Encoded { packed, form, kept: Kept::Mapped(samples), levels: Vec::new(), normalisation }
    }

    /// The samples at `indices`.
    ///
    /// # Panics
    /// For samples in memory.
    pub(super) fn subset(&self, indices: &[u32]) -> Encoded {
        let Kept::Mapped(samples) = &self.kept else { unreachable!("parts are taken of the whole set") };
        let samples = indices.iter().map(|index| samples[*index as usize]).collect();
        self.with(Kept::Mapped(samples))
    }

    /// Other samples of the same file, with the same normalisation.
    fn with(&self, kept: Kept) -> Encoded {
        let (packed, levels, normalisation) = (self.packed.clone(), self.levels.clone(), self.normalisation.clone());
        Encoded { packed, form: self.form, kept, levels, normalisation }
    }

    /// The samples at `indices`, read into memory, in the order of the file.
    ///
    /// # Errors
    /// An unreadable or damaged file.
    pub(super) fn resident(&self, indices: &[u32]) -> Result<Encoded, InputError> {
        let mut samples = vec![Resident::default(); indices.len()];
        let mut order: Vec<usize> = (0..indices.len()).collect();
        order.sort_unstable_by_key(|position| indices[*position]);
        for position in order {
            let number = self.number(indices[position]);
            let length = self.length(indices[position]);
            let mut memory: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
            self.packed.read(number, Arc::get_mut(&mut memory).expect("new memory has one owner"))?;
            samples[position] = Resident { memory, length };
        }
        Ok(self.with(Kept::Resident(samples, Spare::default())))
    }

    /// A mapped sample's number in the file.
    fn number(&self, sample: u32) -> usize {
        let Kept::Mapped(samples) = &self.kept else { unreachable!("parts are taken of the whole set") };
        samples[sample as usize] as usize
    }

    /// Bytes of a sample.
    pub(super) fn length(&self, sample: u32) -> usize {
        match &self.kept {
            Kept::Mapped(samples) => self.packed.entries()[samples[sample as usize] as usize].length as usize,
            Kept::Resident(samples, _) => samples[sample as usize].length,
        }
    }

    /// Bytes of all samples, which must be mapped.
    pub(super) fn bytes(&self) -> u64 {
        let Kept::Mapped(samples) = &self.kept else { unreachable!("parts are taken of the whole set") };
        samples.iter().map(|sample| u64::from(self.packed.entries()[*sample as usize].length)).sum()
    }

    /// Their mean sizes.
    pub(super) fn mean(&self) -> StoredSamples {
        let Kept::Mapped(samples) = &self.kept else { unreachable!("parts are taken of the whole set") };
        let pixels: u64 = samples
            .iter()
            .map(|sample| &self.packed.entries()[*sample as usize])
            .map(|entry| u64::from(entry.width) * u64::from(entry.height))
            .sum();
        let count = samples.len().max(1) as u64;
        StoredSamples { form: self.form, bytes: self.bytes() / count, pixels: pixels / count }
    }

    /// A sample's packed bytes; those of a file are verified against their checksum.
    ///
    /// # Errors
    /// Changed bytes.
    pub(super) fn sample(&self, sample: u32) -> Result<&[u8], InputError> {
        match &self.kept {
            Kept::Mapped(samples) => self.packed.checked(samples[sample as usize] as usize),
            Kept::Resident(samples, _) => Ok(samples[sample as usize].bytes()),
        }
    }

    /// Asks the system to read a sample's bytes from storage, without waiting; small ones come with their neighbours.
    pub(super) fn prefetch(&self, sample: u32) {
        if let Kept::Mapped(samples) = &self.kept
            && self.length(sample) >= PAGE
        {
            self.packed.prefetch(samples[sample as usize] as usize);
        }
    }

    /// A sample's bytes, unverified.
    fn unchecked(&self, sample: u32) -> &[u8] {
        match &self.kept {
            Kept::Mapped(samples) => self.packed.bytes(samples[sample as usize] as usize),
            Kept::Resident(samples, _) => samples[sample as usize].bytes(),
        }
    }

    /// The bytes of a sample in memory.
    ///
    /// # Panics
    /// When samples are mapped.
    pub(super) fn resident_bytes(&self, sample: u32) -> &[u8] {
        let Kept::Resident(samples, _) = &self.kept else { unreachable!("samples leave the memory that they are in") };
        samples[sample as usize].bytes()
    }

    /// Frees the memory of samples that have left; up to `most` bytes of it are kept for others that arrive. Mapped
    /// samples need none.
    pub(super) fn release(&mut self, gone: &[u32], most: usize) {
        if let Kept::Resident(samples, spare) = &mut self.kept {
            for sample in gone {
                spare.keep(std::mem::take(&mut samples[*sample as usize]).memory);
            }
            spare.trim(most);
        }
    }

    /// The memory of samples that have left, for those that arrive.
    ///
    /// # Panics
    /// When samples are mapped.
    pub(super) fn spare(&mut self) -> &mut Spare {
        let Kept::Resident(_, spare) = &mut self.kept else {
            unreachable!("samples leave the memory that they are in")
        };
        spare
    }

    /// Stores an arrived sample, the first `length` bytes of `memory`, in a free slot or at the end.
    ///
    /// # Panics
    /// When samples are mapped.
    pub(super) fn put(&mut self, sample: usize, memory: Arc<[u8]>, length: usize) {
        let Kept::Resident(samples, _) = &mut self.kept else { unreachable!("samples come to those in memory") };
        if samples.len() <= sample {
            samples.resize(sample + 1, Resident::default());
        }
        samples[sample] = Resident { memory, length };
    }

    /// Their form: of pictures that of most of them.
    pub(super) fn form(&self) -> SampleForm {
        self.form
    }

    /// Whether they are files of pictures.
    pub(super) fn is_picture(&self) -> bool {
        self.form.is_picture()
    }

    /// The smallest height and width of the samples.
    pub(super) fn least(&self) -> (u32, u32) {
        let entries = self.packed.entries().iter();
        entries.fold((u32::MAX, u32::MAX), |(height, width), entry| {
            (height.min(entry.height.into()), width.min(entry.width.into()))
        })
    }

    /// Mean and deviation of each channel over these samples, for arrays; the file's normalisation are over all of its
    /// samples.
    pub(super) fn statistics(&self, channels: usize, pixels: usize) -> Normalisation {
        let Kept::Mapped(samples) = &self.kept else { unreachable!("parts are taken of a normalised set") };
        if self.is_picture() {
            return Normalisation::imagenet();
        }
        match self.packed.normalisation().filter(|_| samples.len() == self.packed.entries().len()) {
            Some(normalisation) => normalisation.clone(),
            None => Normalisation::of(channels, pixels, || samples.iter().map(|n| self.packed.bytes(*n as usize))),
        }
    }

    /// The same samples, normalised by `normalisation` when they are drawn.
    pub(super) fn normalised(&self, normalisation: &Normalisation) -> Encoded {
        let level = |channel| std::array::from_fn(|byte| normalisation.apply(channel, byte as f64));
        let levels = (0..normalisation.mean.len()).map(level).collect();
        Encoded { levels, normalisation: normalisation.clone(), ..self.clone() }
    }

    /// Makes `image` (`[channels, height, width]` of `shape`) from a sample: augmented, or its centre. `stored` is the
    /// shape of arrays. Does not verify the checksum: [`Encoded::sample`] does.
    ///
    /// # Errors
    /// Changed bytes, or not a JPEG file.
    pub(super) fn image(
        &self,
        sample: u32,
        (stored, shape): (Shape, Shape),
        augmented: Option<Augmented<'_>>,
        image: &mut [f32],
    ) -> Result<(), InputError> {
        if self.is_picture() {
            let Decoded { picture, transform } = self.decoded(sample, shape, augmented)?;
            transform.apply(&picture, &self.normalisation, shape.image(), image);
            return Ok(());
        }
        let bytes = self.unchecked(sample);
        let pixels = stored.places() as usize;
        let normalise = |image: &mut [f32]| {
            let planes = bytes.chunks_exact(pixels).zip(image.chunks_exact_mut(pixels)).zip(&self.levels);
            for ((plane, values), levels) in planes {
                values.iter_mut().zip(plane).for_each(|(value, byte)| *value = levels[usize::from(*byte)]);
            }
        };
        if stored == shape && augmented.is_none() {
            normalise(image);
        } else {
            let mut whole = vec![0.0; bytes.len()];
            normalise(&mut whole);
            augment((&whole, stored.image()), shape.image(), augmented, image);
        }
        Ok(())
    }

    /// Decodes a JPEG sample, without verifying its checksum.
    ///
    /// # Errors
    /// Changed bytes, or not a JPEG file.
    pub(super) fn picture(&self, sample: u32) -> Result<Picture, InputError> {
        let wrong = |message| InputError::new(self.packed.place(), format!("sample {}", self.name(sample)), message);
        decode_jpeg(self.unchecked(sample)).map_err(wrong)
    }

    /// The same, with what makes a sample of `shape` of it: augmented, or its centre.
    ///
    /// # Errors
    /// As [`Encoded::picture`].
    pub(super) fn decoded(
        &self,
        sample: u32,
        shape: Shape,
        augmented: Option<Augmented<'_>>,
    ) -> Result<Decoded, InputError> {
        let picture = self.picture(sample)?;
        Ok(Decoded { transform: Transform::draw(picture.size(), shape.image(), augmented), picture })
    }

    /// Mean and deviation of each channel, by which samples are normalised.
    pub(super) fn normalisation(&self) -> &Normalisation {
        &self.normalisation
    }

    /// A sample's name in messages: its number in the file.
    fn name(&self, sample: u32) -> String {
        match &self.kept {
            Kept::Mapped(samples) => samples[sample as usize].to_string(),
            Kept::Resident(..) => format!("{sample} of a rank's part"),
        }
    }
}
