//! Models the connections between processes: the bytes of one message at a time flow in each direction.
//!
//! Ranks of one process on one device share its connections, as learners do under MPI; the first of them is then served
//! while the messages of the others queue. Ranks with processes of their own have their own connections.

use std::collections::{BTreeMap, VecDeque};

use lockstep_topology::{InputError, Rank as RankId, Time};

use super::Engine;
use crate::costs::Pair;
use crate::fluid::Fluid;
use crate::orbits::UNFOLDABLE;

/// One direction of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// Messages on links whose latency is over: the bytes of the first flow, the others queue.
    pub(super) queue: VecDeque<u32>,
    /// When the last message over links arrived.
    pub(super) there: Time,
    /// Messages in flight whose requests were answered on a stream.
    pub(super) granted: u32,
    /// Messages of the other direction, and when they were announced, whose answers wait behind the granted ones.
    pub(super) held: VecDeque<(u32, Time)>,
}

/// A connection of processes with several ranks on a device: the path, the two processes, and the channel.
pub(super) type Shared = (u32, [u32; 2], u32);

/// All connections in use.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    shared: BTreeMap<Shared, u32>,
}

impl Lines {
    pub(super) fn at(&self, line: u32) -> &Line {
        &self.lines[line as usize]
    }

    pub(super) fn at_mut(&mut self, line: u32) -> &mut Line {
        &mut self.lines[line as usize]
    }

    fn add(&mut self) -> u32 {
        self.lines.push(Line::default());
        self.lines.len() as u32 - 1
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// The connection from one rank to another, on their path.
    ///
    /// # Errors
    /// Ranks that share it and are images of one, at the place of routes that do not fold.
    pub(super) fn line_between(&mut self, (from, to): (u32, u32), path: u32, channel: u32) -> Result<u32, InputError> {
        let Some(key) = self.shared_line((from, to), path, channel) else { return Ok(self.lines.add()) };
        if self.beside(from).any(|rank| self.resources.orbits().representative(rank) != rank) {
            let message = "ranks of a process take turns on its connections that are equal otherwise";
            return Err(InputError::new(UNFOLDABLE, "", message));
        }
        if let Some(known) = self.lines.shared.get(&key) {
            return Ok(*known);
        }
        let line = self.lines.add();
        self.lines.shared.insert(key, line);
        Ok(line)
    }

    /// The connection that a rank shares with others of its process, if it does.
    pub(super) fn shared_line(&self, (from, to): (u32, u32), path: u32, channel: u32) -> Option<Shared> {
        let alone = |rank| self.beside(rank).nth(1).is_none();
        let processes = [from, to].map(|rank| self.platform.hosting.process(RankId(rank)));
        let on_links = self.paths.at(path).pair == Pair::Wire && processes[0] != processes[1];
        (on_links && !(alone(from) && alone(to))).then_some((path, processes, channel))
    }

    /// The ranks of a rank's process that are on its device.
    fn beside(&self, rank: u32) -> impl Iterator<Item = u32> {
        let (placement, hosting) = (self.platform.placement, self.platform.hosting);
        let device = placement.device(RankId(rank));
        let ranks = hosting.ranks(hosting.process(RankId(rank))).iter();
        ranks.filter(move |other| placement.device(**other) == device).map(|other| other.0)
    }
}

/// Whether one of these is there twice.
pub(super) fn has_twice(lines: &mut [Shared]) -> bool {
    lines.sort_unstable();
    lines.windows(2).any(|pair| pair[0] == pair[1])
}
