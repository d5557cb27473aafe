//! Packs data sets: labelled images of many formats in one file that is mapped into memory, checked and read at random.
//!
//! [`Source`] lists the samples of image folders, tar shards, IDX files, CIFAR's binaries and Caffe's LMDB,
//! [`pack`](fn@pack) writes them to one file whose bytes do not depend on threads or interruptions, and [`Packed`]
//! reads that. `docs/data.md` describes the file to the byte.

pub mod datum;
pub mod format;
pub mod generate;
pub mod idx;
mod journal;
mod normalisation;
mod pack;
mod packed;
mod picture;
mod pixels;
mod png_picture;
mod source;

pub use normalisation::Normalisation;
pub use pack::{Outcome, Packing, Skipped, pack};
pub use packed::Packed;
pub use picture::{QUALITY, decode as decode_jpeg, keep as keep_jpeg, size as jpeg_size};
pub use pixels::{MOST_PIXELS, Picture};
pub use source::{Sample, SampleEntry, SetPart, Source, cifar, lmdb, shards};
