//! Schedules the next completion of each connected component of a system: a heap whose entries can be moved.
//!
//! A component changes its prediction at each event that touches it, so an entry is moved in place; leaving stale ones
//! behind would let the heap outgrow the system.

use lockstep_topology::Time;

const NOWHERE: u32 = u32::MAX;

/// Items (small numbers) with a time each, the earliest on top; equal times in no particular, but repeatable, order.
#[derive(Debug, Clone, Default)]
pub(super) struct Schedule {
    heap: Vec<(Time, u32)>,
    /// The position of each item in the heap.
    places: Vec<u32>,
}

impl Schedule {
    /// The earliest item and its time.
    pub(super) fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Enters `item` at `time`, or moves it there.
    pub(super) fn set(&mut self, item: u32, time: Time) {
        if item as usize >= self.places.len() {
            self.places.resize(item as usize + 1, NOWHERE);
        }
        let mut place = self.places[item as usize] as usize;
        if place == NOWHERE as usize {
            place = self.heap.len();
            self.heap.push((time, item));
        }
        let place = self.rise(place, (time, item));
        self.sink(place, (time, item));
    }

    /// Removes `item`, if it is in.
    pub(super) fn remove(&mut self, item: u32) {
        let Some(place) = self.places.get(item as usize).copied().filter(|place| *place != NOWHERE) else { return };
        self.places[item as usize] = NOWHERE;
        let Some(last) = self.heap.pop() else { return };
        if last.1 != item {
            let place = self.rise(place as usize, last);
            self.sink(place, last);
        }
    }

    /// Moves later entries above `place` down until `entry` fits there; returns that position.
    fn rise(&mut self, mut place: usize, entry: (Time, u32)) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= entry.0 {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        place
    }

    /// Moves earlier entries below `place` up and puts `entry` into its position.
    fn sink(&mut self, mut place: usize, entry: (Time, u32)) {
        loop {
            let mut child = 2 * place + 1;
            if child + 1 < self.heap.len() && self.heap[child + 1].0 < self.heap[child].0 {
                child += 1;
            }
            if child >= self.heap.len() || self.heap[child].0 >= entry.0 {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The reference is a sorted map, searched for its earliest time; `None` removes.
        #[test]
        fn agrees_with_a_map(deeds in prop::collection::vec((0u32..20, prop::option::of(0u64..50)), 0..300)) {
            let mut schedule = Schedule::default();
            let mut map = BTreeMap::new();
            for (item, time) in deeds {
                match time {
                    Some(time) => {
                        schedule.set(item, Time(time));
                        map.insert(item, Time(time));
                    }
                    None => {
                        schedule.remove(item);
                        map.remove(&item);
                    }
                }
                prop_assert_eq!(schedule.first().map(|(time, _)| time), map.values().min().copied());
                prop_assert!(schedule.first().is_none_or(|(time, item)| map[&item] == time));
            }
        }
    }
}
