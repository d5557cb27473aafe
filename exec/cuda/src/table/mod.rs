//! Every kernel as a struct of its arguments, so that a launch with wrong ones does not compile or says so.
//!
//! The structs' fields are the kernels' parameters in their order. A test compiles, for each entry, that the kernel in CUDA C
//! has the types that the struct hands over; [`Launch::call`] checks that each tensor is as long as the kernel takes it to be.

mod layers;
mod losses;
mod moves;
mod parameters;
mod sums;
mod windows;

pub use layers::{
    Add, BatchNormBackward, BatchNormForward, ChannelAffine, CurveBackward, CurveForward, GeluBackward, GeluForward,
    ReluBackward, ReluForward,
};
pub use losses::{
    Draws, DropoutBackward, DropoutForward, LogisticForward, LossBackward, LossTotals, SoftmaxForward, blocks_of_draws,
};
pub use moves::{MoveRows, Permute};
pub use parameters::{AddInto, Average, Correct, Descend, MoveReference, SgdUpdate};
pub use sums::{
    BatchNormInverses, BatchNormMoments, BatchNormStatistics, ChannelSlopes, ChannelSlopesFinish, ColumnMoments,
    ColumnSlopes,
};
pub use windows::{
    GlobalPoolBackward, GlobalPoolForward, LocalResponseBackward, LocalResponseForward, LocalResponseRatios,
    MaxPoolBackward, MaxPoolForward, MeanPoolBackward, MeanPoolForward, Response, Window,
};

use super::source::Unit;
use super::{Argument, Geometry};

/// A kernel of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The file that holds it, compiled for its scalars.
    pub unit: Unit,
    /// Its name in the file.
    pub name: &'static str,
    /// Its symbol: the name, and what the scalars are.
    pub function: &'static str,
    /// The types of its parameters, in CUDA C.
    pub types: &'static [&'static str],
}

/// What a device is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The kernel.
    pub entry: Entry,
    /// Its blocks.
    pub geometry: Geometry,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
}

/// A kernel with its arguments.
pub trait Launch {
    /// The kernel.
    const ENTRY: Entry;

    /// What a device is given.
    ///
    /// # Panics
    /// When a tensor is shorter than the kernel takes it to be.
    fn call(&self) -> Call;
}

/// All kernels, each for all scalars that it is there for.
pub fn all() -> Vec<Entry> {
    [layers::entries(), moves::entries(), sums::entries(), windows::entries(), losses::entries(), parameters::entries()]
        .concat()
}

/// The number of elements of a tensor.
fn product<const N: usize>(sizes: [u32; N]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).product()
}

/// A kernel for all scalars that it is there for.
macro_rules! instances {
    ($name:ident) => {
        [$name::ENTRY]
    };
    ($name:ident, $scalar:ident) => {
        [$name::<f32>::ENTRY, $name::<Bf16>::ENTRY]
    };
    ($name:ident, $from:ident, $to:ident) => {
        [$name::<f32, f32>::ENTRY, $name::<f32, Bf16>::ENTRY, $name::<Bf16, f32>::ENTRY, $name::<Bf16, Bf16>::ENTRY]
    };
}
use instances;

/// A kernel's name among those of all scalars.
macro_rules! symbol {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident, $scalar:ident) => {
        match $scalar::SCALAR {
            Scalar::F32 => concat!(stringify!($name), "_f32"),
            Scalar::Bf16 => concat!(stringify!($name), "_bf16"),
        }
    };
    ($name:ident, $from:ident, $to:ident) => {
        match ($from::SCALAR, $to::SCALAR) {
            (Scalar::F32, Scalar::F32) => concat!(stringify!($name), "_f32_f32"),
            (Scalar::F32, Scalar::Bf16) => concat!(stringify!($name), "_f32_bf16"),
            (Scalar::Bf16, Scalar::F32) => concat!(stringify!($name), "_bf16_f32"),
            (Scalar::Bf16, Scalar::Bf16) => concat!(stringify!($name), "_bf16_bf16"),
        }
    };
}
use symbol;

/// Defines kernels: `Struct<Scalars> = Source::name, geometry, let sizes; { parameter: Type[elements that it has at least], … }`.
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$($scalar:ident),+>)? = $source:ident::$function:ident on $geometry:expr $(, $size:ident = $value:expr)*; {
            $($field:ident: $type:ty $([$extent:expr])?,)*
        }
    )*) => {
        /// The kernels of this file, for all scalars.
        pub(super) fn entries() -> Vec<Entry> {
            [$(&instances!($name $($(, $scalar)+)?)[..]),*].concat()
        }
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs, reason = "the fields are the kernel's parameters, which its comment explains")]
            pub struct $name $(<$($scalar),+>)? { $(pub $field: $type,)* }

            impl $(<$($scalar: Activation),+>)? Launch for $name $(<$($scalar),+>)? {
                const ENTRY: Entry = Entry {
                    unit: Unit { source: Source::$source, scalars: &[$($($scalar::SCALAR),+)?] },
                    name: stringify!($function),
                    function: symbol!($function $(, $($scalar),+)?),
                    types: &[$(<$type as Parameter>::TYPE),*],
                };

                fn call(&self) -> Call {
                    #[allow(unused_variables, reason = "not all are sizes")]
                    let $name { $($field),* } = *self;
                    $(let $size = $value;)*
                    let arguments = vec![$({
                        let extent: Option<u64> = None$(.or(Some($extent)))?;
                        self.$field.argument(stringify!($field), extent.unwrap_or(0))
                    }),*];
                    Call { entry: Self::ENTRY, geometry: $geometry, arguments }
                }
            }
        )*
    };
}
use kernels;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Scalar;

    /// No kernel of a source is missing in the table, for any scalars, none stands there twice, and none is of another file.
    #[test]
    fn the_table_has_every_kernel_of_the_sources() {
        let mut defined = Vec::new();
        for unit in Unit::all() {
            for rest in unit.source.text().split("KERNEL(").skip(1) {
                let name = rest.split(')').next().expect("a name");
                let symbol = |symbol, scalar: &Scalar| format!("{symbol}_{}", scalar.name());
                defined.push((unit.to_string(), name, unit.scalars.iter().fold(name.to_owned(), symbol)));
            }
        }
        let listed: Vec<_> =
            all().iter().map(|entry| (entry.unit.to_string(), entry.name, entry.function.to_owned())).collect();
        assert_eq!(BTreeSet::from_iter(&listed), BTreeSet::from_iter(&defined));
        assert_eq!(listed.len(), defined.len());
        let names: BTreeSet<&str> = listed.iter().map(|(_, _, function)| function.as_str()).collect();
        assert_eq!(names.len(), listed.len(), "two kernels of one name");
    }

    /// The prelude and the table speak of blocks of one size.
    #[test]
    fn blocks_are_those_of_the_prelude() {
        let text = crate::PRELUDE;
        assert!(text.contains(&format!("constexpr u32 BLOCK = {};", crate::BLOCK)));
        assert!(text.contains(&format!("constexpr u32 WARP = {};", crate::WARP)));
    }
}
