//! Figures of a profile that could not be measured undisturbed: their names, and the note about them.

use super::{ComputeEntry, Profile};

/// Name of the disturbed figure: messages between ranks of a process.
pub const THREAD_MESSAGES: &str = "messages between threads";
/// The same for messages between processes.
pub const PROCESS_MESSAGES: &str = "messages between processes";
/// Name of the disturbed figures: all slowdowns, since the cores together were no faster than one.
pub const CONTENTION: &str = "slowdown when all cores work";

/// Figures that notes name.
const NAMED: usize = 3;

/// As [`Profile::disturbed_note`], of figures by name.
///
/// ```
/// # use lockstep_models::profile::disturbed_note;
/// assert_eq!(disturbed_note(&[]), None);
/// let names = ["a", "b", "c", "d"].map(str::to_owned);
/// let note = disturbed_note(&names).unwrap();
/// assert!(note.starts_with("4 figures could not be measured undisturbed (a, b, c, …)"), "{note}");
/// ```
pub fn disturbed_note(names: &[String]) -> Option<String> {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let (count, named) = (names.len(), names[..names.len().min(NAMED)].join(", "));
    let figures = if count == 1 { "figure" } else { "figures" };
    (count > 0).then(|| {
        format!(
            "{count} {figures} could not be measured undisturbed ({named}{more}): other programs used this machine; quiet it \
             and run this again, which measures them again"
        )
    })
}

impl ComputeEntry {
    /// `forward dense 784>10 bias at 16 samples`: names the figure.
    pub fn name(chain: &str, phase: &str, samples: u32) -> String {
        format!("{phase} {chain} at {samples} samples")
    }
}

impl Profile {
    /// Lists a figure as disturbed, or no longer.
    pub fn set_disturbed(&mut self, name: &str, is_disturbed: bool) {
        self.disturbed.retain(|known| known != name);
        if is_disturbed {
            self.disturbed.push(name.to_owned());
        }
    }

    /// Which figures could not be measured undisturbed, and the cure; `None` if all could.
    pub fn disturbed_note(&self) -> Option<String> {
        disturbed_note(&self.disturbed)
    }
}
