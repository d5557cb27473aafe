//! A queue of events in integer time, first in first out among equals.
//!
//! Equal times are common (symmetric ranks), so the order of insertion decides and two runs agree to the byte.
//! Cancelling only empties the entry's slot; the heap drops what is stale when it comes up, or all at once when
//! the stale outnumber the live.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lockstep_topology::Time;

/// Names one scheduled event; it stays unique after the event has fired or was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId {
    slot: u32,
    number: u64,
}

/// Where an event waits; the number tells a reused slot from its former tenant.
#[derive(Debug, Clone)]
struct Slot<E> {
    number: u64,
    event: Option<E>,
}

/// Events ordered by time, then by insertion.
///
/// ```
/// # use lockstep_sim::event::Events;
/// # use lockstep_topology::Time;
/// let mut events = Events::new();
/// let late = events.push(Time(20), "late");
/// events.push(Time(10), "first");
/// events.push(Time(10), "second");
/// assert_eq!(events.cancel(late), Some("late"));
/// assert_eq!(events.pop(), Some((Time(10), "first")));
/// assert_eq!(events.pop(), Some((Time(10), "second")));
/// assert_eq!(events.pop(), None);
/// ```
#[derive(Debug, Clone)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    slots: Vec<Slot<E>>,
    free: Vec<u32>,
    pushed: u64,
    live: usize,
}

impl<E> Default for Events<E> {
    fn default() -> Events<E> {
        Events { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), pushed: 0, live: 0 }
    }
}

impl<E> Events<E> {
    /// An empty queue.
    pub fn new() -> Events<E> {
        Events::default()
    }

    /// Schedules `event` at `time`, after everything already scheduled there.
    pub fn push(&mut self, time: Time, event: E) -> EventId {
        self.pushed += 1;
        let number = self.pushed;
        let entry = Slot { number, event: Some(event) };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        self.heap.push(Reverse((time, number, slot)));
        self.live += 1;
        EventId { slot, number }
    }

    /// Takes an event back; `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, id: EventId) -> Option<E> {
        let event = self.take(id.slot, id.number)?;
        if self.heap.len() > 2 * self.live + 64 {
            let slots = &self.slots;
            self.heap.retain(|Reverse((_, number, slot))| is_live(&slots[*slot as usize], *number));
        }
        Some(event)
    }

    /// When the next event is due.
    pub fn next_time(&mut self) -> Option<Time> {
        while let Some(Reverse((time, number, slot))) = self.heap.peek() {
            if is_live(&self.slots[*slot as usize], *number) {
                return Some(*time);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the next event out, with its time.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        while let Some(Reverse((time, number, slot))) = self.heap.pop() {
            if let Some(event) = self.take(slot, number) {
                return Some((time, event));
            }
        }
        None
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn take(&mut self, slot: u32, number: u64) -> Option<E> {
        let entry = self.slots.get_mut(slot as usize).filter(|entry| entry.number == number)?;
        let event = entry.event.take()?;
        self.free.push(slot);
        self.live -= 1;
        Some(event)
    }
}

fn is_live<E>(slot: &Slot<E>, number: u64) -> bool {
    slot.number == number && slot.event.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a test does to the queue: push at a time, cancel the n-th ever pushed, or pop.
    #[derive(Debug, Clone)]
    enum Deed {
        Push(u64),
        Cancel(usize),
        Pop,
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![(0u64..8).prop_map(Deed::Push), (0usize..64).prop_map(Deed::Cancel), Just(Deed::Pop),];
        prop::collection::vec(deed, 0..200)
    }

    proptest! {
        /// The twin is a plain list, searched for the first smallest time.
        #[test]
        fn agrees_with_a_plain_list(deeds in deeds()) {
            let mut events = Events::new();
            let mut ids = Vec::new();
            let mut list: Vec<(u64, usize)> = Vec::new();
            for deed in deeds {
                match deed {
                    Deed::Push(time) => {
                        list.push((time, ids.len()));
                        ids.push(events.push(Time(time), ids.len()));
                    }
                    Deed::Cancel(n) if n < ids.len() => {
                        let at = list.iter().position(|(_, event)| *event == n);
                        prop_assert_eq!(events.cancel(ids[n]), at.map(|at| list.remove(at).1));
                    }
                    Deed::Cancel(_) => {}
                    Deed::Pop => {
                        let at = (0..list.len()).min_by_key(|at| (list[*at].0, *at));
                        let want = at.map(|at| list.remove(at)).map(|(time, event)| (Time(time), event));
                        prop_assert_eq!(events.next_time(), want.map(|(time, _)| time));
                        prop_assert_eq!(events.pop(), want);
                    }
                }
                prop_assert_eq!(events.len(), list.len());
                prop_assert_eq!(events.is_empty(), list.is_empty());
            }
        }
    }

    #[test]
    fn cancelled_entries_do_not_pile_up() {
        let mut events = Events::new();
        for round in 0..10_000 {
            let id = events.push(Time(1_000_000), round);
            assert_eq!(events.cancel(id), Some(round));
        }
        assert!(events.heap.len() <= 65 && events.slots.len() == 1);
    }
}
