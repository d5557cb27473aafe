//! Parameter server: each server owns a shard, sums all members' parts of it in member order and sends the sum back.
//!
//! Iandola 2016 §6.1 (one dedicated server, Eq. 3: p·n in and p·n out of it) and its pools of servers. Dedicated servers
//! are the last members; they contribute nothing and their buffer is scratch. Otherwise the first members serve: their own
//! contribution comes first in the sum, then the others' in member order. Two rounds, whatever the number of members.

/// A member's place in the star round one server.
#[derive(Debug, Clone)]
pub(super) struct Star {
    /// Whether this member is the server.
    pub(super) centre: bool,
    pub(super) server: u32,
    /// Members that contribute: all, or those before the dedicated servers.
    pub(super) contributors: u32,
    pub(super) dedicated: bool,
}

impl Star {
    pub(super) fn parent(&self) -> Option<u32> {
        (!self.centre).then_some(self.server)
    }

    pub(super) fn children(&self) -> u32 {
        match (self.centre, self.dedicated) {
            (false, _) => 0,
            (true, true) => self.contributors,
            (true, false) => self.contributors - 1,
        }
    }

    /// Workers in member order, the server itself left out.
    pub(super) fn child(&self, index: u32) -> u32 {
        if self.dedicated || index < self.server { index } else { index + 1 }
    }
}
