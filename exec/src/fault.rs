//! Injects faults, for tests of how a faulty job ends.

use std::str::FromStr;

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The rank panics.
    Panic,
    /// An operation of the rank never returns.
    Hang,
    /// The rank skips its first exchange.
    Skip,
    /// The rank swaps its first two exchanges.
    Order,
    /// The rank's process is killed.
    Kill,
    /// The rank's process is stopped and does not end.
    Stop,
}

/// Names of faults.
const KINDS: [(&str, FaultKind); 6] = [
    ("panic", FaultKind::Panic),
    ("hang", FaultKind::Hang),
    ("skip", FaultKind::Skip),
    ("order", FaultKind::Order),
    ("kill", FaultKind::Kill),
    ("stop", FaultKind::Stop),
];

/// A fault on one rank in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InjectedFault {
    /// The kind.
    pub kind: FaultKind,
    /// The rank.
    pub rank: u32,
    /// The step, counted from the start of training.
    pub step: u64,
}

impl FromStr for InjectedFault {
    type Err = String;

    /// Reads `hang:1@3`: in step 3 (from 0) rank 1 hangs.
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
    /// Whether it applies to this rank in this step.
    pub(crate) fn strikes(&self, rank: u32, step: u64) -> bool {
        (self.rank, self.step) == (rank, step)
    }

    /// Triggers the fault in the middle of an operation; does nothing if the fault is about exchanges.
    pub(crate) fn strike(&self) {
        let signal = |name: &str| {
            let command = format!("kill {name} {}", std::process::id());
            // If the command fails, no fault is injected, which the test notices.
            let _ = std::process::Command::new("/bin/sh").args(["-c", &command]).status();
        };
        match self.kind {
            FaultKind::Panic => panic!("a fault on purpose"),
            FaultKind::Hang => loop {
                std::thread::park();
            },
            FaultKind::Kill => signal("-KILL"),
            FaultKind::Stop => signal("-STOP"),
            FaultKind::Skip | FaultKind::Order => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        assert_eq!("hang:1@30".parse(), Ok(InjectedFault { kind: FaultKind::Hang, rank: 1, step: 30 }));
        for text in ["", "hang", "hang:1", "fire:1@2", "hang:-1@2", "hang:1@"] {
            assert!(text.parse::<InjectedFault>().unwrap_err().contains("KIND:RANK@STEP"), "{text}");
        }
    }
}
