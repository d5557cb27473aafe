//! `Inbox`: holds messages posted before their receive: a few are scanned, the many of a server sorted.

use std::collections::BTreeMap;

/// More messages than this are sorted instead of scanned.
const FEW: usize = 16;

/// Messages by lane, sender and order.
type Sorted = BTreeMap<(u32, u32, u64), u32>;

/// Messages by lane and sender, each in order of posting.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Lane, sender and message, in order of posting; empty while there are many.
    few: Vec<(u32, u32, u32)>,
    many: Option<Box<Sorted>>,
    /// Messages that were put into the present `many`.
    sorted: u64,
}

impl Inbox {
    /// Adds a message after those of its lane and sender.
    pub(super) fn put(&mut self, lane: u32, sender: u32, message: u32) {
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push((lane, sender, message));
            return;
        }
        let many = self.many.get_or_insert_default();
        for (lane, sender, message) in self.few.drain(..).chain([(lane, sender, message)]) {
            self.sorted += 1;
            many.insert((lane, sender, self.sorted), message);
        }
    }

    /// The first message of `sender` for `lane`.
    pub(super) fn first(&self, lane: u32, sender: u32) -> Option<u32> {
        match &self.many {
            Some(many) => many.range((lane, sender, 0)..=(lane, sender, u64::MAX)).next().map(|(_, message)| *message),
            None => self.few.iter().find(|(l, s, _)| (*l, *s) == (lane, sender)).map(|(_, _, message)| *message),
        }
    }

    /// Removes that message.
    pub(super) fn take(&mut self, lane: u32, sender: u32) -> Option<u32> {
        let Some(many) = &mut self.many else {
            let at = self.few.iter().position(|(l, s, _)| (*l, *s) == (lane, sender))?;
            return Some(self.few.remove(at).2);
        };
        let key = *many.range((lane, sender, 0)..=(lane, sender, u64::MAX)).next()?.0;
        let message = many.remove(&key);
        if many.is_empty() {
            self.many = None;
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reference is one list, scanned; `true` puts a message, `false` takes one.
        #[test]
        fn agrees_with_a_list(deeds in prop::collection::vec((prop::bool::weighted(0.6), 0u32..3, 0u32..3), 0..200)) {
            let mut inbox = Inbox::default();
            let mut list: Vec<(u32, u32, u32)> = Vec::new();
            for (number, (put, lane, sender)) in (0u32..).zip(deeds) {
                let at = list.iter().position(|(l, s, _)| (*l, *s) == (lane, sender));
                prop_assert_eq!(inbox.first(lane, sender), at.map(|at| list[at].2));
                if put {
                    inbox.put(lane, sender, number);
                    list.push((lane, sender, number));
                } else {
                    prop_assert_eq!(inbox.take(lane, sender), at.map(|at| list.remove(at).2));
                }
            }
        }
    }
}
