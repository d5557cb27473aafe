//! `Protocol`: computes the cost of a message on a link beyond its bytes at the line rate, by the stack that carries
//! it.
//!
//! Every kind of link has a stack and every stack its defaults; a cluster file overrides single figures.
//! `docs/fabrics.md` has an example of each and names the sources.

use super::{LinkKind, Origin, Provenance};
use crate::{Bandwidth, Bytes, Time};
use std::sync::Arc;

/// The stack of headers and software that carries messages over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stack {
    /// Nothing but latency and line rate: the links of closed forms.
    Plain,
    /// TCP over IPv4 over Ethernet.
    Tcp,
    /// RDMA over converged Ethernet, version 2.
    Roce,
    /// AWS Elastic Fabric Adapter: scalable reliable datagrams.
    Efa,
    /// InfiniBand verbs.
    InfiniBand,
    /// Cray Gemini.
    Gemini,
    /// NVLink.
    NvLink,
    /// Links of a host's CPU interconnect.
    Pcie,
    /// The interconnect between the sockets of a host.
    HostBridge,
    /// Memory of a host or a GPU.
    Memory,
    /// Figures measured for a message from one GPU's memory to another's.
    Peer,
}

/// How a message beyond the eager size finds its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Rendezvous {
    /// No handshake: the sender learns at once that the receive is posted.
    #[default]
    None,
    /// The sender announces, the receiver fetches by RDMA read.
    Read,
    /// The sender announces, the receiver answers, the sender writes.
    Write,
    /// As `Write`, over one connection for both directions: an answer queues behind data of its direction. Pieces of
    /// [`PIECE`] that are eager need no handshake.
    Stream,
}

/// The pieces in which lockstep's own algorithms send over a [`Rendezvous::Stream`]; a library sends messages whole.
pub const PIECE: Bytes = Bytes(512 << 10);

/// Room for a library's headers beside a piece.
const HEADERS: u64 = 4 << 10;

/// A receiver's port that more than a number of senders reach at once: switch buffers overflow and retransmissions take
/// up the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Incast {
    /// Senders at once that the port serves at full rate.
    pub senders: u32,
    /// Share of the rate that is left when there are more.
    pub goodput: f64,
}

/// A token bucket: after a pause, a link passes some bytes faster than its bandwidth. In t seconds these are at most
/// min(M + p t, b + r t) with r its bandwidth (RFC 2215, section 3.6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Payload that may pass at the peak rate beyond what the bandwidth passes, b.
    pub bytes: Bytes,
    /// The peak rate over the bandwidth, p / r: above 1.
    pub peak: f64,
    /// Payload that may pass at once, M.
    pub at_once: Bytes,
}

/// The cost of a message on a link besides its bytes at the line rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocol {
    /// The stack whose defaults it started from.
    pub stack: Stack,
    /// Share of the line rate that is payload, above 0 and at most 1: what headers, checks and gaps leave.
    pub efficiency: f64,
    /// The time that each message keeps the sender's NIC and driver busy; other messages through the port queue behind.
    pub send_overhead: Time,
    /// The time that each message keeps the receiver's thread busy.
    pub receive_overhead: Time,
    /// Messages up to this size leave before their receive is posted.
    pub eager: Bytes,
    /// How larger ones find their receiver.
    pub rendezvous: Rendezvous,
    /// The longest wait in the sender's transmit queue. Messages that take the port at most this long leave one after the
    /// other, whatever their receivers; longer ones share it. Zero: all share it.
    pub transmit_queue: Time,
    /// Bytes that one connection may have unacknowledged: its rate is at most this per round trip.
    pub window: Option<Bytes>,
    /// The initial window of a connection; it grows by what is acknowledged, so it doubles each round trip.
    pub slow_start: Option<Bytes>,
    /// Payload that one core of a host sends or receives, per second: the processor's time for the stack. `None`: none
    /// beside the overheads.
    pub core_bandwidth: Option<Bandwidth>,
    /// What passes faster after a pause.
    pub burst: Option<Burst>,
    /// The effect of many senders on one receiver's port.
    pub incast: Option<Incast>,
    /// The most that one copy between a CPU and a GPU of its host gets from pageable memory.
    pub pageable: Option<Bandwidth>,
    /// The most that one transfer gets that passes between a GPU and another GPU or a NIC, not through host memory.
    pub peer: Option<Bandwidth>,
    /// The source of these figures.
    pub provenance: Arc<Provenance>,
}

/// A size that no message has: all are eager.
pub(super) const UNLIMITED: Bytes = Bytes(u64::MAX);

impl Stack {
    /// The stack of a link of this kind unless its file names another.
    pub fn of(kind: LinkKind) -> Stack {
        match kind {
            LinkKind::Ethernet => Stack::Tcp,
            LinkKind::InfiniBand => Stack::InfiniBand,
            LinkKind::Gemini => Stack::Gemini,
            LinkKind::NvLink => Stack::NvLink,
            LinkKind::Pcie => Stack::Pcie,
            LinkKind::HostBridge => Stack::HostBridge,
            LinkKind::SharedMemory | LinkKind::HostMemory | LinkKind::DeviceMemory => Stack::Memory,
            LinkKind::Peer => Stack::Peer,
        }
    }

    /// Bytes on the wire around each packet that no `mtu` counts, and bytes inside the `mtu` that are no payload.
    fn framing(self) -> (u64, u64) {
        match self {
            Stack::Plain | Stack::Memory | Stack::Peer => (0, 0),
            // Preamble 8, header 14, check 4, gap 12; IPv4 20, TCP 20, its timestamps 12.
            Stack::Tcp => (38, 52),
            // The same around IPv4 20, UDP 8, base transport header 12, check 4; the MTU is the payload's.
            Stack::Roce => (38 + 44, 0),
            // As RoCE (assumed).
            Stack::Efa => (38 + 44, 0),
            // Local route header 8, base transport header 12, checks 4 and 2 (InfiniBand Architecture 1.3, chapter 9).
            Stack::InfiniBand => (26, 0),
            // Header and end of a packet and the check of its data: 32 phits of 3 bytes for 64 bytes (assumed).
            Stack::Gemini => (32, 0),
            // One flit of 16 bytes before the data's (assumed).
            Stack::NvLink => (16, 0),
            // Start and sequence 4, header with a 64-bit address 16, check 4 (PCI Express Base 3.0, chapter 4).
            Stack::Pcie => (24, 0),
            // A header flit of 8 bytes before the eight of a cache line (assumed).
            Stack::HostBridge => (8, 0),
        }
    }

    /// Bytes of a full packet: of Ethernet's payload, IP headers included, for TCP, and of the message's
    /// for the others.
    fn mtu(self) -> Option<u64> {
        match self {
            Stack::Plain | Stack::Memory | Stack::Peer => None,
            Stack::Tcp => Some(1_500),
            Stack::Roce | Stack::InfiniBand => Some(4_096),
            // Below EC2's jumbo frame of 9,001 bytes (assumed).
            Stack::Efa => Some(8_928),
            Stack::Gemini | Stack::HostBridge => Some(64),
            Stack::NvLink | Stack::Pcie => Some(256),
        }
    }

    /// Share of the line rate that is payload in packets of `mtu`; `None` where no payload is left.
    pub(super) fn efficiency(self, mtu: u64) -> Option<f64> {
        let (around, inside) = self.framing();
        let payload = mtu.checked_sub(inside).filter(|payload| *payload > 0)?;
        Some(payload as f64 / (mtu + around) as f64)
    }

    /// The stack's figures.
    ///
    /// ```
    /// # use lockstep_topology::cluster::Stack;
    /// assert_eq!(Stack::Tcp.defaults().efficiency, 1448.0 / 1538.0); // 94.1 %
    /// assert_eq!(Stack::Pcie.defaults().efficiency, 256.0 / 280.0); // 91.4 %
    /// ```
    pub fn defaults(self) -> Protocol {
        let (send, receive, eager, rendezvous, window, source) = match self {
            Stack::Plain => (0, 0, UNLIMITED, Rendezvous::None, None, "nothing but latency and line rate"),
            Stack::Peer => (0, 0, UNLIMITED, Rendezvous::None, None, "in the latency that was measured"),
            Stack::Tcp => {
                let source = "a system call a message; the eager size is a piece, as exec sets Open MPI \
                              (btl_tcp_eager_limit); the window is Linux's default (tcp_wmem)";
                (1_000, 1_000, Bytes(PIECE.0 + HEADERS), Rendezvous::Stream, Some(Bytes(4 << 20)), source)
            }
            Stack::Roce | Stack::InfiniBand => {
                let source = "a doorbell and a completion a message; eager size is Open MPI's default \
                              (btl_openib_eager_limit)";
                (200, 200, Bytes(12 << 10), Rendezvous::Read, None, source)
            }
            Stack::Efa => {
                let source = "a descriptor and a completion a message; eager size as InfiniBand's";
                (500, 500, Bytes(12 << 10), Rendezvous::Read, None, source)
            }
            Stack::Gemini => {
                let source = "a descriptor and a completion a message; eager size is Cray MPICH's default \
                              (MPICH_GNI_MAX_EAGER_MSG_SIZE)";
                (300, 300, Bytes(8 << 10), Rendezvous::Read, None, source)
            }
            Stack::NvLink | Stack::Pcie | Stack::HostBridge => {
                let source = "a flag and a fence a message; eager size is a slot of NCCL's default (NCCL_BUFFSIZE / 8)";
                (500, 1_000, Bytes(512 << 10), Rendezvous::None, None, source)
            }
            Stack::Memory => (0, 1_000, UNLIMITED, Rendezvous::None, None, "a flag a message"),
        };
        Protocol {
            stack: self,
            efficiency: self.mtu().and_then(|mtu| self.efficiency(mtu)).unwrap_or(1.0),
            send_overhead: Time::from_nanos(send),
            receive_overhead: Time::from_nanos(receive),
            eager,
            rendezvous,
            transmit_queue: Time::ZERO,
            window,
            slow_start: None,
            core_bandwidth: None,
            burst: None,
            incast: None,
            pageable: None,
            peer: None,
            provenance: Arc::new(Origin::Assumed.with(source)),
        }
    }
}

impl Protocol {
    /// The cost of a message that goes through `self` and then through `other`: the more expensive of the two in
    /// each respect.
    ///
    /// Efficiencies, queues, bursts, incast and copies belong to single links, and are `self`'s here.
    pub(super) fn and(&self, other: &Protocol) -> Protocol {
        let fewer = |a: Option<Bytes>, b: Option<Bytes>| a.into_iter().chain(b).min();
        let slower = |a: &Bandwidth, b: &Bandwidth| a.bytes_per_s().total_cmp(&b.bytes_per_s());
        Protocol {
            send_overhead: self.send_overhead.max(other.send_overhead),
            receive_overhead: self.receive_overhead.max(other.receive_overhead),
            eager: self.eager.min(other.eager),
            rendezvous: self.rendezvous.max(other.rendezvous),
            window: fewer(self.window, other.window),
            slow_start: fewer(self.slow_start, other.slow_start),
            core_bandwidth: self.core_bandwidth.into_iter().chain(other.core_bandwidth).min_by(slower),
            ..self.clone()
        }
    }
}

crate::named!(Stack, "protocol":
    Plain = "plain", Tcp = "tcp", Roce = "roce", Efa = "efa", InfiniBand = "infiniband", Gemini = "gemini", NvLink = "nvlink", Pcie = "pcie",
    HostBridge = "host-bridge", Memory = "memory"; Peer = "peer");

crate::named!(Rendezvous, "rendezvous": None = "none", Read = "read", Write = "write", Stream = "stream");
