//! Groups of ranks whose devices add up by themselves: they meet before the first exchange and part behind the last.

use std::time::Instant;

use lockstep_models::Exchange;
use lockstep_topology::{Library, Rank};

use super::Worker;
use crate::device::GroupId;
use crate::error::ExecError;
use crate::transport::control;

/// What a group is known by, from its first rank.
const GROUP: u32 = 15;

impl<'a> Worker<'a> {
    /// The groups in which this rank's device adds up, each by one of its exchanges; a device knows them by their places here.
    fn device_groups(&self) -> Vec<&'a Exchange> {
        let exchanges = self.role.exchanges().map(|(_, exchange)| exchange);
        let mut groups: Vec<&Exchange> = Vec::new();
        for exchange in exchanges.filter(|exchange| exchange.algorithm.library() == Some(Library::Devices)) {
            if !groups.iter().any(|other| other.axes == exchange.axes) {
                groups.push(exchange);
            }
        }
        groups
    }

    /// The place of an exchange's group among those in which this rank's device adds up.
    pub(super) fn device_group(&self, exchange: &Exchange) -> usize {
        let is_its = |other: &&Exchange| other.axes == exchange.axes;
        self.device_groups().iter().position(is_its).expect("the group of an exchange by devices is listed")
    }

    /// Meets the other members of each; all do so in the order of the groups, so none waits in a circle.
    pub(super) fn meet_groups(&mut self) -> Result<(), ExecError> {
        for (group, exchange) in self.device_groups().into_iter().enumerate() {
            let rank = self.transport.rank().0;
            let ranks = self.setup.program.group_of(exchange, rank);
            let id = if rank == ranks.first() {
                let id = self.memory.device().new_group()?;
                for other in ranks.iter().skip(1) {
                    control::send_elements(self.transport, Rank(other), GROUP, id.words())?;
                }
                id
            } else {
                let first = Rank(ranks.first());
                GroupId::of(&control::receive_elements(self.transport, first, GROUP, GroupId::WORDS)?)
            };
            let member = ranks.member(rank).expect("a rank belongs to its group");
            self.memory.device().join(group, &id, member, ranks.count())?;
            self.wait_for_group(group)?;
        }
        Ok(())
    }

    /// Takes leave of them.
    pub(super) fn leave_groups(&mut self) -> Result<(), ExecError> {
        for group in 0..self.device_groups().len() {
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
