//! Models ports: messages leave a NIC one after the other, each taking the sender's time per message.
//!
//! Only that time queues, unless the link has a transmit queue: then the bytes of short messages leave one after the
//! other, too. Other bytes share the wire, so a port begins the next message's set-up while the first one's bytes still flow.

use std::collections::BTreeMap;

use lockstep_topology::Time;
use lockstep_topology::cluster::LinkId;

/// All ports that routes leave through.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    known: BTreeMap<LinkId, u32>,
    /// When each has served its queue.
    free: Vec<Time>,
    /// When the bytes in each one's transmit queue have left.
    sent: Vec<Time>,
}

/// The transmit queue of a port.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TransmitQueue {
    /// The longest that a message may take the port and still queue.
    pub(super) most: Time,
    /// Seconds that the port takes for a byte.
    pub(crate) byte_s: f64,
}

impl TransmitQueue {
    /// How long `bytes` take the port.
    pub(crate) fn span(&self, bytes: f64) -> Time {
        Time::from_secs_f64(self.byte_s * bytes)
    }

    /// Whether a message of `bytes` queues.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.span(bytes as f64) <= self.most
    }
}

impl Ports {
    /// The port of the link by which messages leave.
    pub(super) fn of(&mut self, link: LinkId) -> u32 {
        let next = self.free.len() as u32;
        let port = *self.known.entry(link).or_insert(next);
        if port == next {
            self.free.push(Time::ZERO);
            self.sent.push(Time::ZERO);
        }
        port
    }

    /// The times from `now` until each port is free, and until its transmit queue is empty.
    pub(crate) fn waits(&self, now: Time) -> Vec<Time> {
        self.free.iter().chain(&self.sent).map(|free| Time::max(*free, now) - now).collect()
    }

    /// When the bytes in a port's transmit queue have left.
    pub(crate) fn sent(&self, port: u32) -> Time {
        self.sent[port as usize]
    }

    /// When the bytes of a message begin to leave that take the port for `span`, queued at `at`.
    pub(crate) fn queue(&mut self, port: u32, at: Time, span: Time) -> Time {
        let sent = &mut self.sent[port as usize];
        let begins = Time::max(*sent, at);
        *sent = begins + span;
        begins
    }

    /// When a port has served its queue.
    pub(crate) fn free(&self, port: u32) -> Time {
        self.free[port as usize]
    }

    /// When a message that arrives `now` and takes `span` leaves, after those before it.
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
        // Bytes queue by themselves: those of the second message wait until the first one's have left.
        assert_eq!(ports.queue(a, Time(15), Time(100)), Time(15));
        assert_eq!((ports.queue(a, Time(20), Time(10)), ports.sent(a)), (Time(115), Time(125)));
        assert_eq!(ports.waits(Time(30)), [Time(5), Time(0), Time(95), Time(0)]);
        let queue = TransmitQueue { most: Time::from_secs_f64(1e-3), byte_s: 1e-6 };
        assert_eq!((queue.span(1e3), queue.takes(1_000), queue.takes(1_001)), (Time::from_secs_f64(1e-3), true, false));
        // A message that takes no time still queues.
        assert_eq!(ports.pass(a, Time(31), Time(0)), Time(35));
    }
}
