//! `Tokens`: samples that are windows of a stream of tokens, whose labels are the tokens that follow.
//!
//! A window of n positions takes n + 1 tokens: those that the model reads, and after each the one that it is to predict.

use std::sync::Arc;

use lockstep_models::{SampleTensor, StoredSamples};
use lockstep_topology::{Dtype, InputError};

use super::changed::changed;
use crate::number::{bytes_of, bytes_of_mut, numbers_mut};
use crate::token_file::TokenFile;

/// The format of tokens in memory and in messages.
pub(super) const IN_MEMORY: Dtype = Dtype::U32;

/// Where the tokens are.
#[derive(Debug, Clone)]
pub(super) enum Stream {
    /// In memory.
    Memory(Arc<Vec<u32>>),
    /// In a mapped file.
    Mapped(Arc<TokenFile>),
}

impl Stream {
    /// How many there are.
    pub(super) fn tokens(&self) -> u64 {
        match self {
            Stream::Memory(tokens) => tokens.len() as u64,
            Stream::Mapped(file) => file.header().tokens,
        }
    }

    fn is(&self, other: &Stream) -> bool {
        match (self, other) {
            (Stream::Memory(own), Stream::Memory(others)) => Arc::ptr_eq(own, others),
            (Stream::Mapped(own), Stream::Mapped(others)) => Arc::ptr_eq(own, others),
            _ => false,
        }
    }

    /// Copies tokens from `first` on. Those of a file are below the vocabulary that it states, however damaged.
    fn copy(&self, first: u64, to: &mut [u32]) {
        match self {
            Stream::Memory(tokens) => to.copy_from_slice(&tokens[first as usize..][..to.len()]),
            Stream::Mapped(file) => {
                file.copy(first, to);
                let last = file.header().vocabulary - 1;
                to.iter_mut().for_each(|token| *token = last.min(*token));
            }
        }
    }
}

/// Windows of a stream.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    stream: Stream,
    /// The place in the stream where each window begins.
    starts: Vec<u64>,
    /// A sample as the model takes it.
    sample: SampleTensor,
}

impl Tokens {
    /// The windows that begin at these places of tokens in memory, of samples that a model takes so.
    pub(super) fn new(stream: Vec<u32>, starts: Vec<u64>, sample: SampleTensor) -> Tokens {
        Tokens::of(Stream::Memory(Arc::new(stream)), starts, sample)
    }

    /// The same of any stream.
    pub(super) fn of(stream: Stream, starts: Vec<u64>, sample: SampleTensor) -> Tokens {
        Tokens { stream, starts, sample }
    }

    /// A sample as the model takes it.
    pub(super) fn sample(&self) -> SampleTensor {
        self.sample
    }

    /// Whether both share the same windows.
    pub(super) fn is(&self, other: &Tokens) -> bool {
        self.stream.is(&other.stream) && self.starts == other.starts && self.sample == other.sample
    }

    /// How many windows there are.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Tokens of a window.
    pub(super) fn each(&self) -> usize {
        self.sample.elements() as usize + 1
    }

    /// How its samples are stored.
    pub(super) fn stored(&self) -> StoredSamples {
        StoredSamples { bytes: self.sample.bytes(), ..StoredSamples::values(self.sample.shape) }
    }

    /// The tokens in memory.
    ///
    /// # Panics
    /// When they are in a file.
    fn memory(&mut self) -> &mut Arc<Vec<u32>> {
        match &mut self.stream {
            Stream::Memory(tokens) => tokens,
            Stream::Mapped(_) => panic!("tokens of a part are in memory"),
        }
    }

    /// Copies the tokens that the model reads of a window, in its format.
    ///
    /// # Errors
    /// Damaged tokens.
    pub(super) fn copy(&self, window: u32, sample: &mut [u8]) -> Result<(), InputError> {
        let first = self.starts[window as usize];
        if let Stream::Mapped(file) = &self.stream {
            file.verify(first..first + self.each() as u64)?;
        }
        if self.sample.dtype == Dtype::U32 {
            self.stream.copy(first, numbers_mut(sample));
            return Ok(());
        }
        let mut few = [0; 256];
        for (first, to) in (first..).step_by(few.len()).zip(numbers_mut::<u16>(sample).chunks_mut(few.len())) {
            let few = &mut few[..to.len()];
            self.stream.copy(first, few);
            to.iter_mut().zip(few).for_each(|(to, from)| *to = *from as u16);
        }
        Ok(())
    }

    /// Copies the token that follows at each position of a window.
    pub(super) fn copy_labels(&self, window: u32, labels: &mut [u32]) {
        self.stream.copy(self.starts[window as usize] + 1, labels);
    }

    /// The windows `windows` of the same stream.
    pub(super) fn subset(&self, windows: &[u32]) -> Tokens {
        let starts = windows.iter().map(|window| self.starts[*window as usize]).collect();
        Tokens { stream: self.stream.clone(), starts, sample: self.sample }
    }

    /// The windows `windows` in memory of their own, one after the other.
    ///
    /// # Errors
    /// Damaged tokens.
    pub(super) fn held(&self, windows: &[u32]) -> Result<Tokens, InputError> {
        let each = self.each();
        let mut memory = vec![0; windows.len() * each];
        for (window, to) in windows.iter().zip(memory.chunks_exact_mut(each)) {
            let first = self.starts[*window as usize];
            if let Stream::Mapped(file) = &self.stream {
                file.verify(first..first + each as u64)?;
            }
            self.stream.copy(first, to);
        }
        let mut held = Tokens::new(memory, Vec::new(), self.sample);
        held.place(windows.len());
        Ok(held)
    }

    /// Says that `windows` windows lie one after the other.
    fn place(&mut self, windows: usize) {
        let each = self.each() as u64;
        self.starts = (0..windows as u64).map(|window| window * each).collect();
    }

    /// Makes space for windows one after the other.
    pub(super) fn reserve(&mut self, windows: usize) {
        let tokens = windows * self.each();
        let stream = changed(self.memory());
        stream.reserve_exact(tokens.saturating_sub(stream.len()));
    }

    /// Has `windows` windows one after the other.
    pub(super) fn resize(&mut self, windows: usize) {
        self.reserve(windows);
        let tokens = windows * self.each();
        changed(self.memory()).resize(tokens, 0);
        self.place(windows);
    }

    /// The bytes of a window in memory.
    ///
    /// # Panics
    /// When they are in a file.
    pub(super) fn bytes(&self, window: u32) -> &[u8] {
        let Stream::Memory(tokens) = &self.stream else { panic!("tokens of a part are in memory") };
        bytes_of(&tokens[self.starts[window as usize] as usize..][..self.each()])
    }

    /// The bytes of all windows in memory, one after the other, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytes_of_mut(changed(self.memory()))
    }

    /// Where the windows in memory begin.
    pub(super) fn start(&self) -> *const u8 {
        match &self.stream {
            Stream::Memory(tokens) => tokens.as_ptr().cast(),
            Stream::Mapped(_) => std::ptr::null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Coming, Dataset};
    use super::*;

    /// Windows of four positions of the stream 0, 1, 2, …, 99, of which each begins at a multiple of four.
    fn counting() -> Dataset {
        let starts = (0..24).map(|window| 4 * window).collect();
        Dataset::of_tokens("t", 100, Tokens::new((0..100).collect(), starts, SampleTensor::tokens(4, 100)))
    }

    #[test]
    fn a_window_has_the_tokens_and_those_that_follow() {
        let data = counting();
        let (mut tokens, mut labels) = ([0u16; 8], [0; 8]);
        data.draw(&[3, 0], 1, 0, &mut tokens, &mut labels).unwrap();
        assert_eq!((tokens, labels), ([12, 13, 14, 15, 0, 1, 2, 3], [13, 14, 15, 16, 1, 2, 3, 4]));
        let some = data.subset(&[5, 3]);
        assert_eq!((some.len(), some.labels_of(&[1])), (2, vec![13, 14, 15, 16]));
        assert_eq!(data.mean_message(), (5, Dtype::U32));
        assert_eq!(Some(data.mean_message()), lockstep_models::SetSizes::window(data.shape()));
    }

    /// A shuffle: sample 0 comes into the slot of sample 1, which leaves, and sample 2 behind the others.
    #[test]
    fn windows_keep_their_labels_wherever_they_go() {
        let data = counting();
        let mut part = data.held(&[1, 2]).unwrap();
        part.reserve(3);
        let coming = Coming { whole: &data, samples: &[0, 2], slots: &[0, 2] };
        let mut message = [0; 40];
        data.pack(&[0, 2], &mut message).unwrap();
        let mut other = part.clone();
        part.unpack(&message, coming);
        assert_eq!(part.labels_of(&[0, 1, 2]), [1, 2, 3, 4, 9, 10, 11, 12, 9, 10, 11, 12]);
        // The same without a copy between.
        other.reserve(3);
        let (reserved, places) = other.reserve_for(coming);
        for (place, message) in places.into_iter().zip(message.chunks_exact(20)) {
            // SAFETY: the memory of the set, which nothing else uses.
            unsafe { (*place).copy_from_slice(message) };
        }
        // SAFETY: all has arrived.
        unsafe { other.take(reserved, coming) };
        assert_eq!(other.labels_of(&[0, 1, 2]), part.labels_of(&[0, 1, 2]));
        assert_eq!(other.places(&[2]), [&message[20..]]);
    }
}
