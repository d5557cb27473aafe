//! What links are made of, and whether both directions share a wire.

use std::fmt;
use std::str::FromStr;

/// What a wire is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// Ethernet, NIC to switch or NIC to NIC.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
    /// NVLink, GPU to GPU, CPU or NVSwitch.
    NvLink,
    /// PCI Express.
    Pcie,
    /// What joins the sockets of a host: QPI, UPI, HyperTransport, xGMI, X-bus.
    HostBridge,
    /// Cray Gemini, NIC to router or router to router.
    Gemini,
    /// The passing of one message between ranks of a host.
    SharedMemory,
    /// Reading and writing a host's memory.
    HostMemory,
    /// Reading and writing a GPU's own memory.
    DeviceMemory,
    /// From one GPU's memory to another's, over whatever joins them, as it was measured.
    Peer,
}

impl LinkKind {
    /// Kinds that a cluster file may name.
    pub const ALL: [LinkKind; 8] = [
        LinkKind::Ethernet,
        LinkKind::InfiniBand,
        LinkKind::NvLink,
        LinkKind::Pcie,
        LinkKind::HostBridge,
        LinkKind::Gemini,
        LinkKind::SharedMemory,
        LinkKind::HostMemory,
    ];

    /// As the cluster file writes it.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Ethernet => "ethernet",
            LinkKind::InfiniBand => "infiniband",
            LinkKind::NvLink => "nvlink",
            LinkKind::Pcie => "pcie",
            LinkKind::HostBridge => "host-bridge",
            LinkKind::Gemini => "gemini",
            LinkKind::SharedMemory => "shared-memory",
            LinkKind::HostMemory => "host-memory",
            LinkKind::DeviceMemory => "device-memory",
            LinkKind::Peer => "peer",
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LinkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkKind, String> {
        let known = LinkKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("is no kind of link; there are {}", LinkKind::ALL.map(LinkKind::name).join(", ")))
    }
}

/// Whether a wire carries both directions at full speed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Duplex {
    /// Each direction has the bandwidth for itself.
    #[default]
    Full,
    /// The directions share it.
    Half,
}

impl FromStr for Duplex {
    type Err = String;

    fn from_str(text: &str) -> Result<Duplex, String> {
        match text {
            "full" => Ok(Duplex::Full),
            "half" => Ok(Duplex::Half),
            _ => Err("must be \"full\" or \"half\"".into()),
        }
    }
}
