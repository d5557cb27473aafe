//! Represents a kernel as a struct of its arguments, so that a launch with wrong arguments does not compile or panics;
//! and its source.
//!
//! The structs' fields are the kernels' parameters in order. Compilation checks that each source's parameters have the
//! types that the structs pass; [`KernelLaunch::call`] checks that each tensor is as long as the kernel expects.

use std::fmt;

use super::argument::{Argument, Scalar};
use super::geometry::Geometry;

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSource {
    /// The file's name, for compiler messages.
    pub name: &'static str,
    /// The file's text, which needs a unit around it.
    pub text: &'static str,
}

/// The [`KernelSource`] of a file in the folder `kernels`.
macro_rules! source {
    ($file:literal) => {
        $crate::kernel::KernelSource {
            name: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernels/", $file)),
        }
    };
}
pub(crate) use source;

/// A compilation unit: a file, for given scalars of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceUnit {
    /// The file.
    pub source: KernelSource,
    /// Scalars of the activations: one, one read and one written, or none in a file without activations.
    pub scalars: &'static [Scalar],
}

impl fmt::Display for SourceUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source.name)?;
        self.scalars.iter().try_for_each(|scalar| write!(f, " {}", scalar.name()))
    }
}

/// A kernel of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEntry {
    /// The file that holds it, compiled for its scalars.
    pub unit: SourceUnit,
    /// Its name in the file.
    pub name: &'static str,
    /// Its symbol: the name with the scalars.
    pub function: &'static str,
    /// The types of its parameters, in CUDA C.
    pub types: &'static [&'static str],
}

/// A launch as passed to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCall {
    /// The kernel.
    pub entry: KernelEntry,
    /// Its blocks.
    pub geometry: Geometry,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
}

/// A kernel with its arguments.
pub trait KernelLaunch {
    /// The kernel.
    const ENTRY: KernelEntry;

    /// The launch.
    ///
    /// # Panics
    /// When a tensor is shorter than the kernel expects.
    fn call(&self) -> KernelCall;
}

/// The number of elements of a tensor.
pub(crate) fn product<const N: usize>(sizes: [u32; N]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).product()
}

/// Instantiates a kernel for all its scalars.
macro_rules! instances {
    ($name:ident) => {
        [$name::ENTRY]
    };
    ($name:ident, $scalar:ident) => {
        [$name::<f32>::ENTRY, $name::<$crate::Bf16>::ENTRY]
    };
    ($name:ident, $from:ident, $to:ident) => {
        [
            $name::<f32, f32>::ENTRY,
            $name::<f32, $crate::Bf16>::ENTRY,
            $name::<$crate::Bf16, f32>::ENTRY,
            $name::<$crate::Bf16, $crate::Bf16>::ENTRY,
        ]
    };
}
pub(crate) use instances;

/// A kernel's symbol for given scalars.
macro_rules! symbol {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident, $scalar:ident) => {
        match $scalar::SCALAR {
            $crate::Scalar::F32 => concat!(stringify!($name), "_f32"),
            $crate::Scalar::Bf16 => concat!(stringify!($name), "_bf16"),
        }
    };
    ($name:ident, $from:ident, $to:ident) => {
        match ($from::SCALAR, $to::SCALAR) {
            ($crate::Scalar::F32, $crate::Scalar::F32) => concat!(stringify!($name), "_f32_f32"),
            ($crate::Scalar::F32, $crate::Scalar::Bf16) => concat!(stringify!($name), "_f32_bf16"),
            ($crate::Scalar::Bf16, $crate::Scalar::F32) => concat!(stringify!($name), "_bf16_f32"),
            ($crate::Scalar::Bf16, $crate::Scalar::Bf16) => concat!(stringify!($name), "_bf16_bf16"),
        }
    };
}
pub(crate) use symbol;

/// Defines kernels:
/// `Struct<Scalars> = SOURCE::name on geometry, let sizes; { parameter: Type[least number of elements], … }`.
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$($scalar:ident),+>)? = $source:ident::$function:ident on $geometry:expr $(, $size:ident = $value:expr)*; {
            $($field:ident: $type:ty $([$extent:expr])?,)*
        }
    )*) => {
        /// The kernels of this file, for all scalars.
        pub(crate) fn entries() -> Vec<$crate::kernel::KernelEntry> {
            #[allow(unused_imports, reason = "a file may have none")]
            use $crate::kernel::KernelLaunch;
            let all: &[&[$crate::kernel::KernelEntry]] = &[$(&$crate::kernel::instances!($name $($(, $scalar)+)?)),*];
            all.concat()
        }
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs, reason = "the fields are the kernel's parameters, which its comment explains")]
            pub struct $name $(<$($scalar),+>)? { $(pub $field: $type,)* }

            impl $(<$($scalar: $crate::Activation),+>)? $crate::kernel::KernelLaunch for $name $(<$($scalar),+>)? {
                const ENTRY: $crate::kernel::KernelEntry = $crate::kernel::KernelEntry {
                    unit: $crate::kernel::SourceUnit { source: $source, scalars: &[$($($scalar::SCALAR),+)?] },
                    name: stringify!($function),
                    function: $crate::kernel::symbol!($function $(, $($scalar),+)?),
                    types: &[$(<$type as $crate::ToArgument>::TYPE),*],
                };

                fn call(&self) -> $crate::kernel::KernelCall {
                    #[allow(unused_variables, reason = "not all are sizes")]
                    let $name { $($field),* } = *self;
                    $(let $size = $value;)*
                    let arguments = vec![$({
                        let extent: Option<u64> = None$(.or(Some($extent)))?;
                        $crate::ToArgument::argument(&self.$field, stringify!($field), extent.unwrap_or(0))
                    }),*];
                    $crate::kernel::KernelCall { entry: Self::ENTRY, geometry: $geometry, arguments }
                }
            }
        )*
    };
}
pub(crate) use kernels;
