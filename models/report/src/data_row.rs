//! Defines the rows of `lockstep data`: packed sets, samples, and statistics of groups of samples.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// The row of `data pack`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PackRow {
    /// The packed file.
    pub file: String,
    /// `raw`, or of files of images `jpeg`, `png`, or `jpeg and png`; of texts the format of tokens, `u16` or `u32`.
    pub encoding: String,
    /// Samples in it; of texts, documents.
    pub samples: u64,
    /// Classes; of texts, the size of the vocabulary.
    pub classes: u32,
    /// Tokens; only of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Broken samples that were left out.
    pub skipped: u64,
    /// Samples that an interrupted pack had done before.
    pub resumed: u64,
    /// The file's size in bytes.
    pub bytes: u64,
}

impl Row for PackRow {}

/// A row of `data show`: a sample.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SampleRow {
    /// Its number, from 0.
    pub sample: u64,
    /// Its class.
    pub label: u32,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Pixels in a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// CRC-32 of its bytes, in hexadecimal digits.
    pub checksum: String,
}

impl Row for SampleRow {}

/// A row of `data show` of a token set: a document.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DocumentRow {
    /// Its number, from 0.
    pub document: u64,
    /// The number of its first token.
    pub first: u64,
    /// Its tokens.
    pub tokens: u64,
    /// How it begins: characters where tokens are bytes, else numbers.
    pub begins: String,
}

impl Row for DocumentRow {}

/// A row of `data stats`: all samples, those of a class, or those of a size.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SampleGroupRow {
    /// `all`, `class N`, or the sizes that a bar of the histogram is for.
    pub group: String,
    /// Samples in it.
    pub samples: u64,
    /// The same as a part of all.
    pub share: f64,
    /// Bytes of a sample in the mean.
    pub mean_bytes: f64,
    /// Pixels in a row in the mean; of texts, tokens.
    pub mean_width: f64,
    /// Rows in the mean.
    pub mean_height: f64,
    /// A bar of the histogram, a sign for each fortieth of all samples.
    pub bar: String,
}

impl Row for SampleGroupRow {}
