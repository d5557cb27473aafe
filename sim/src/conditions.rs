//! `Conditions`: states disturbances of a run, apart from program and platform, so that the same job can be predicted
//! with and without them.

use lockstep_models::{Input, Jitter};
use lockstep_topology::Time;
use lockstep_topology::cluster::{DeviceId, HostId};

/// What disturbs a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// Stated noise.
    pub noise: Jitter,
    /// The number of this run among several with one seed; another number draws all noise again.
    pub trial: u32,
    /// Slowdowns.
    pub slow: Vec<Slowdown>,
    /// Other traffic on the links.
    pub background: Vec<Background>,
    /// How samples reach the devices; without it they are in memory, and a load takes its cost.
    pub input: Option<Input>,
}

/// Ranks whose work takes longer: all that their threads, or their GPUs, compute, copy and add.
#[derive(Debug, Clone, PartialEq)]
pub struct Slowdown {
    /// All ranks on these hosts.
    pub hosts: Vec<HostId>,
    /// And these.
    pub ranks: Vec<u32>,
    /// How many times longer; factors of several slowdowns multiply.
    pub factor: f64,
    /// Start in the run; work in progress slows down from there.
    pub from: Time,
    /// End; [`Time::MAX`]: never.
    pub until: Time,
}

/// Bytes from one device to another that belong to no rank. They share links with messages, max-min fair, and have
/// neither latency nor handshake.
#[derive(Debug, Clone, PartialEq)]
pub struct Background {
    /// The sender.
    pub from: DeviceId,
    /// The receiver.
    pub to: DeviceId,
    /// The amount.
    pub load: Load,
}

/// The size of background traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// At most this many bytes per second, all the time.
    Always(f64),
    /// The same while some rank computes a forward pass.
    Forward(f64),
    /// This many bytes when the first rank begins an iteration, after those of the iteration before.
    PerIteration(u64),
}

/// No disturbance, as a value to refer to.
static UNDISTURBED: Conditions = Conditions {
    noise: Jitter { seed: 0, kernel: None, step: None, rank: None, latency: None, bandwidth: None },
    trial: 0,
    slow: Vec::new(),
    background: Vec::new(),
    input: None,
};

impl Conditions {
    /// No disturbances.
    pub fn none() -> &'static Conditions {
        &UNDISTURBED
    }

    /// Whether otherwise equal ranks are equal under them.
    pub fn alike(&self) -> bool {
        self.apart().is_none()
    }

    /// Why otherwise equal ranks differ under them; `None` where they do not.
    pub(crate) fn apart(&self) -> Option<&'static str> {
        let reasons = [
            (!self.noise.is_empty(), "noise differs between ranks"),
            (!self.slow.is_empty(), "some ranks are slow"),
            (!self.background.is_empty(), "other traffic meets some ranks' messages"),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
    }
}
