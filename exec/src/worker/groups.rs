//! Joins and leaves groups of ranks whose devices reduce by themselves, before the first exchange and after the last.

use std::time::Instant;

use lockstep_models::Exchange;
use lockstep_topology::{Library, Rank};

use super::Worker;
use crate::device::GroupId;
use crate::error::ExecError;
use crate::transport::control;

/// Kind of the messages with the identifier of a group, from its first rank.
const GROUP: u32 = 15;

impl<'a> Worker<'a> {
    /// The groups in which this rank's device reduces, one per such exchange; a device numbers them by their index
    /// here.
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

    /// The index of an exchange's group among those in which this rank's device reduces.
    pub(super) fn device_group(&self, exchange: &Exchange) -> usize {
        let is_its = |other: &&Exchange| other.axes == exchange.axes;
        self.device_groups().iter().position(is_its).expect("the group of an exchange by devices is listed")
    }

    /// Joins each group; all ranks do so in the order of the groups, so there is no deadlock.
    pub(super) fn meet_groups(&mut self) -> Result<(), ExecError> {
        for (group, exchange) in self.device_groups().into_iter().enumerate() {
            let rank = self.transport.rank().0;
            let ranks = self.setup.program.group_of(exchange, rank);
            let id = if rank == ranks.first() {
                let id = self.memory.device().new_group()?;
                for other in ranks.iter().skip(1) {
                    control::send_elements(self.transport, Rank(other), GROUP, id.0.to_vec())?;
                }
                id
            } else {
                let first = Rank(ranks.first());
                GroupId::of(&control::receive_elements(self.transport, first, GROUP, GroupId::BYTES)?)
            };
            let member = ranks.member(rank).expect("a rank belongs to its group");
            self.memory.device().join(group, &id, member, ranks.count())?;
            self.wait_for_group(group)?;
        }
        Ok(())
    }

    /// Leaves the groups.
    pub(super) fn leave_groups(&mut self) -> Result<(), ExecError> {
        for group in 0..self.device_groups().len() {
            self.memory.device().leave(group)?;
            self.wait_for_group(group)?;
        }
        Ok(())
    }

    /// Waits for an operation in a group, whose completion no message signals; gives up at the stall limit.
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
