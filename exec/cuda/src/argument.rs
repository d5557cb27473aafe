//! Defines the arguments of kernels: tensors on the device, numbers, and small structs by value, each with its type in
//! CUDA C.

use std::marker::PhantomData;
use std::ops::Range;

use lockstep_models::Precision;
use lockstep_topology::Dtype;

/// An element type of tensors on the device.
pub trait Element: Copy {
    /// The type of a tensor that is read, in CUDA C.
    const READ: &'static str;
    /// The type of a tensor that is written.
    const WRITE: &'static str;
}

macro_rules! elements {
    ($($type:ty: $read:literal, $write:literal;)*) => { $(
        impl Element for $type {
            const READ: &'static str = $read;
            const WRITE: &'static str = $write;
        }
    )* };
}

elements! {
    f32: "const float*", "float*";
    f64: "const double*", "double*";
    u16: "const u16*", "u16*";
    Bf16: "const u16*", "u16*";
    u32: "const u32*", "u32*";
    u64: "const u64*", "u64*";
}

/// A bf16 number, as its bits: 8 bits of mantissa and fp32's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The element types of activations and their gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Scalar {
    /// fp32.
    #[default]
    F32,
    /// bf16.
    Bf16,
}

impl Scalar {
    /// The type of activations for products in `precision`.
    pub fn of(precision: Precision) -> Scalar {
        if precision == Precision::Bf16 { Scalar::Bf16 } else { Scalar::F32 }
    }

    /// The format of its numbers.
    pub fn dtype(self) -> Dtype {
        match self {
            Scalar::F32 => Dtype::F32,
            Scalar::Bf16 => Dtype::Bf16,
        }
    }

    /// The suffix in kernels' names.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::F32 => "f32",
            Scalar::Bf16 => "bf16",
        }
    }

    /// The element type in CUDA C.
    pub fn in_cuda(self) -> &'static str {
        match self {
            Scalar::F32 => "float",
            Scalar::Bf16 => "u16",
        }
    }
}

/// A type of activations.
pub trait Activation: Element + PartialEq + std::fmt::Debug + Send + 'static {
    /// The corresponding scalar.
    const SCALAR: Scalar;
}

impl Activation for f32 {
    const SCALAR: Scalar = Scalar::F32;
}

impl Activation for Bf16 {
    const SCALAR: Scalar = Scalar::Bf16;
}

/// A tensor on the device that a kernel only reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View<T> {
    address: u64,
    elements: u64,
    of: PhantomData<T>,
}

/// A tensor on the device that a kernel writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewMut<T> {
    address: u64,
    elements: u64,
    of: PhantomData<T>,
}

macro_rules! views {
    ($($view:ident)*) => { $(
        impl<T> $view<T> {
            /// `elements` elements at the device address `address`.
            pub fn new(address: u64, elements: u64) -> $view<T> {
                $view { address, elements, of: PhantomData }
            }

            /// Its address on the device.
            pub fn address(&self) -> u64 {
                self.address
            }

            /// Its number of elements.
            pub fn elements(&self) -> u64 {
                self.elements
            }

            /// A range of its elements.
            ///
            /// # Panics
            /// When the range exceeds the tensor.
            pub fn part(&self, range: Range<u64>) -> $view<T> {
                let fits = range.start <= range.end && range.end <= self.elements;
                assert!(fits, "a tensor of {} elements has no {range:?}", self.elements);
                $view::new(self.address + range.start * size_of::<T>() as u64, range.end - range.start)
            }
        }
    )* };
}

views! { View ViewMut }

impl<T> ViewMut<T> {
    /// The same tensor, read-only.
    pub fn view(self) -> View<T> {
        View::new(self.address, self.elements)
    }
}

/// The memory of a tensor argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorArgument {
    /// Address on the device.
    pub address: u64,
    /// Bytes that the kernel may access.
    pub bytes: u64,
    /// Whether the kernel writes there.
    pub written: bool,
}

/// One argument of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its name in the kernel.
    pub name: &'static str,
    /// The value as passed, little-endian; for a tensor its address.
    pub value: Vec<u8>,
    /// The tensor, if the address is not null.
    pub tensor: Option<TensorArgument>,
}

/// A type that can be an argument.
pub trait ToArgument {
    /// Its type in CUDA C.
    const TYPE: &'static str;

    /// The argument; a tensor must have at least `extent` elements.
    ///
    /// # Panics
    /// When it has fewer: the kernel would read or write beyond it.
    fn argument(&self, name: &'static str, extent: u64) -> Argument;
}

fn tensor<T>(name: &'static str, address: u64, elements: u64, extent: u64, written: bool) -> Argument {
    assert!(extent <= elements, "{name} holds {elements} elements, the kernel takes {extent}");
    let bytes = extent * size_of::<T>() as u64;
    Argument { name, value: address.to_le_bytes().to_vec(), tensor: Some(TensorArgument { address, bytes, written }) }
}

fn null(name: &'static str) -> Argument {
    Argument { name, value: vec![0; 8], tensor: None }
}

impl<T: Element> ToArgument for View<T> {
    const TYPE: &'static str = T::READ;

    fn argument(&self, name: &'static str, extent: u64) -> Argument {
        tensor::<T>(name, self.address, self.elements, extent, false)
    }
}

impl<T: Element> ToArgument for ViewMut<T> {
    const TYPE: &'static str = T::WRITE;

    fn argument(&self, name: &'static str, extent: u64) -> Argument {
        tensor::<T>(name, self.address, self.elements, extent, true)
    }
}

/// A tensor that may be missing: the kernel's null pointer.
impl<P: ToArgument> ToArgument for Option<P> {
    const TYPE: &'static str = P::TYPE;

    fn argument(&self, name: &'static str, extent: u64) -> Argument {
        self.as_ref().map_or_else(|| null(name), |there| there.argument(name, extent))
    }
}

macro_rules! numbers {
    ($($type:ty: $name:literal;)*) => { $(
        impl ToArgument for $type {
            const TYPE: &'static str = $name;

            fn argument(&self, name: &'static str, _: u64) -> Argument {
                Argument { name, value: self.to_le_bytes().to_vec(), tensor: None }
            }
        }
    )* };
}

numbers! {
    u32: "u32";
    u64: "u64";
    f32: "float";
}

impl ToArgument for bool {
    const TYPE: &'static str = "bool";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        Argument { name, value: vec![u8::from(*self)], tensor: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_passed_as_cuda_reads_them() {
        assert_eq!(0x0102_0304u32.argument("n", 0).value, [4, 3, 2, 1]);
        assert_eq!(1.0f32.argument("rate", 0).value, [0, 0, 0x80, 0x3f]);
        assert_eq!(true.argument("rectified", 0).value, [1]);
        let there = ViewMut::<f32>::new(0x1_0000, 7).argument("y", 5);
        assert_eq!(there.value, [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(there.tensor, Some(TensorArgument { address: 0x1_0000, bytes: 20, written: true }));
        assert_eq!(None::<View<f64>>.argument("x", 5), null("x"));
        assert_eq!((<Option<View<f64>>>::TYPE, <ViewMut<u16>>::TYPE), ("const double*", "u16*"));
    }

    #[test]
    fn parts_have_the_address_of_their_first_element() {
        let part = View::<f64>::new(0x100, 10).part(3..7);
        assert_eq!((part.address(), part.elements()), (0x100 + 3 * 8, 4));
        assert_eq!(ViewMut::<u16>::new(2, 5).part(5..5), ViewMut::new(12, 0));
    }

    #[test]
    #[should_panic(expected = "a tensor of 4 elements has no 2..5")]
    fn a_part_beyond_the_end_is_refused() {
        View::<f32>::new(16, 4).part(2..5);
    }

    #[test]
    #[should_panic(expected = "y holds 4 elements, the kernel takes 5")]
    fn a_tensor_that_is_too_short_is_refused() {
        View::<f32>::new(16, 4).argument("y", 5);
    }
}
