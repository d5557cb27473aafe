//! Where ranks live, how they are wired, and the collective algorithms over them.

mod input_error;
mod units;

pub use input_error::{InputError, nearest};
pub use units::{Bandwidth, Bytes, Time};
