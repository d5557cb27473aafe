//! Models ports: messages leave a NIC one after the other, each taking the sender's time per message.
//!
//! Only that time queues. The bytes that follow share the wire with those of other messages, so a port that is through
//! with a message's set-up begins the next one's while the first still flows.

use std::collections::BTreeMap;

use lockstep_topology::Time;
use lockstep_topology::cluster::LinkId;

/// All ports that routes leave through.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    known: BTreeMap<LinkId, u32>,
    /// When each is done with what has queued so far.
    free: Vec<Time>,
}

impl Ports {
    /// The port of the link by which messages leave.
    pub(super) fn of(&mut self, link: LinkId) -> u32 {
        let next = self.free.len() as u32;
        let port = *self.known.entry(link).or_insert(next);
        if port == next {
            self.free.push(Time::ZERO);
        }
        port
    }

    /// The time from `now` until each port is free.
    pub(crate) fn waits(&self, now: Time) -> Vec<Time> {
        self.free.iter().map(|free| Time::max(*free, now) - now).collect()
    }

    /// When a port is done with what has queued so far.
    pub(crate) fn free(&self, port: u32) -> Time {
        self.free[port as usize]
    }

    /// When a message that arrives `now` and takes `span` is through, after those that came before.
    pub(crate) fn pass(&mut self, port: u32, now: Time, span: Time) -> Time {
        let free = &mut self.free[port as usize];
        *free = Time::max(*free, now) + span;
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_pass_one_by_one() {
        let mut ports = Ports::default();
        let (a, b) = (ports.of(LinkId(7)), ports.of(LinkId(3)));
        assert_eq!((ports.of(LinkId(7)), ports.of(LinkId(3))), (a, b));
        assert_eq!(ports.pass(a, Time(10), Time(5)), Time(15));
        assert_eq!(ports.pass(a, Time(12), Time(5)), Time(20));
        assert_eq!(ports.pass(b, Time(12), Time(5)), Time(17));
        assert_eq!(ports.pass(a, Time(30), Time(5)), Time(35));
        // A message that takes no time still waits for its turn.
        assert_eq!(ports.pass(a, Time(31), Time(0)), Time(35));
    }
}
