//! Groups of ranks whose devices add up by themselves: they meet before the first exchange and part behind the last.

use std::time::Instant;

use lockstep_topology::{Library, Rank};

use super::Worker;
use crate::device::GroupId;
use crate::error::ExecError;
use crate::transport::control;

/// What a group is known by, from its first rank.
const GROUP: u32 = 15;

impl Worker<'_> {
    /// The groups of the program in which this rank's device adds up, ascending.
    fn groups(&self) -> Vec<usize> {
        let exchanges = self.role.exchanges().map(|(_, exchange)| exchange);
        let by_devices = exchanges.filter(|exchange| exchange.algorithm.library() == Some(Library::Devices));
        let mut groups: Vec<usize> = by_devices.map(|exchange| exchange.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Meets the other members of each; all do so in the order of the groups, so none waits in a circle.
    pub(super) fn meet_groups(&mut self) -> Result<(), ExecError> {
        for group in self.groups() {
            let ranks = &self.setup.program.groups[group].ranks;
            let rank = self.transport.rank().0;
            let id = if rank == ranks.first {
                let id = self.memory.device().new_group()?;
                for other in ranks.iter().skip(1) {
                    control::send_elements(self.transport, Rank(other), GROUP, id.words())?;
                }
                id
            } else {
                let first = Rank(ranks.first);
                GroupId::of(&control::receive_elements(self.transport, first, GROUP, GroupId::WORDS)?)
            };
            self.memory.device().join(group, &id, rank - ranks.first, ranks.count)?;
            self.wait_for_group(group)?;
        }
        Ok(())
    }

    /// Takes leave of them.
    pub(super) fn leave_groups(&mut self) -> Result<(), ExecError> {
        for group in self.groups() {
            self.memory.device().leave(group)?;
            self.wait_for_group(group)?;
        }
        Ok(())
    }

    /// Waits for what was begun in a group, of which no message tells; gives up at the stall limit.
    fn wait_for_group(&mut self, group: usize) -> Result<(), ExecError> {
        let began = Instant::now();
        while !self.memory.device().is_ready(group)? {
            self.transport.poll()?;
            if began.elapsed() > self.setup.guard.limit {
                return Err(self.give_up(began.elapsed()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
