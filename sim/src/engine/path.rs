//! Determines the path from one rank to another, on first use: what carries messages there, and at what cost.
//!
//! Ranks of the same two devices share a path, so the number of ranks does not multiply routes.

use std::collections::BTreeMap;

use lockstep_topology::cluster::{DeviceId, DeviceKind, PIECE, Rendezvous, Route};
use lockstep_topology::nccl::Wire;
use lockstep_topology::{Action, ErrorPlace, InputError, Rank as RankId, Time};

use super::Engine;
use super::line::Line;
use crate::costs::{MessageCost, Pair};
use crate::fluid::{ClassId, Fluid};
use crate::machine::Resources;
use crate::network::{Carrier, Connections, Pace, Terms};
use crate::plan::GroupExchange;
use crate::platform::Platform;

/// A path between two devices.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) pair: Pair,
    /// From the post to when an idle receiver sees it; on links, to when the bytes begin to flow.
    pub(crate) latency: Time,
    pub(crate) cost: MessageCost,
    /// What carries the bytes over links.
    pub(crate) carrier: Carrier,
    /// Other costs of messages on links.
    pub(crate) terms: Terms,
    /// The class of the receiver's work.
    pub(crate) receive: ClassId,
}

impl Path {
    /// Whether a message is eager: up to the eager size, or sent in pieces of that size (not `whole`).
    pub(crate) fn is_eager(&self, bytes: u64, whole: bool) -> bool {
        let eager = self.cost.eager_bytes;
        bytes <= eager || (!whole && self.terms.rendezvous == Rendezvous::Stream && PIECE.0 <= eager)
    }

    /// Seconds of the receiver's work for a message of `bytes` with `action`.
    pub(crate) fn receive_seconds(&self, action: Action, bytes: u64) -> f64 {
        let per_byte = if action == Action::RecvSum { self.cost.sum } else { self.cost.copy };
        self.cost.overhead + per_byte * bytes as f64
    }
}

/// The connection among several between two ranks: messages with a protocol use a channel's own.
pub(crate) type Connection = (Option<Wire>, u32);

/// The connection of messages without a protocol.
pub(super) const PLAIN: Connection = (None, 0);

/// The connection that the messages of a lane take between two ranks.
pub(super) fn connection(group_exchange: &GroupExchange, lane: u32) -> Connection {
    let schedule = &group_exchange.schedule;
    let channel = lane % schedule.shares();
    let with_flow = |wire| (Some(Wire { flow: schedule.flow(channel), ..wire }), channel);
    group_exchange.algorithm.wire().map_or(PLAIN, with_flow)
}

/// All paths in use.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    known: BTreeMap<Key, u32>,
    paths: Vec<Path>,
}

impl Paths {
    pub(super) fn at(&self, path: u32) -> &Path {
        &self.paths[path as usize]
    }
}

/// Another rank that a rank sends to, and what it has sent.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) rank: u32,
    connection: Connection,
    path: u32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Its connection.
    pub(super) line: u32,
}

impl<F: Fluid> Engine<'_, F> {
    /// Counts a message; returns its path and how many preceded it.
    pub(super) fn path_for(
        &mut self,
        (from, to): (u32, u32),
        connection: Connection,
        bytes: u64,
    ) -> Result<(u32, u64), InputError> {
        let peer = self.peer(from, to, connection)?;
        peer.messages += 1;
        peer.bytes += bytes;
        Ok((peer.path, peer.messages - 1))
    }

    /// The state that one rank keeps of another that it sends to.
    pub(super) fn peer(&mut self, from: u32, to: u32, connection: Connection) -> Result<&mut Peer, InputError> {
        let peers = &self.ranks[from as usize].peers;
        let at = match peers.binary_search_by_key(&(to, connection), |peer| (peer.rank, peer.connection)) {
            Ok(at) => at,
            Err(at) => {
                let path = self.path(from, to, connection)?;
                let line = self.line_between((from, to), path, connection.1)?;
                let peer = Peer { rank: to, connection, path, messages: 0, bytes: 0, line };
                self.ranks[from as usize].peers.insert(at, peer);
                at
            }
        };
        Ok(&mut self.ranks[from as usize].peers[at])
    }

    /// The connection from one rank to another, where a message was posted before.
    pub(super) fn line(&mut self, from: u32, to: u32, connection: Connection) -> &mut Line {
        let peers = &self.ranks[from as usize].peers;
        let at = peers.binary_search_by_key(&(to, connection), |peer| (peer.rank, peer.connection));
        let at = at.expect("a message was posted there");
        self.lines.at_mut(peers[at].line)
    }

    pub(super) fn path(&mut self, from: u32, to: u32, (wire, _): Connection) -> Result<u32, InputError> {
        let key = key(self.platform, (from, to), wire);
        if let Some(known) = self.paths.known.get(&key) {
            return Ok(*known);
        }
        let route = self.platform.cluster.route_of_flow(key.0, key.1, wire.map_or(0, |wire| wire.flow))?;
        let path = path_between(&mut self.resources, &mut self.connections, key, &route)?;
        self.resources.fluid.path(key, &route.links)?;
        self.paths.paths.push(path);
        let path = (self.paths.paths.len() - 1) as u32;
        self.paths.known.insert(key, path);
        Ok(path)
    }
}

/// The path from one device to another, along a route.
///
/// # Errors
/// Invalid costs, a route that does not fold or that a protocol does not support.
pub(crate) fn path_between<F: Fluid>(
    resources: &mut Resources<'_, F>,
    connections: &mut Connections,
    (sender, receiver, pair, wire): Key,
    route: &Route,
) -> Result<Path, InputError> {
    let platform = resources.platform;
    let [sender, receiver] = [sender, receiver].map(|id| &platform.cluster.devices()[id.0 as usize]);
    if pair == Pair::Wire {
        resources.orbits().check(platform.cluster, &route.links)?;
    }
    let stepped = wire.map(|wire| wire.on(platform.cluster, [sender, receiver], route)).transpose();
    let stepped = stepped.map_err(|error| error.or_at(ErrorPlace::Flag("algorithm")))?;
    let cost = match &stepped {
        // The kernel that carries the bytes adds them, too.
        Some(terms) => MessageCost { eager_bytes: terms.slots.0, ..MessageCost::default() },
        None => platform.costs.message(pair, receiver, route),
    };
    let figures = [cost.latency, cost.wake, cost.overhead, cost.copy, cost.sum, cost.memory, cost.send];
    if figures.iter().any(|figure| !(*figure >= 0.0 && figure.is_finite())) {
        let value = format!("message to {}: {cost:?}", receiver.name);
        return Err(InputError::new("costs", value, "every figure must be zero or positive, and finite"));
    }
    let (carrier, terms) = match pair {
        Pair::Wire => {
            let taps = resources.taps([sender, receiver])?;
            let pace = stepped.map_or(Pace::OF_THE_ROUTE, |terms| Pace::of(&terms));
            connections.over(route, &cost, pace, &taps, resources)?
        }
        // The receiver's thread carries the bytes, so nothing else limits them.
        Pair::Memory | Pair::Host => (Carrier::Alone(f64::INFINITY), Terms::default()),
    };
    let on_links = match &stepped {
        Some(terms) => terms.step,
        None if pair == Pair::Wire => route.latency,
        None => Time::ZERO,
    };
    // Other ranks on the receiver's core.
    let beside = match &receiver.kind {
        DeviceKind::Cpu(cpu) => f64::from(platform.ranks_beside(receiver.id)) / f64::from(cpu.cores) - 1.0,
        DeviceKind::Gpu(_) | DeviceKind::Switch(_) => 0.0,
    };
    let latency = Time::from_secs_f64(cost.latency + cost.wake * beside.max(0.0)) + on_links;
    let receive = resources.receive(receiver, &cost)?;
    Ok(Path { pair, latency, cost, carrier, terms, receive })
}

/// Two devices, the carrier of messages from first to second, and NCCL's protocol, if any.
pub(crate) type Key = (DeviceId, DeviceId, Pair, Option<Wire>);

/// The devices and carrier of two ranks.
fn key(platform: &Platform<'_>, (from, to): (u32, u32), wire: Option<Wire>) -> Key {
    let [sender, receiver] = [from, to].map(|rank| platform.placement.device(RankId(rank)));
    let kind = &platform.cluster.devices()[receiver.0 as usize].kind;
    let one_cpu = sender == receiver && matches!(kind, DeviceKind::Cpu(_));
    let pair = match (one_cpu, platform.hosting.share(RankId(from), RankId(to))) {
        (true, true) => Pair::Memory,
        (true, false) => Pair::Host,
        (false, _) => Pair::Wire,
    };
    (sender, receiver, pair, wire)
}
