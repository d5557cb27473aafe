//! Names labs, and the network namespaces that belong to one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The prefix of the names of all labs' namespaces.
const PREFIX: &str = "lockstep.";
/// Characters of a name at most.
const LONGEST: usize = 16;

/// The name of a lab: lower-case letters, digits and `-`, at most 16, no `-` in front.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabName(String);

impl LabName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace that holds the lab's switches.
    pub fn switches(&self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// The namespace of this host; names of hosts have no dot, so that no two namespaces have one name.
    pub fn host(&self, host: &str) -> String {
        format!("{PREFIX}{}.{host}", self.0)
    }

    /// The lab that a namespace of this name belongs to, if it belongs to one.
    pub fn of_namespace(namespace: &str) -> Option<LabName> {
        namespace.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LabName {
    type Err = String;

    fn from_str(text: &str) -> Result<LabName, String> {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.is_empty() || text.len() > LONGEST || text.starts_with('-') || !text.chars().all(known) {
            return Err(format!(
                "{text:?} names no lab: write at most {LONGEST} lower-case letters, digits and - (not in front), as in lab0"
            ));
        }
        Ok(LabName(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_identifies_its_lab_only() {
        let lab: LabName = "lab-0".parse().unwrap();
        assert_eq!(LabName::of_namespace(&lab.switches()), Some(lab.clone()));
        assert_eq!(LabName::of_namespace(&lab.host("node_1-a")), Some(lab.clone()));
        assert_ne!(LabName::of_namespace("lockstep.lab-01.node0"), Some(lab));
        assert_eq!(LabName::of_namespace("docker0"), None);
    }

    #[test]
    fn a_name_that_is_a_path_or_a_flag_is_refused() {
        for text in ["", "-a", "..", "a/b", "a.b", "Lab", "a b", "é", "a12345678901234567"] {
            assert!(text.parse::<LabName>().is_err(), "{text}");
        }
    }
}
