//! Figures from elsewhere: one that predictions are scaled to, and those that somebody published.

use std::str::FromStr;

use lockstep_topology::Algorithm;

/// One measured point, to which the cost of computation is scaled.
#[derive(Debug, Clone, PartialEq)]
pub struct Anchor {
    /// Ranks it was measured on.
    pub ranks: u32,
    /// Its batch; `None`: the experiment's first.
    pub batch_per_rank: Option<u32>,
    /// What was measured, over all ranks.
    pub images_per_s: f64,
}

impl FromStr for Anchor {
    type Err = String;

    /// Reads `ranks=1,images_per_s=219` and `ranks=8,batch_per_rank=32,images_per_s=1500`.
    fn from_str(text: &str) -> Result<Anchor, String> {
        let cure = || format!("{text:?}: write it like ranks=1,images_per_s=219");
        let mut anchor = Anchor { ranks: 1, batch_per_rank: None, images_per_s: 0.0 };
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(cure)?;
            let count = || value.trim().parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(cure);
            match key.trim() {
                "ranks" => anchor.ranks = count()?,
                "batch_per_rank" => anchor.batch_per_rank = Some(count()?),
                "images_per_s" => anchor.images_per_s = value.trim().parse().map_err(|_| cure())?,
                _ => return Err(cure()),
            }
        }
        if !(anchor.images_per_s > 0.0 && anchor.images_per_s.is_finite()) {
            return Err(format!("{text:?}: images_per_s must be a number above 0"));
        }
        Ok(anchor)
    }
}

/// Figures that somebody published, to compare with.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Who, where.
    pub source: String,
    /// The figures.
    pub points: Vec<Point>,
}

/// One published figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Of so many ranks.
    pub ranks: u32,
    /// Of this batch; `None`: of any.
    pub batch_per_rank: Option<u32>,
    /// Of this algorithm; `None`: of any.
    pub algorithm: Option<Algorithm>,
    /// Samples per second over all ranks.
    pub images_per_s: f64,
}
