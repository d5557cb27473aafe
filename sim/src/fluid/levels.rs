//! `Levels`: keeps the levels that may be reached next in a heap with four children per node; its top mostly rises a
//! little.
//!
//! Progressive filling spends a third of its time here. Four children are adjacent in a cache line, and are compared as
//! whole numbers.

/// A level (a consumption) and its resource, as one number that sorts by level and then by resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stop(u128);

impl Stop {
    fn new(at: f64, whose: u32) -> Stop {
        // The order of `f64::total_cmp`, as unsigned numbers.
        let bits = at.to_bits();
        let rising = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        Stop(u128::from(rising) << 32 | u128::from(whose))
    }

    fn at(self) -> f64 {
        let rising = (self.0 >> 32) as u64;
        f64::from_bits(if rising >> 63 == 1 { rising & !(1 << 63) } else { !rising })
    }

    fn whose(self) -> u32 {
        self.0 as u32
    }
}

/// The levels of a component's resources that are still to be reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    heap: Vec<Stop>,
}

impl Levels {
    /// Restarts with these levels, each with its resource.
    pub(super) fn restart(&mut self, levels: impl Iterator<Item = (f64, u32)>) {
        self.heap.clear();
        self.heap.extend(levels.map(|(at, whose)| Stop::new(at, whose)));
        for place in (0..self.heap.len().div_ceil(4)).rev() {
            self.sink(place, self.heap[place]);
        }
    }

    /// The lowest level, and of equal ones that of the first resource.
    pub(super) fn first(&self) -> Option<(f64, u32)> {
        self.heap.first().map(|stop| (stop.at(), stop.whose()))
    }

    /// Raises the lowest level.
    pub(super) fn raise_first(&mut self, at: f64) {
        if let Some(first) = self.heap.first() {
            self.sink(0, Stop::new(at, first.whose()));
        }
    }

    /// Removes the lowest level.
    pub(super) fn remove_first(&mut self) {
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sink(0, last);
        }
    }

    /// Moves lower levels below `place` up and puts `stop` into its position.
    fn sink(&mut self, mut place: usize, stop: Stop) {
        loop {
            let first = 4 * place + 1;
            let (lowest, child) = match self.heap.get(first..first + 4) {
                Some(&[a, b, c, d]) => {
                    let (ab, at_ab) = if b < a { (b, 1) } else { (a, 0) };
                    let (cd, at_cd) = if d < c { (d, 3) } else { (c, 2) };
                    if cd < ab { (cd, first + at_cd) } else { (ab, first + at_ab) }
                }
                _ => match (first..self.heap.len()).map(|child| (self.heap[child], child)).min() {
                    Some(least) => least,
                    None => break,
                },
            };
            if stop < lowest {
                break;
            }
            self.heap[place] = lowest;
            place = child;
        }
        self.heap[place] = stop;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reference is a list that is sorted each time. Levels may be equal, infinite, and below zero by rounding.
        #[test]
        fn agrees_with_a_sorted_list(
            start in prop::collection::vec(prop_oneof![-1e-9..2.0f64, Just(1.0), Just(0.0), Just(f64::INFINITY)], 0..80),
            raises in prop::collection::vec(prop::option::of(0.0..1.0f64), 0..120),
        ) {
            let mut list: Vec<(f64, u32)> = start.into_iter().zip(0..).collect();
            let mut levels = Levels::default();
            levels.restart(list.iter().copied());
            for raise in raises {
                list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                prop_assert_eq!(levels.first(), list.first().copied());
                match (raise, list.first_mut()) {
                    (_, None) => {}
                    (None, Some(_)) => {
                        levels.remove_first();
                        list.remove(0);
                    }
                    (Some(raise), Some(first)) => {
                        first.0 += raise;
                        levels.raise_first(first.0);
                    }
                }
            }
        }
    }
}
