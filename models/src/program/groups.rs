//! Forms the groups of ranks that run an exchange independently, and the schedule of each.

use lockstep_topology::{Group, InputError, Schedule};

use crate::{Exchange, Members, Program};

impl Program {
    /// How many groups of ranks run an exchange independently.
    pub fn group_count(&self, exchange: &Exchange) -> u32 {
        self.mesh.group_count(exchange.axes)
    }

    /// The number of the group in which `rank` runs an exchange. Servers belong to the only one.
    pub fn group_number(&self, exchange: &Exchange, rank: u32) -> u32 {
        if rank < self.workers() { self.mesh.group_number(exchange.axes, rank) } else { 0 }
    }

    /// The members of a group by its number.
    pub fn group(&self, exchange: &Exchange, number: u32) -> Members {
        let members = self.mesh.group(exchange.axes, number);
        if let Some((low, high)) = exchange.between {
            return Members::two(members.rank(low), members.rank(high));
        }
        match self.ranks() - self.workers() {
            servers if servers > 0 && exchange.algorithm.servers() > 0 => members.and_servers(self.workers(), servers),
            _ => members,
        }
    }

    /// The members of the group in which `rank` runs an exchange.
    pub fn group_of(&self, exchange: &Exchange, rank: u32) -> Members {
        self.group(exchange, self.group_number(exchange, rank))
    }

    /// The steps of an exchange in the group of `rank`, not expanded.
    ///
    /// # Errors
    /// When the algorithm does not fit the group.
    pub fn schedule(&self, exchange: &Exchange, rank: u32) -> Result<Schedule, InputError> {
        self.schedule_among(exchange, &self.group_of(exchange, rank))
    }

    /// The steps of an exchange in a group of these members, not expanded.
    ///
    /// # Errors
    /// When the algorithm does not fit the group.
    pub fn schedule_among(&self, exchange: &Exchange, members: &Members) -> Result<Schedule, InputError> {
        let elements = self.elements_of(exchange, members);
        let group = self.nodes_of(exchange, members);
        let schedule = Schedule::new(&exchange.collective, &exchange.algorithm, &group, elements, exchange.chunk)?;
        Ok(if exchange.padded { schedule.padded() } else { schedule })
    }

    /// The most elements by which a padded exchange extends beyond its range, in any of the groups that run it.
    pub(crate) fn padding(&self, exchange: &Exchange) -> u64 {
        if !exchange.padded {
            return 0;
        }
        // Groups differ only in the nodes of their members.
        let alike = !exchange.algorithm.by_nodes() && self.mesh.outermost().is_some();
        let groups = self.group_count(exchange);
        let ends = (if alike { groups - 1 } else { 0 }..groups).filter_map(|number| {
            let members = self.group(exchange, number);
            let schedule = self.schedule_among(exchange, &members).ok()?;
            Some(self.part_of(exchange, &members).start + schedule.elements())
        });
        ends.max().map_or(0, |end| end.saturating_sub(exchange.range.end))
    }

    /// The nodes of the members of an exchange: by coordinates on its node axes, or by machines where the algorithm
    /// asks for them.
    pub(crate) fn nodes_of(&self, exchange: &Exchange, members: &Members) -> Group {
        match &self.machines {
            _ if !exchange.node_axes.is_empty() => {
                let ranks: Vec<u32> = members.iter().collect();
                let node = |rank: u32| match rank.checked_sub(self.workers()) {
                    None => (self.mesh.group_number(exchange.node_axes, rank), 0),
                    Some(server) => (u32::MAX, server),
                };
                let nodes = ranks.chunk_by(|one, next| node(*one) == node(*next));
                Group::nodes(&nodes.map(|node| node.len() as u32).collect::<Vec<u32>>())
            }
            Some(machines) if exchange.algorithm.by_nodes() => {
                let sum = |end: &mut u32, size: &u32| {
                    *end += size;
                    Some(*end)
                };
                let ends: Vec<u32> = machines.iter().scan(0, sum).collect();
                // The last entry counts ranks beyond the machines.
                let mut sizes = vec![0; ends.len() + 1];
                members.iter().for_each(|rank| sizes[ends.partition_point(|end| *end <= rank)] += 1);
                sizes.retain(|size| *size > 0);
                Group::nodes(&sizes)
            }
            _ => Group::flat(members.count()),
        }
    }

    /// Lanes in flight of an exchange with the schedule `schedule`.
    pub fn window(exchange: &Exchange, schedule: &Schedule) -> u32 {
        if exchange.window == 0 { schedule.window() } else { exchange.window }
    }
}
