//! Faults on purpose, for the tests of how a job ends that has one.

use std::str::FromStr;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The rank panics.
    Panic,
    /// An operation of the rank never returns.
    Hang,
    /// The rank leaves out its first exchange.
    Skip,
    /// The rank does its first two exchanges in each other's place.
    Order,
    /// The rank's process ends without a word.
    Kill,
    /// The rank's process stops and does not end.
    Stop,
}

/// Names of faults.
const KINDS: [(&str, Kind); 6] = [
    ("panic", Kind::Panic),
    ("hang", Kind::Hang),
    ("skip", Kind::Skip),
    ("order", Kind::Order),
    ("kill", Kind::Kill),
    ("stop", Kind::Stop),
];

/// A fault on one rank in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InjectedFault {
    /// What.
    pub kind: Kind,
    /// Where.
    pub rank: u32,
    /// When, in steps since training began.
    pub step: u64,
}

impl FromStr for InjectedFault {
    type Err = String;

    /// Reads `hang:1@3`: in step 3 (from 0) rank 1 does not return.
    fn from_str(text: &str) -> Result<InjectedFault, String> {
        let cure = || format!("{text:?}: write KIND:RANK@STEP, with KIND panic, hang, skip, order, kill or stop");
        let (kind, place) = text.split_once(':').ok_or_else(cure)?;
        let (rank, step) = place.split_once('@').ok_or_else(cure)?;
        let (_, kind) = KINDS.iter().find(|(name, _)| *name == kind).ok_or_else(cure)?;
        Ok(InjectedFault {
            kind: *kind,
            rank: rank.parse().map_err(|_| cure())?,
            step: step.parse().map_err(|_| cure())?,
        })
    }
}

impl InjectedFault {
    /// Whether it strikes this rank in this step.
    pub(crate) fn strikes(&self, rank: u32, step: u64) -> bool {
        (self.rank, self.step) == (rank, step)
    }

    /// What it does in the middle of an operation; nothing if it is about exchanges.
    pub(crate) fn strike(&self) {
        let signal = |name: &str| {
            // The command's own failure would leave a run without its fault, which its test notices.
            let _ = std::process::Command::new("kill").args([name, &std::process::id().to_string()]).status();
        };
        match self.kind {
            Kind::Panic => panic!("a fault on purpose"),
            Kind::Hang => loop {
                std::thread::park();
            },
            Kind::Kill => signal("-KILL"),
            Kind::Stop => signal("-STOP"),
            Kind::Skip | Kind::Order => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        assert_eq!("hang:1@30".parse(), Ok(InjectedFault { kind: Kind::Hang, rank: 1, step: 30 }));
        for text in ["", "hang", "hang:1", "fire:1@2", "hang:-1@2", "hang:1@"] {
            assert!(text.parse::<InjectedFault>().unwrap_err().contains("KIND:RANK@STEP"), "{text}");
        }
    }
}
