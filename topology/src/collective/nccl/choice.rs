//! Implements NCCL's own cost model: the time that it expects for each algorithm and protocol, and the shortest of
//! them.
//!
//! Source: NVIDIA/nccl, `src/graph/tuning.cc` (`ncclTopoTuneModel`, `ncclTopoGetAlgoTime`). Microseconds and GB/s.

use std::fmt;

use super::constants::{self as figures, Hop};
use super::search::{SearchResult, search};
use super::{Generation, Method, NcclCall, NcclMachine, NcclProtocol, Network, Request};
use crate::{Collective, InputError};

/// NCCL's choice for a call; shown as `Tree/LL128, 16 channels`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NcclChoice {
    /// How the buffer moves.
    pub method: Method,
    /// How messages are synchronised.
    pub protocol: NcclProtocol,
    /// Channels that run.
    pub channels: u32,
    /// Bytes of the buffer per nanosecond that the model expects, which are GB/s; infinite for pairs.
    pub(super) rate: f64,
}

impl fmt::Display for NcclChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.channels == 1 { "" } else { "s" };
        write!(f, "{}/{}, {} channel{plural}", self.method.title(), self.protocol.title(), self.channels)
    }
}

/// NCCL's choice for a call.
///
/// # Errors
/// A request that the machine or the collective does not serve.
pub(super) fn choose(machine: &NcclMachine, request: &Request, call: &NcclCall<'_>) -> Result<NcclChoice, InputError> {
    let found = search(machine);
    if let Collective::AllToAllV { .. } = call.collective {
        if let Some(method) = request.method {
            return Err(refuse(request, format!("alltoall is pairs of sends and receives: leave {method} out")));
        }
        let protocol = request.protocol.unwrap_or(NcclProtocol::Simple);
        let channels = channels(machine, &found, request, (Method::Pairs, protocol), call.bytes)?;
        return Ok(NcclChoice { method: Method::Pairs, protocol, channels, rate: f64::INFINITY });
    }
    let mut best: Option<(f64, Method, NcclProtocol, f64)> = None;
    // Of several reasons, the last: simple is what all of them have.
    let mut reason = None;
    for method in Method::ALL {
        for protocol in NcclProtocol::ALL {
            if request.method.is_some_and(|asked| asked != method)
                || request.protocol.is_some_and(|asked| asked != protocol)
            {
                continue;
            }
            if let Err(refused) = serves(machine, &found, request, call.collective, (method, protocol)) {
                reason = Some(refused);
                continue;
            }
            let expected = expect(machine, &found, request, call, (method, protocol));
            if best.is_none_or(|(least, ..)| expected.microseconds < least) {
                best = Some((expected.microseconds, method, protocol, expected.rate));
            }
        }
    }
    let Some((_, method, protocol, rate)) = best else {
        return Err(refuse(request, reason.unwrap_or_else(|| "nothing is left to choose from".to_owned())));
    };
    let channels = channels(machine, &found, request, (method, protocol), call.bytes)?;
    Ok(NcclChoice { method, protocol, channels, rate })
}

/// An error about the request.
fn refuse(request: &Request, message: String) -> InputError {
    InputError::new("", format!("library:nccl{request}"), message)
}

/// Whether an algorithm with a protocol serves a collective on a machine; else why not, with the cure.
fn serves(
    machine: &NcclMachine,
    found: &SearchResult,
    request: &Request,
    collective: &Collective,
    (method, protocol): (Method, NcclProtocol),
) -> Result<(), String> {
    let nvls = matches!(method, Method::Nvls | Method::NvlsTree);
    let since = if method == Method::Nvls { 17 } else { 18 };
    match method {
        Method::Pat if !matches!(collective, Collective::AllGather | Collective::ReduceScatter) => {
            Err(format!("pat runs allgather and reduce-scatter: leave it out of {}", collective.name()))
        }
        Method::Pat if request.version.minor < 23 => {
            Err(format!("NCCL {} has no pat: use 2.23 or later", request.version))
        }
        Method::Pat if machine.per_node() > 1 => Err("pat is for one GPU a node: use ring".to_owned()),
        Method::Pat if protocol != NcclProtocol::Simple => Err("pat has the protocol simple alone".to_owned()),
        Method::Pat => Ok(()),
        _ if *collective != Collective::AllReduce && method != Method::Ring => {
            Err(format!("{} runs on rings: leave {method} out, or use allreduce", collective.name()))
        }
        _ if nvls && protocol != NcclProtocol::Simple => Err(format!("{method} has the protocol simple alone")),
        _ if nvls && request.version.minor < since => {
            Err(format!("NCCL {} has no {method}: use 2.{since} or later", request.version))
        }
        _ if nvls && found.nvls.is_none() => {
            Err(format!("{method} needs NVSwitch and at least three GPUs of Hopper or later a node: use ring or tree"))
        }
        Method::Nvls if machine.nodes > 1 => {
            Err("nvls alone does not leave a node where no switch of the network sums: use nvls-tree".to_owned())
        }
        Method::NvlsTree if machine.nodes == 1 => Err("nvls-tree is for several nodes: use nvls".to_owned()),
        _ if protocol == NcclProtocol::Ll128 && machine.by_pcie => {
            Err("ll128 needs NVLinks between all GPUs of a node's rings: use ll or simple".to_owned())
        }
        _ if protocol == NcclProtocol::Ll128 && machine.nodes > 1 && machine.network != Network::Rdma => {
            Err("ll128 needs a network that keeps the order of bytes: use ll or simple".to_owned())
        }
        _ if protocol == NcclProtocol::Ll128
            && machine.generation == Generation::Blackwell
            && request.version.minor < 25 =>
        {
            Err(format!("NCCL {} has no ll128 on Blackwell: use 2.25 or later", request.version))
        }
        _ => Ok(()),
    }
}

/// The expectation of the model.
struct Expected {
    microseconds: f64,
    /// GB/s of the buffer.
    rate: f64,
}

/// The model's time for an algorithm and protocol that serve.
fn expect(
    machine: &NcclMachine,
    found: &SearchResult,
    request: &Request,
    call: &NcclCall<'_>,
    (method, protocol): (Method, NcclProtocol),
) -> Expected {
    let (ranks, nodes, local) = (f64::from(machine.ranks), f64::from(machine.nodes), f64::from(machine.per_node()));
    let steps = match call.collective {
        Collective::AllReduce => 2.0 * (ranks - 1.0),
        Collective::ReduceScatter | Collective::AllGather => ranks - 1.0,
        _ => ranks,
    };
    let bus = bus(machine, found, request, call.collective, (method, protocol));
    let rate = if method == Method::Tree {
        bus / 2.0 * figures::tree_correction(protocol, call.bytes)
    } else {
        bus * ranks / steps
    };
    let version = request.version;
    let intra = figures::step(version, machine.hop(), method, protocol);
    let inter = figures::step(version, Hop::Network, method, protocol);
    let levels = f64::from(machine.nodes.ilog2());
    let rooted = matches!(call.collective, Collective::Broadcast { .. } | Collective::Reduce { .. });
    let walk = match method {
        Method::Ring if rooted => {
            if machine.nodes == 1 {
                intra
            } else {
                inter
            }
        }
        Method::Ring => {
            let across = match (machine.nodes, *call.collective == Collective::AllReduce) {
                (1, _) => 0.0,
                (_, true) if version.minor < 23 => 2.0 * nodes,
                (_, true) => 2.0 * (nodes - 1.0),
                (_, false) => nodes - 1.0,
            };
            // Posting to the proxy is a floor under each step.
            let post = if protocol == NcclProtocol::Simple { 3.0 } else { 1.0 };
            let inside = if machine.nodes > 1 { intra.max(post) } else { intra };
            (steps - across).max(0.0) * inside + across * inter
        }
        Method::Tree => 2.0 * ((local - 1.0) * intra + levels * inter),
        Method::Nvls | Method::Pairs => intra,
        Method::NvlsTree => intra + 2.0 * levels * inter,
        Method::Pat => figures::pat_walk(version, machine.nodes),
    };
    let mut latency = figures::base(version, method, protocol) + walk;
    let each = call.bytes / (u64::from(found.channels.count) * u64::from(machine.ranks)).max(1);
    let plateau = method == Method::Ring && protocol == NcclProtocol::Simple && machine.nodes > 1 && each >= 64;
    if plateau && *call.collective == Collective::AllReduce {
        latency *= if machine.generation == Generation::Volta { 1.9 } else { 1.4 };
    }
    Expected { microseconds: latency + call.bytes as f64 / rate * 1e-3, rate }
}

/// Bus bandwidth in GB/s.
fn bus(
    machine: &NcclMachine,
    found: &SearchResult,
    request: &Request,
    collective: &Collective,
    (method, protocol): (Method, NcclProtocol),
) -> f64 {
    let (version, generation, nodes) = (request.version, machine.generation, machine.nodes);
    let (count, total) = (f64::from(found.channels.count), found.channels.total());
    let limit = figures::ll_limit(version, generation, nodes);
    match (method, protocol) {
        (Method::Ring, NcclProtocol::Ll) => {
            let sums = !matches!(collective, Collective::AllGather | Collective::Broadcast { .. });
            let share = match (version.minor >= 21, nodes == 1 && !sums) {
                (true, _) => 0.5,
                (false, true) => 1.0 / 3.0,
                (false, false) => 0.25,
            };
            limit.min(total * share)
        }
        (Method::Ring, NcclProtocol::Ll128) => (total * 0.92).min(count * figures::ring_ll128(generation)),
        (Method::Ring, NcclProtocol::Simple) | (Method::Pairs, _) => total,
        (Method::Pat, _) => total * figures::PAT_SHARE,
        (Method::Tree, protocol) => {
            let most = (total * 0.92).min(count * figures::tree(version, generation, nodes));
            match protocol {
                NcclProtocol::Ll => (most / 3.8).min(limit),
                NcclProtocol::Ll128 => (most * if nodes == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 })
                    .min(count * figures::tree_ll128(version, generation, nodes)),
                NcclProtocol::Simple => most,
            }
        }
        (Method::Nvls | Method::NvlsTree, _) => {
            let heads = found.nvls.map_or(0.0, |nvls| f64::from(nvls.count));
            let of_heads = found.nvls.map_or(0.0, |nvls| nvls.total());
            // A head's own part does not cross the switch; an allreduce goes both ways at once.
            let inside = 2.0 * of_heads * figures::nvls_share(generation) * (1.0 - 1.0 / heads.max(1.0));
            if nodes == 1 {
                return inside;
            }
            // On two nodes each sends its sum once.
            let across = total * if nodes == 2 { 2.0 } else { 1.0 };
            let most = f64::from(found.nvls_run) * figures::nvls_tree(version, generation, nodes);
            inside.min(across).min(most)
        }
    }
}

/// Channels of a call (`src/enqueue.cc`: one fewer while the bytes are fewer than channels × threads × threshold).
///
/// # Errors
/// More channels than the version has.
fn channels(
    machine: &NcclMachine,
    found: &SearchResult,
    request: &Request,
    (method, protocol): (Method, NcclProtocol),
    bytes: u64,
) -> Result<u32, InputError> {
    if let Some(asked) = request.channels {
        let most = if request.version.minor < 25 { 32 } else { super::request::MOST_CHANNELS };
        if asked > most {
            let message = format!("NCCL {} has at most {most} channels: ask for fewer", request.version);
            return Err(InputError::new("", format!("{asked} channels"), message));
        }
        return Ok(asked);
    }
    if matches!(method, Method::Nvls | Method::NvlsTree) {
        return Ok(found.nvls_run);
    }
    if method == Method::Pairs {
        return Ok(found.run);
    }
    let threads: u64 = if protocol == NcclProtocol::Ll128 { 640 } else { 512 };
    let threshold: u64 = match (method, protocol) {
        (_, NcclProtocol::Simple) => 64,
        (Method::Ring, NcclProtocol::Ll) => 8 * u64::from(machine.ranks),
        _ => 8,
    };
    Ok((bytes / (threads * threshold)).clamp(1, found.run.into()) as u32)
}
