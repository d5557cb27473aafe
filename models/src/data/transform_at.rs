//! `TransformAt`: selects the side that crops, flips and normalises decoded samples.

use std::fmt;
use std::str::FromStr;

/// Where decoded samples are transformed (Koliousis et al. 2019, §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransformAt {
    /// The threads that decode.
    #[default]
    Host,
    /// The device, when it loads a batch.
    Device,
    /// The threads, until a device has waited for them; from then on the device.
    WhenLate,
}

impl TransformAt {
    const ALL: [(TransformAt, &str); 3] =
        [(TransformAt::Host, "host"), (TransformAt::Device, "device"), (TransformAt::WhenLate, "when-late")];
}

impl FromStr for TransformAt {
    type Err = String;

    fn from_str(text: &str) -> Result<TransformAt, String> {
        let known = TransformAt::ALL.iter().find(|(_, name)| *name == text);
        known.map(|(at, _)| *at).ok_or_else(|| format!("{text:?} is no such place: write host, device or when-late"))
    }
}

impl fmt::Display for TransformAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = TransformAt::ALL.iter().find(|(at, _)| at == self).expect("all are listed");
        f.write_str(name)
    }
}
