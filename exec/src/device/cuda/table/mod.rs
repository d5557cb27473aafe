//! Every kernel as a struct of its arguments, so that a launch with wrong ones does not compile or says so.
//!
//! The structs' fields are the kernels' parameters in their order. A test compiles, for each entry, that the kernel in CUDA C
//! has the types that the struct hands over; [`Launch::call`] checks that each tensor is as long as the kernel takes it to be.

mod layers;
mod losses;
mod parameters;
mod windows;

pub use layers::{
    Add, BatchNormBackward, BatchNormForward, BatchNormInverses, BatchNormMoments, BatchNormStatistics, ChannelAffine,
    ChannelSlopes, ChannelSlopesFinish, CurveBackward, CurveForward, MoveRows, ReluBackward, ReluForward,
};
pub use losses::{
    Draws, DropoutBackward, DropoutForward, LogisticForward, LossBackward, LossTotals, SoftmaxForward, blocks_of_draws,
};
pub use parameters::{AddInto, Average, Correct, Descend, FromBf16, MoveReference, SgdUpdate, ToBf16};
pub use windows::{
    GlobalPoolBackward, GlobalPoolForward, LocalResponseBackward, LocalResponseForward, LocalResponseRatios,
    MaxPoolBackward, MaxPoolForward, MeanPoolBackward, MeanPoolForward, Response, Window,
};

use super::{Argument, Geometry, Source};

/// A kernel of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The file that holds it.
    pub source: Source,
    /// Its name there.
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

/// All kernels, file by file.
pub fn all() -> Vec<Entry> {
    [layers::ENTRIES, windows::ENTRIES, losses::ENTRIES, parameters::ENTRIES].concat()
}

/// The number of elements of a tensor.
fn product<const N: usize>(sizes: [u32; N]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).product()
}

/// Defines kernels: `Struct = Source::function, geometry, let sizes; { parameter: Type[elements that it has at least], … }`.
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident = $source:ident::$function:ident on $geometry:expr $(, $size:ident = $value:expr)*; {
            $($field:ident: $type:ty $([$extent:expr])?,)*
        }
    )*) => {
        /// The kernels of this file.
        pub(super) const ENTRIES: &[Entry] = &[$($name::ENTRY),*];
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs, reason = "the fields are the kernel's parameters, which its comment explains")]
            pub struct $name { $(pub $field: $type,)* }

            impl Launch for $name {
                const ENTRY: Entry = Entry {
                    source: Source::$source,
                    function: stringify!($function),
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

    /// No kernel of a source is missing in the table, none stands there twice, and none is of another file.
    #[test]
    fn the_table_has_every_kernel_of_the_sources() {
        let listed: Vec<(Source, &str)> = all().iter().map(|entry| (entry.source, entry.function)).collect();
        let mut defined = Vec::new();
        for source in Source::ALL {
            for rest in source.text().split("__global__ void ").skip(1) {
                defined.push((source, rest.split('(').next().expect("a name")));
            }
        }
        let sorted = |all: &[(Source, &'static str)]| all.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(sorted(&listed), sorted(&defined));
        assert_eq!(listed.len(), defined.len());
        let names: BTreeSet<&str> = listed.iter().map(|(_, function)| *function).collect();
        assert_eq!(names.len(), listed.len(), "two kernels of one name");
    }

    /// The prelude and the table speak of blocks of one size.
    #[test]
    fn blocks_are_those_of_the_prelude() {
        let text = super::super::PRELUDE;
        assert!(text.contains(&format!("constexpr u32 BLOCK = {};", super::super::BLOCK)));
        assert!(text.contains(&format!("constexpr u32 WARP = {};", super::super::WARP)));
    }
}
