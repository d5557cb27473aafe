//! Declares the kernels that move activations: `moves.cu`.

use super::MOVES;
use crate::kernel::{kernels, product};
use crate::{Geometry, View, ViewMut};

kernels! {
    /// Rows of `length` elements, `stride` apart, from one tensor to another, which may be of another scalar.
    MoveRows<F, T> = MOVES::move_rows on Geometry::threads(product([rows, length])); {
        from: View<F>[reach(rows, length, from_first, from_stride)],
        from_first: u64,
        from_stride: u64,
        to: ViewMut<T>[reach(rows, length, to_first, to_stride)],
        to_first: u64,
        to_stride: u64,
        rows: u32,
        length: u32,
        accumulate: bool,
    }

    /// `[samples, rows, columns]` as `[samples, columns, rows]`, replaced or added: channels first as channels last and back.
    Permute<F, T> = MOVES::permute on Geometry::tiles(all), all = product([samples, rows, columns]); {
        from: View<F>[all],
        to: ViewMut<T>[all],
        samples: u32,
        rows: u32,
        columns: u32,
        accumulate: bool,
    }
}

/// The elements up to the end of the last of `rows`.
fn reach(rows: u32, length: u32, first: u64, stride: u64) -> u64 {
    if rows == 0 { 0 } else { first + u64::from(rows - 1) * stride + u64::from(length) }
}
