//! Names NCCL's algorithms and protocols, as in its variables `NCCL_ALGO` and `NCCL_PROTO`.

/// How NCCL moves a buffer among GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Two complementary binary trees between nodes, a chain inside of each: reduce up, broadcast down.
    Tree,
    /// A ring through all GPUs; one way along it for broadcast and reduce.
    Ring,
    /// The switch of one NVLink domain sums and multicasts.
    Nvls,
    /// The same in each node, and double trees between nodes.
    NvlsTree,
    /// A binomial tree for each part of an allgather or reduce-scatter, all at once: one GPU a node.
    Pat,
    /// Rounds of sends and receives between pairs: alltoall.
    Pairs,
}

crate::named!(Method, "algorithm of NCCL": Tree = "tree", Ring = "ring", Nvls = "nvls", NvlsTree = "nvls-tree", Pat = "pat"; Pairs = "pairs");

impl Method {
    /// Its name in NCCL's own log.
    pub(super) fn title(self) -> &'static str {
        match self {
            Method::Tree => "Tree",
            Method::Ring => "Ring",
            Method::Nvls => "NVLS",
            Method::NvlsTree => "NVLSTree",
            Method::Pat => "PAT",
            Method::Pairs => "SendRecv",
        }
    }
}

/// How a channel's messages are synchronised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NcclProtocol {
    /// 4 bytes of data with 4 of flag.
    Ll,
    /// 120 bytes of data in 128.
    Ll128,
    /// By chunk: the full bandwidth, the longest step.
    Simple,
}

crate::named!(NcclProtocol, "protocol of NCCL": Ll = "ll", Ll128 = "ll128", Simple = "simple");

impl NcclProtocol {
    /// Its name in NCCL's own log.
    pub(super) fn title(self) -> &'static str {
        match self {
            NcclProtocol::Ll => "LL",
            NcclProtocol::Ll128 => "LL128",
            NcclProtocol::Simple => "Simple",
        }
    }
}
