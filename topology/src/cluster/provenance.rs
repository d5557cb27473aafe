//! `Provenance`: records the source of every figure, so that a prediction can name what it is based on.

use std::fmt;
use std::str::FromStr;

/// The source of a figure, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Provenance {
    /// What sort of source it is.
    pub kind: Origin,
    /// Which sheet, paper or command, or the reason; an assumption needs none.
    pub evidence: String,
}

/// A sort of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Measured: by which command, when.
    Measured,
    /// A maker's data sheet: which.
    Datasheet,
    /// A paper: which.
    Paper,
    /// Fitted: to what.
    Fitted,
    /// An assumption of this project; the reason may be empty.
    Assumed,
}

crate::named!(Origin, "sort of source":
    Measured = "measured", Datasheet = "datasheet", Paper = "paper", Fitted = "fitted", Assumed = "assumed");

impl Origin {
    /// A figure's source of this sort.
    pub fn with(self, evidence: impl Into<String>) -> Provenance {
        Provenance { kind: self, evidence: evidence.into() }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.evidence.as_str() {
            "" => self.kind.fmt(f),
            evidence => write!(f, "{}: {evidence}", self.kind),
        }
    }
}

impl FromStr for Provenance {
    type Err = String;

    /// Reads `datasheet: WHICH`, `measured: BY WHAT, WHEN`, `paper: WHICH`, `fitted: TO WHAT`, `assumed` or
    /// `assumed: WHY`.
    ///
    /// ```
    /// # use lockstep_topology::cluster::Provenance;
    /// let source: Provenance = "paper: Goyal et al. 2017, Section 4".parse().unwrap();
    /// assert_eq!(source.kind.name(), "paper");
    /// assert_eq!(source.to_string(), "paper: Goyal et al. 2017, Section 4");
    /// ```
    fn from_str(text: &str) -> Result<Provenance, String> {
        let (kind, evidence) = text.split_once(':').unwrap_or((text, ""));
        let kind: Origin = (kind.trim().parse())
            .map_err(|_| "must start with measured:, datasheet:, paper:, fitted: or assumed".to_owned())?;
        let evidence = evidence.trim();
        if evidence.is_empty() && kind != Origin::Assumed {
            return Err(format!("must say which, e.g. \"{kind}: NAME\""));
        }
        Ok(kind.with(evidence))
    }
}
