//! Allocates tensors for launches on the emulator, each at its own odd or even address.

use std::marker::PhantomData;
use std::ops::Range;

use lockstep_cuda::{Activation, Bf16, Element, View, ViewMut};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::rng;

/// A number as little-endian bytes.
pub(crate) trait Number: Element {
    /// The content of unwritten memory.
    const NOTHING: Self;
    fn bytes(self) -> Vec<u8>;
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($type:ty: $nothing:expr;)*) => { $(
        impl Number for $type {
            const NOTHING: $type = $nothing;

            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }

            fn of(bytes: &[u8]) -> $type {
                <$type>::from_le_bytes(bytes.try_into().expect("the bytes of a number"))
            }
        }
    )* };
}

numbers! {
    f32: f32::NAN;
    f64: f64::NAN;
    u16: 0xffff;
    u32: u32::MAX;
    u64: u64::MAX;
}

impl Number for Bf16 {
    const NOTHING: Bf16 = Bf16(0xffff);

    fn bytes(self) -> Vec<u8> {
        self.0.bytes()
    }

    fn of(bytes: &[u8]) -> Bf16 {
        Bf16(Number::of(bytes))
    }
}

/// A scalar of activations: a subset of fp32's numbers.
pub(crate) trait Real: Number + Activation {
    /// The nearest value, ties to even.
    fn nearest(value: f32) -> Self;
    fn wide(self) -> f32;
}

impl Real for f32 {
    fn nearest(value: f32) -> f32 {
        value
    }

    fn wide(self) -> f32 {
        self
    }
}

impl Real for Bf16 {
    /// By distances instead of bits.
    fn nearest(value: f32) -> Bf16 {
        let below = Bf16((value.to_bits() >> 16) as u16);
        if value.is_infinite() {
            return below;
        }
        if value.is_nan() {
            return Bf16(below.0 | 1);
        }
        // The bits after the largest bf16 are infinity's; here they represent 2¹²⁸.
        let next = Bf16(below.0 + 1);
        let end = 2f64.powi(128).copysign(f64::from(value));
        let above = if next.wide().is_infinite() { end } else { f64::from(next.wide()) };
        let (down, up) = ((f64::from(value) - f64::from(below.wide())).abs(), (above - f64::from(value)).abs());
        if down < up || (down == up && below.0.is_multiple_of(2)) { below } else { next }
    }

    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// The values rounded to activations.
pub(crate) fn rounded<A: Real>(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| A::nearest(*value).wide()).collect()
}

/// A tensor of the memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<T> {
    index: usize,
    address: u64,
    elements: u64,
    of: PhantomData<T>,
}

impl<T> Held<T> {
    /// The tensor of a view.
    pub(crate) fn of(view: View<T>) -> Held<T> {
        let (address, elements) = (view.address(), view.elements());
        Held { index: (address >> 32) as usize - 1, address, elements, of: PhantomData }
    }

    pub(crate) fn read(self) -> View<T> {
        View::new(self.address, self.elements)
    }

    pub(crate) fn write(self) -> ViewMut<T> {
        ViewMut::new(self.address, self.elements)
    }

    /// A range of it.
    pub(crate) fn part(self, range: Range<usize>) -> Held<T> {
        let address = self.address + (range.start * size_of::<T>()) as u64;
        Held { address, elements: range.len() as u64, ..self }
    }
}

/// One tensor's bytes, offset by `shift` bytes from an aligned address.
pub(crate) struct Buffer {
    pub(crate) shift: u32,
    pub(crate) bytes: Vec<u8>,
}

/// All tensors of a case.
pub(crate) struct Memory {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) rng: ChaCha8Rng,
    alignment: Alignment,
}

/// The alignment of tensors.
#[derive(Clone, Copy, PartialEq)]
enum Alignment {
    /// Aligned, as by a device's allocator.
    Aligned,
    /// One element after an aligned address.
    Odd,
    /// Random.
    Random,
}

impl Memory {
    pub(crate) fn new(seed: u64) -> Memory {
        let alignment = if seed.is_multiple_of(3) { Alignment::Aligned } else { Alignment::Random };
        Memory { buffers: Vec::new(), rng: rng(seed), alignment }
    }

    /// A memory whose tensors begin at odd addresses.
    pub(crate) fn odd() -> Memory {
        Memory { buffers: Vec::new(), rng: rng(0), alignment: Alignment::Odd }
    }

    /// A tensor of these values.
    pub(crate) fn put<T: Number>(&mut self, values: &[T]) -> Held<T> {
        let elements = match self.alignment {
            Alignment::Aligned => 0,
            Alignment::Odd => 1,
            Alignment::Random => self.rng.random_range(0..4),
        };
        let shift = elements * size_of::<T>() as u32;
        self.buffers.push(Buffer { shift, bytes: values.iter().flat_map(|value| value.bytes()).collect() });
        let index = self.buffers.len() - 1;
        let address = ((index as u64 + 1) << 32) + u64::from(shift);
        Held { index, address, elements: values.len() as u64, of: PhantomData }
    }

    /// An unwritten tensor.
    pub(crate) fn space<T: Number>(&mut self, elements: usize) -> Held<T> {
        self.put(&vec![T::NOTHING; elements])
    }

    /// The aligned address of `bytes` bytes that are [`Memory::poison`].
    pub(crate) fn room(&mut self, bytes: u64) -> u64 {
        self.buffers.push(Buffer { shift: 0, bytes: vec![0; bytes as usize] });
        let address = (self.buffers.len() as u64) << 32;
        self.poison(address);
        address
    }

    /// Sets all bits of the buffer at `address`, which is NaN in each format.
    pub(crate) fn poison(&mut self, address: u64) {
        let index = self.place(address).0;
        self.buffers[index].bytes.fill(0xff);
    }

    /// `count` bytes from an address on.
    pub(crate) fn bytes(&mut self, address: u64, count: usize) -> &mut [u8] {
        let (index, start) = self.place(address);
        &mut self.buffers[index].bytes[start as usize..][..count]
    }

    /// A tensor of the nearest activations.
    pub(crate) fn hold<A: Real>(&mut self, values: &[f32]) -> Held<A> {
        let all: Vec<A> = values.iter().map(|value| A::nearest(*value)).collect();
        self.put(&all)
    }

    /// The content of a tensor of activations.
    pub(crate) fn wide<A: Real>(&self, held: Held<A>) -> Vec<f32> {
        self.get(held).into_iter().map(A::wide).collect()
    }

    /// Random numbers representable as activations.
    pub(crate) fn reals<A: Real>(&mut self, elements: usize) -> Vec<f32> {
        rounded::<A>(&self.values(elements))
    }

    /// Random numbers to accumulate on.
    pub(crate) fn values(&mut self, elements: usize) -> Vec<f32> {
        crate::values(elements, &mut self.rng)
    }

    /// The content of a tensor.
    pub(crate) fn get<T: Number>(&self, held: Held<T>) -> Vec<T> {
        let (start, width) = (self.place(held.address).1 as usize, size_of::<T>());
        let bytes = &self.buffers[held.index].bytes[start..start + held.elements as usize * width];
        bytes.chunks_exact(width).map(T::of).collect()
    }

    /// The buffer that contains an address, and the address's offset in it.
    pub(crate) fn place(&self, address: u64) -> (usize, u64) {
        let index = (address >> 32) as usize - 1;
        (index, (address & 0xffff_ffff) - u64::from(self.buffers[index].shift))
    }
}
