//! `Provenance`: where a figure comes from, kept beside every parameter so that a prediction can name what it rests on.

use std::fmt;
use std::str::FromStr;

/// The source of a figure, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// Measured: by which command, when.
    Measured(String),
    /// A maker's data sheet: which.
    Datasheet(String),
    /// A paper: which.
    Paper(String),
    /// Fitted: to what.
    Fitted(String),
    /// Nobody's figure but ours; the reason may be empty.
    Assumed(String),
}

impl Provenance {
    /// The kind alone: `measured`, `datasheet`, `paper`, `fitted` or `assumed`.
    pub fn kind(&self) -> &'static str {
        match self {
            Provenance::Measured(_) => "measured",
            Provenance::Datasheet(_) => "datasheet",
            Provenance::Paper(_) => "paper",
            Provenance::Fitted(_) => "fitted",
            Provenance::Assumed(_) => "assumed",
        }
    }

    /// The same kind with other evidence.
    pub(super) fn with_evidence(&self, evidence: String) -> Provenance {
        match self {
            Provenance::Measured(_) => Provenance::Measured(evidence),
            Provenance::Datasheet(_) => Provenance::Datasheet(evidence),
            Provenance::Paper(_) => Provenance::Paper(evidence),
            Provenance::Fitted(_) => Provenance::Fitted(evidence),
            Provenance::Assumed(_) => Provenance::Assumed(evidence),
        }
    }

    /// Which sheet, paper, command or reason.
    pub fn evidence(&self) -> &str {
        match self {
            Provenance::Measured(text)
            | Provenance::Datasheet(text)
            | Provenance::Paper(text)
            | Provenance::Fitted(text)
            | Provenance::Assumed(text) => text,
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.evidence() {
            "" => f.write_str(self.kind()),
            evidence => write!(f, "{}: {evidence}", self.kind()),
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
    /// assert_eq!(source.kind(), "paper");
    /// assert_eq!(source.to_string(), "paper: Goyal et al. 2017, Section 4");
    /// ```
    fn from_str(text: &str) -> Result<Provenance, String> {
        let (kind, evidence) = text.split_once(':').unwrap_or((text, ""));
        let evidence = evidence.trim().to_string();
        let source = match kind.trim() {
            "measured" => Provenance::Measured(evidence),
            "datasheet" => Provenance::Datasheet(evidence),
            "paper" => Provenance::Paper(evidence),
            "fitted" => Provenance::Fitted(evidence),
            "assumed" => return Ok(Provenance::Assumed(evidence)),
            _ => return Err("must start with measured:, datasheet:, paper:, fitted: or assumed".into()),
        };
        if source.evidence().is_empty() {
            return Err(format!("must say which, e.g. \"{}: NAME\"", source.kind()));
        }
        Ok(source)
    }
}
