//! Computes how long NCCL's kernels run for a call: a launch, the steps of the longest chain, and bytes over the rate
//! of the busiest link.
//!
//! Bytes of a buffer S per GPU and direction among n: ring 2S(n − 1)/n for allreduce, S(n − 1)/n for its halves and S
//! along a chain; NVLS S(1 + 1/n). Through the NICs of a node: ring as much, trees S on two nodes, 2S on more (an inner
//! node of one tree is a leaf of the other). Microseconds and GB/s.

use super::constants::{self as figures, Hop};
use super::search::search;
use super::{Method, NcclCall, NcclChoice, NcclMachine, NcclProtocol, Request, pace};
use crate::Collective;

/// Seconds of a call.
pub(super) fn seconds(machine: &NcclMachine, request: &Request, call: &NcclCall<'_>, choice: &NcclChoice) -> f64 {
    let kilobytes = call.bytes as f64 * 1e-3;
    let micros = match choice.method {
        Method::Pairs => pairs(machine, kilobytes),
        _ => {
            let run = match choice.method {
                Method::Ring => ring(machine, request, call, choice, kilobytes),
                Method::Tree => tree(machine, request, choice, kilobytes),
                Method::Pat => pat(machine, request, choice, kilobytes),
                _ => nvls(machine, call, choice, kilobytes),
            };
            let launch = pace::launch(machine.generation, machine.per_process);
            let least = pace::least(request.version, machine.per_process, choice.channels);
            (launch + run).max(least)
        }
    };
    micros * 1e-6
}

/// GB/s of Simple on rings: of the GPUs' links, of the channels, and of the NICs.
fn carried(machine: &NcclMachine, channels: u32) -> f64 {
    inside(machine)
        .min(f64::from(channels) * pace::of_channel(machine.generation))
        .min(machine.outward() * machine.fabric.ring * pace::nic_share(machine.generation))
}

/// The same of the GPUs' links alone.
fn inside(machine: &NcclMachine) -> f64 {
    match machine.nvlink {
        // Without a switch of NVLinks, what leaves a node is counted with what it takes inside.
        Some(_) if machine.nodes > 1 && !machine.nvswitch => f64::INFINITY,
        Some(_) => machine.line() * pace::ring_share(machine.generation) / machine.stays,
        None => f64::INFINITY,
    }
}

/// Microseconds that a step between nodes takes: NCCL's own, and the links'.
fn across(machine: &NcclMachine, request: &Request, choice: &NcclChoice) -> f64 {
    figures::step(request.version, Hop::Network, choice.method, choice.protocol) + machine.latency.as_secs_f64() * 1e6
}

fn ring(machine: &NcclMachine, request: &Request, call: &NcclCall<'_>, choice: &NcclChoice, kilobytes: f64) -> f64 {
    let (ranks, nodes) = (f64::from(machine.ranks), f64::from(machine.nodes));
    let others = (ranks - 1.0) / ranks;
    let (volume, steps, crossings) = match call.collective {
        Collective::AllReduce => (2.0 * others, 2.0 * (ranks - 1.0), 2.0 * nodes),
        Collective::AllGather => (others / pace::OWN_COPY, ranks - 1.0, nodes),
        Collective::ReduceScatter => (others, ranks - 1.0, nodes),
        _ => (1.0, ranks - 1.0, nodes - 1.0),
    };
    let crossings = if machine.nodes == 1 { 0.0 } else { f64::min(crossings, steps) };
    let step = figures::step(request.version, machine.hop(), choice.method, choice.protocol);
    let walk = (steps - crossings) * step + crossings * across(machine, request, choice);
    // A channel of LL carries few bytes, so its threads are its limit: NCCL's own limit.
    let rate = match choice.protocol {
        NcclProtocol::Ll => {
            let share = pace::protocol_share(NcclProtocol::Ll, machine.nodes > 1);
            let limit = figures::ll_limit(request.version, machine.generation, machine.nodes);
            (carried(machine, search(machine).run) * share).min(limit)
        }
        protocol => carried(machine, choice.channels) * pace::protocol_share(protocol, machine.nodes > 1),
    };
    if machine.nodes == 1 || choice.protocol != NcclProtocol::Simple {
        return walk + volume * kilobytes / rate;
    }
    // Between nodes the narrowest link is busy all the time: a NIC, or NVLinks, which wait for every step. A block that
    // goes all the way alone may take longer.
    let busy = volume * kilobytes / rate + across(machine, request, choice);
    let by_nvlink = volume * kilobytes / inside(machine) + steps * step;
    let alone = f64::from(choice.channels) * pace::of_channel(machine.generation);
    busy.max(by_nvlink).max(walk + volume * kilobytes / alone)
}

/// The pipeline's rate is that of NCCL's own model, which was measured by its authors; the NICs may carry less.
fn tree(machine: &NcclMachine, request: &Request, choice: &NcclChoice, kilobytes: f64) -> f64 {
    let local = f64::from(machine.per_node());
    let inside = match choice.protocol {
        // The first chunk's step, and not the pipeline's, which some versions count.
        NcclProtocol::Simple => 4.0,
        protocol => figures::step(request.version, machine.hop(), Method::Tree, protocol),
    };
    let outside = match choice.protocol {
        NcclProtocol::Simple => 14.0 + machine.latency.as_secs_f64() * 1e6,
        _ => across(machine, request, choice),
    };
    let walk = 2.0 * ((local - 1.0) * inside + f64::from(machine.nodes.ilog2()) * outside);
    let whole = search(machine).run;
    let channels = f64::from(choice.channels.min(whole)) / f64::from(whole);
    let fewer = if choice.protocol == NcclProtocol::Simple || request.channels.is_some() { channels } else { 1.0 };
    walk + kilobytes / (choice.rate * fewer).min(outward(machine))
}

/// NCCL's own estimate of its walk and of its share of a ring's rate, since no curve of it is known.
fn pat(machine: &NcclMachine, request: &Request, choice: &NcclChoice, kilobytes: f64) -> f64 {
    let ranks = f64::from(machine.ranks);
    let levels = f64::from(machine.ranks.next_power_of_two().ilog2());
    let walk = figures::pat_walk(request.version, machine.nodes) + levels * machine.latency.as_secs_f64() * 1e6;
    walk + (ranks - 1.0) / ranks * kilobytes / (carried(machine, choice.channels) * figures::PAT_SHARE)
}

/// GB/s of a buffer that trees between nodes get through a node's NICs.
fn outward(machine: &NcclMachine) -> f64 {
    let times = if machine.nodes == 2 { 1.0 } else { 2.0 };
    machine.outward() * machine.fabric.tree * pace::nic_share(machine.generation) / times
}

/// A buffer runs in loops of channels × heads chunks, of which one is summed while the one before is multicast.
fn nvls(machine: &NcclMachine, call: &NcclCall<'_>, choice: &NcclChoice, kilobytes: f64) -> f64 {
    let heads = machine.per_node();
    let chunk = chunk_kib(choice.channels, heads, call.bytes);
    let volume = 1.0 + 1.0 / f64::from(heads);
    let of_channels = f64::from(choice.channels) * pace::of_channel(machine.generation);
    let inside = (machine.line() * pace::nvls_share(machine.generation)).min(of_channels) / volume
        * pace::nvls_chunk_share(machine.generation, chunk);
    let rate = if machine.nodes > 1 { inside.min(outward(machine)) } else { inside };
    let all = kilobytes / rate;
    let looped = f64::from(choice.channels * heads * chunk) * 1.024 / rate;
    // One more stage in a node; up and down a level, and in and out of the node, between nodes.
    let (stages, walk) = match machine.nodes {
        1 => (1.0, 0.0),
        nodes => {
            let level = 14.0 + machine.latency.as_secs_f64() * 1e6;
            (4.0, 2.0 * f64::from(nodes.ilog2()) * level)
        }
    };
    pace::NVLS_PASS + walk + all + stages * looped.min(all)
}

/// KiB of a chunk: 128, and 64, 32, 16 while loops are few (`src/enqueue.cc`).
fn chunk_kib(channels: u32, heads: u32, bytes: u64) -> u32 {
    let mut kib = 128;
    for (above, loops) in [(64, 64), (32, 8), (16, 2)] {
        let looped = u64::from(channels) * u64::from(heads) * u64::from(kib) * 1024;
        if kib > above && bytes < loops * looped {
            kib = above;
        }
    }
    kib
}

/// Rounds of pairs: the bytes that leave a GPU by NVLink, and those that leave its node.
fn pairs(machine: &NcclMachine, kilobytes: f64) -> f64 {
    let (ranks, local) = (f64::from(machine.ranks), f64::from(machine.per_node()));
    let inside = match machine.nvlink {
        Some(_) => {
            (local - 1.0) / ranks / (machine.line_of_pairs() * pace::ring_share(machine.generation) * pace::PAIRS_SHARE)
        }
        None => 0.0,
    };
    let outside = local * (ranks - local)
        / ranks
        / (machine.outward() * machine.fabric.pairs * pace::nic_share(machine.generation));
    let walk = if machine.nodes > 1 { 14.0 + machine.latency.as_secs_f64() * 1e6 } else { 0.0 };
    pace::least_of_pairs(machine.per_process) + walk + kilobytes * inside.max(outside)
}
