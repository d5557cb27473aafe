//! Reads data sets: packs labelled images of many formats into one file that is mapped into memory, and makes samples of
//! a set in any order.
//!
//! [`Source`] lists the samples of image folders, tar shards, IDX files, CIFAR's binaries and Caffe's LMDB,
//! [`pack`](fn@pack) writes them to one file whose bytes do not depend on threads or interruptions, and [`Packed`]
//! reads that. A [`Dataset`] is a set as training takes it: its samples are augmented and normalised when they are drawn,
//! in the order of a [`Sampler`]. `docs/data.md` describes the file to the byte.

pub mod datum;
pub mod format;
pub mod generate;
pub mod idx;
mod journal;
mod memory_left;
mod normalisation;
pub mod number;
mod pack;
mod packed;
mod picture;
mod pixels;
mod png_picture;
pub mod random;
mod set;
mod source;
mod token_file;
mod token_pack;
mod tokenizer;

pub use memory_left::available_memory;
pub use normalisation::Normalisation;
pub use pack::{Outcome, Packing, Skipped, pack};
pub use packed::Packed;
pub use picture::{QUALITY, decode as decode_jpeg, keep as keep_jpeg, size as jpeg_size};
pub use pixels::{MOST_PIXELS, Picture};
pub use set::{
    Coming, Dataset, Decoded, Finish, Moves, PackedMoves, Parts, Recipe, Reserved, Round, Sampler, Spelling, Transform,
    Untransformed, Window,
};
pub use source::{Sample, SampleEntry, SetPart, Source, cifar, lmdb, shards};
pub use token_file::{TokenFile, TokenHeader};
pub use token_pack::{BYTES, TokenWriter, pack_texts, read_text_file, tokens_of_document};
pub use tokenizer::Tokenizer;
