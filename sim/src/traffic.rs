//! `Traffic`: counts messages and bytes from each rank to each other, for comparison with an executed run.

use std::collections::BTreeMap;

/// What one rank sent to one other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Messages.
    pub messages: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// All messages of a run, warm-up included, by (sender, receiver).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Pairs that exchanged nothing are left out; above a million pairs, so are senders that others represent.
    pub pairs: BTreeMap<(u32, u32), Sent>,
    /// Senders that each listed one represents, itself included.
    pub copies: u32,
}

impl Traffic {
    /// Collects what each rank has sent to which others.
    pub(crate) fn of(ranks: impl Iterator<Item = impl Iterator<Item = (u32, Sent)>>) -> Traffic {
        let mut pairs = BTreeMap::new();
        for (from, to) in (0..).zip(ranks) {
            for (to, sent) in to {
                // Several connections between two ranks count together.
                let pair: &mut Sent = pairs.entry((from, to)).or_default();
                *pair = Sent { messages: pair.messages + sent.messages, bytes: pair.bytes + sent.bytes };
            }
        }
        Traffic { pairs, copies: 1 }
    }

    /// The sum over all pairs, those left out included.
    pub fn total(&self) -> Sent {
        let copies = u64::from(self.copies);
        self.pairs.values().fold(Sent::default(), |sum, sent| Sent {
            messages: sum.messages + copies * sent.messages,
            bytes: sum.bytes + copies * sent.bytes,
        })
    }
}
