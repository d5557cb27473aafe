//! Reads external figures: the anchor that predictions are scaled to, and published figures for comparison.

use std::collections::BTreeSet;
use std::str::FromStr;

use lockstep_topology::{Algorithm, InputError};

use crate::form::{Form, Style};
use crate::identity::Identity;
use lockstep_topology::document::Entry;

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

impl Anchor {
    /// Adds what decides predictions.
    pub fn identify(&self, identity: &mut Identity) {
        identity.set("anchor.ranks", self.ranks);
        identity.set_some("anchor.batch_per_rank", self.batch_per_rank);
        identity.set("anchor.images_per_s", self.images_per_s);
    }
}

/// `ranks=N,images_per_s=X` as a flag, a table in a file.
pub(crate) const ANCHOR: Form<Anchor> =
    Form { text: |text| text.parse(), entry: anchor, style: Style::One, is_number: false };

impl FromStr for Anchor {
    type Err = String;

    /// Reads `ranks=1,images_per_s=219` and `ranks=8,batch_per_rank=32,images_per_s=1500`.
    fn from_str(text: &str) -> Result<Anchor, String> {
        let cure = || format!("{text:?}: write it like ranks=1,images_per_s=219");
        let mut anchor = Anchor { ranks: 1, batch_per_rank: None, images_per_s: 0.0 };
        let mut given = BTreeSet::new();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(cure)?;
            if !given.insert(key.trim()) {
                return Err(format!("{text:?}: {} is given twice: give it once", key.trim()));
            }
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

/// Published figures, to compare with.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Author and place.
    pub source: String,
    /// The figures.
    pub points: Vec<PublishedPoint>,
}

/// One published figure.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedPoint {
    /// Number of ranks.
    pub ranks: u32,
    /// Of this batch; `None`: of any.
    pub batch_per_rank: Option<u32>,
    /// Of this algorithm; `None`: of any.
    pub algorithm: Option<Algorithm>,
    /// Samples per second over all ranks.
    pub images_per_s: f64,
}

/// Reads `[anchor]`.
fn anchor(entry: &Entry<'_>) -> Result<Anchor, InputError> {
    let section = entry.section("[anchor]", &["ranks", "batch_per_rank", "images_per_s"])?;
    let images = section.need("images_per_s", "219.0")?;
    let images_per_s = images.number(0.0)?;
    if images_per_s == 0.0 {
        return Err(images.error("images_per_s must be more than 0"));
    }
    Ok(Anchor {
        ranks: section.get("ranks").map_or(Ok(1), |entry| entry.count())?,
        batch_per_rank: section.get("batch_per_rank").map(|entry| entry.count()).transpose()?,
        images_per_s,
    })
}

/// Reads `[published]`.
pub(crate) fn published(entry: &Entry<'_>) -> Result<Published, InputError> {
    let section = entry.section("[published]", &["source", "points"])?;
    let source = section.need("source", "\"Goyal et al. 2017, Table 1\"")?.text()?.to_owned();
    let mut points = Vec::new();
    for item in section.need("points", "[{ ranks = 8, images_per_s = 1500.0 }]")?.items()? {
        let keys = ["ranks", "batch_per_rank", "algorithm", "images_per_s"];
        let point = item.section("a published point", &keys)?;
        points.push(PublishedPoint {
            ranks: point.need("ranks", "8")?.count()?,
            batch_per_rank: point.get("batch_per_rank").map(|entry| entry.count()).transpose()?,
            algorithm: point.get("algorithm").map(|entry| entry.read(str::parse)).transpose()?,
            images_per_s: point.need("images_per_s", "1500.0")?.number(f64::MIN_POSITIVE)?,
        });
    }
    Ok(Published { source, points })
}
