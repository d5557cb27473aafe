//! Defines the kinds of links, and whether both directions of each share a wire.

/// The kind of a wire.
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
    /// The interconnect between the sockets of a host: QPI, UPI, HyperTransport, xGMI, X-bus.
    HostBridge,
    /// Cray Gemini, NIC to router or router to router.
    Gemini,
    /// The passing of one message between ranks of a host.
    SharedMemory,
    /// Reading and writing a host's memory.
    HostMemory,
    /// Reading and writing a GPU's own memory.
    DeviceMemory,
    /// From one GPU's memory to another's, over any links, as it was measured.
    Peer,
}

crate::named!(LinkKind, "kind of link":
    Ethernet = "ethernet", InfiniBand = "infiniband", NvLink = "nvlink", Pcie = "pcie", HostBridge = "host-bridge", Gemini = "gemini",
    SharedMemory = "shared-memory", HostMemory = "host-memory"; DeviceMemory = "device-memory", Peer = "peer");

/// Whether a wire carries both directions at full speed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Duplex {
    /// Each direction has the bandwidth for itself.
    #[default]
    Full,
    /// The directions share it.
    Half,
}

crate::named!(Duplex, "duplex": Full = "full", Half = "half");
