//! `Buckets`: sizes of the buffers in which DeepSpeed exchanges, where they are stated.

use std::fmt;
use std::str::FromStr;

/// A number of elements: `500000000`, `5e8`, or `auto`, which transformers replaces by what suits the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elements {
    /// As many.
    Count(u64),
    /// As transformers has it for the model.
    Auto,
}

/// Sizes of buffers; the framework's default where none is stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Buckets {
    /// In which gradients are reduced (`reduce_bucket_size`).
    pub reduce: Option<Elements>,
    /// Of parameters that are fetched ahead (`stage3_prefetch_bucket_size`).
    pub ahead: Option<Elements>,
    /// Of parameters that stay gathered, at most (`stage3_max_live_parameters`).
    pub live: Option<Elements>,
}

impl Elements {
    /// The most that are counted.
    const MOST: u64 = 1 << 48;

    /// The number; `auto` is the second, the default the third.
    pub(crate) fn of(stated: Option<Elements>, auto: u64, usual: u64) -> u64 {
        match stated {
            Some(Elements::Count(count)) => count,
            Some(Elements::Auto) => auto,
            None => usual,
        }
    }
}

impl FromStr for Elements {
    type Err = String;

    fn from_str(text: &str) -> Result<Elements, String> {
        if text == "auto" {
            return Ok(Elements::Auto);
        }
        // JSON has such numbers with a decimal point or an exponent.
        let number: Option<f64> = text.parse().ok().filter(|of: &f64| of.fract() == 0.0);
        match number.filter(|of| (0.0..=Elements::MOST as f64).contains(of)) {
            Some(count) => Ok(Elements::Count(count as u64)),
            None => Err(format!("must be auto or a whole number from 0 to {}, such as 5e8", Elements::MOST)),
        }
    }
}

impl fmt::Display for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elements::Count(count) => count.fmt(f),
            Elements::Auto => f.write_str("auto"),
        }
    }
}
