//! `Events`: queues events in integer time, first in first out among equals.
//!
//! Equal times are common (symmetric ranks), so the order of insertion decides and two runs agree to the byte. The
//! queue is a hierarchical timing wheel (Varghese and Lauck 1987): level l has 64 slots of 64^l picoseconds, and an
//! event is on the level where its time first differs, in base 64, from the queue's base. Its cost hardly grows with
//! the number of events. A slot is spread over the levels below only when it comes up crowded; a few events are picked
//! out in place.

use std::collections::VecDeque;

use lockstep_topology::Time;

/// Bits of time that one level resolves.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels that cover 64 bits of time.
const LEVELS: usize = 11;
/// Events in a slot that are searched rather than spread.
const FEW: usize = 8;

/// The position of the earliest event.
#[derive(Debug, Clone, Copy)]
struct EventIndex {
    time: u64,
    slot: u32,
    index: u32,
}

/// Events ordered by time, then by insertion; none may be earlier than the last one taken out.
///
/// ```
/// # use lockstep_sim::event::Events;
/// # use lockstep_topology::Time;
/// let mut events = Events::new();
/// events.push(Time(20), "late");
/// events.push(Time(10), "first");
/// events.push(Time(10), "second");
/// assert_eq!(events.next_time(), Some(Time(10)));
/// assert_eq!(events.pop(), Some((Time(10), "first")));
/// assert_eq!(events.pop(), Some((Time(10), "second")));
/// assert_eq!(events.pop(), Some((Time(20), "late")));
/// assert_eq!(events.pop(), None);
/// ```
#[derive(Debug, Clone)]
pub struct Events<E> {
    /// All slots, level by level; each in order of insertion.
    slots: Vec<Vec<(u64, E)>>,
    /// The non-empty slots of each level.
    filled: [u64; LEVELS],
    /// Not later than any event.
    base: u64,
    /// The time of the last event taken out.
    last: u64,
    first: Option<EventIndex>,
    live: usize,
    /// An emptied slot, kept for its allocation.
    spare: Vec<(u64, E)>,
    /// A crowd of events at `last`, before anything in the slots.
    ready: VecDeque<(u64, E)>,
}

impl<E: Copy> Default for Events<E> {
    fn default() -> Events<E> {
        Events {
            slots: vec![Vec::new(); LEVELS * SLOTS],
            filled: [0; LEVELS],
            base: 0,
            last: 0,
            first: None,
            live: 0,
            spare: Vec::new(),
            ready: VecDeque::new(),
        }
    }
}

impl<E: Copy> Events<E> {
    /// An empty queue.
    pub fn new() -> Events<E> {
        Events::default()
    }

    /// Schedules `event` at `time`, after everything already scheduled there; a time in the past counts as the present.
    pub fn push(&mut self, time: Time, event: E) {
        let time = time.0.max(self.last);
        let (slot, index) = self.put(time, event);
        if self.live == 0 || self.first.is_some_and(|first| time < first.time) {
            self.first = Some(EventIndex { time, slot, index });
        }
        self.live += 1;
    }

    /// The time of the next event.
    pub fn next_time(&mut self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time(self.last));
        }
        self.find().map(|place| Time(place.time))
    }

    /// Takes the next event out, with its time.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        if let Some((time, event)) = self.ready.pop_front() {
            self.live -= 1;
            return Some((Time(time), event));
        }
        let mut place = self.find()?;
        if self.slots[place.slot as usize].len() > FEW {
            if place.slot as usize >= SLOTS {
                self.spread(place);
                place = self.find()?;
            }
            if self.slots[place.slot as usize].len() > FEW {
                // All of it is due now.
                self.filled[0] &= !(1 << place.slot);
                self.ready.extend(self.slots[place.slot as usize].drain(..));
                (self.first, self.last) = (None, place.time);
                return self.pop();
            }
        }
        let slot = &mut self.slots[place.slot as usize];
        let (time, event) = slot.remove(place.index as usize);
        // Equal times are in order of insertion, so the next of them is the next one behind.
        let next = slot[place.index as usize..].iter().position(|(other, _)| *other == time);
        self.first = next.map(|behind| EventIndex { index: place.index + behind as u32, ..place });
        if slot.is_empty() {
            self.filled[place.slot as usize / SLOTS] &= !(1 << (place.slot as usize % SLOTS));
        }
        self.last = time;
        self.live -= 1;
        Some((Time(time), event))
    }

    /// Drops from the slot of the next event, which is no longer wanted, all that `keep` refuses.
    pub(crate) fn purge(&mut self, keep: impl Fn(Time, &E) -> bool) {
        let Some(place) = self.find() else { return };
        let slot = &mut self.slots[place.slot as usize];
        self.live -= slot.len();
        slot.retain(|(time, event)| keep(Time(*time), event));
        self.live += slot.len();
        if slot.is_empty() {
            self.filled[place.slot as usize / SLOTS] &= !(1 << (place.slot as usize % SLOTS));
        }
        self.first = None;
    }

    /// The next event, with its time.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<(Time, E)> {
        if let Some((time, event)) = self.ready.front() {
            return Some((Time(*time), *event));
        }
        let place = self.find()?;
        Some((Time(place.time), self.slots[place.slot as usize][place.index as usize].1))
    }

    /// The number of waiting events.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Puts an event into the slot of its time; returns the slot and the position in it.
    fn put(&mut self, time: u64, event: E) -> (u32, u32) {
        let level = (63 - ((time ^ self.base) | 1).leading_zeros()) / BITS;
        let digit = (time >> (level * BITS)) as usize % SLOTS;
        self.filled[level as usize] |= 1 << digit;
        let slot = level as usize * SLOTS + digit;
        self.slots[slot].push((time, event));
        (slot as u32, (self.slots[slot].len() - 1) as u32)
    }

    /// Finds the earliest event.
    #[inline]
    fn find(&mut self) -> Option<EventIndex> {
        if self.first.is_none() && self.live > 0 {
            self.first = self.search();
        }
        self.first
    }

    /// Searches the earliest event: it is in the first non-empty slot of the lowest such level.
    fn search(&self) -> Option<EventIndex> {
        let level = self.filled.iter().position(|filled| *filled != 0)?;
        let slot = level * SLOTS + self.filled[level].trailing_zeros() as usize;
        let (mut time, mut index) = (u64::MAX, 0);
        for (at, (other, _)) in self.slots[slot].iter().enumerate() {
            if *other < time {
                (time, index) = (*other, at);
            }
        }
        Some(EventIndex { time: self.slots[slot][index].0, slot: slot as u32, index: index as u32 })
    }

    /// Moves the base to the earliest event, and those in its slot to the levels below.
    fn spread(&mut self, place: EventIndex) {
        let spare = std::mem::take(&mut self.spare);
        let mut crowd = std::mem::replace(&mut self.slots[place.slot as usize], spare);
        self.filled[place.slot as usize / SLOTS] &= !(1 << (place.slot as usize % SLOTS));
        self.base = place.time;
        for (time, event) in crowd.drain(..) {
            self.put(time, event);
        }
        self.spare = crowd;
        self.first = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Delays of all sizes, so that all levels are used, and many equal ones.
    fn delays() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..4, 2 => 0u64..200, 1 => (0u32..63).prop_map(|bits| 1 << bits), 1 => 0u64..1 << 40]
    }

    proptest! {
        /// The reference is a plain list, searched for the first smallest time; `None` takes one out.
        #[test]
        fn agrees_with_a_plain_list(deeds in prop::collection::vec(prop::option::weighted(0.6, delays()), 0..300)) {
            let mut events = Events::new();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut now = 0_u64;
            for (number, deed) in deeds.into_iter().enumerate() {
                match deed {
                    Some(delay) => {
                        list.push((now.saturating_add(delay), number));
                        events.push(Time(now.saturating_add(delay)), number);
                    }
                    None => {
                        let at = (0..list.len()).min_by_key(|at| (list[*at].0, *at));
                        let want = at.map(|at| list.remove(at)).map(|(time, event)| (Time(time), event));
                        now = want.map_or(now, |(time, _)| time.0);
                        prop_assert_eq!(events.next_time(), want.map(|(time, _)| time));
                        prop_assert_eq!(events.pop(), want);
                    }
                }
                // Looking does not move the queue: the next event may be earlier than the one that was first.
                prop_assert_eq!(events.next_time(), list.iter().map(|(time, _)| Time(*time)).min());
                prop_assert_eq!((events.len(), events.is_empty()), (list.len(), list.is_empty()));
            }
        }
    }

    #[test]
    fn simultaneous_events_keep_their_order() {
        let mut events = Events::new();
        (0..1000).for_each(|number| events.push(Time(1 << 30), number));
        assert!((0..1000).all(|number| events.pop() == Some((Time(1 << 30), number))));
    }
}
