//! `Front`: finds the undominated points of one question, by throughput and ranks, and the knee.
//!
//! A point beats another with as many or fewer ranks and as many or more images per second, one of them strictly. With
//! a fixed number of samples per step that is step time against ranks; with a fixed number per rank, throughput.

use std::collections::BTreeSet;

/// A doubling of the ranks pays off if it multiplies the throughput by at least this: half of the possible gain.
pub const PAYS: f64 = 1.5;

/// Points in the order of their ranks, each with more images/s than all before it.
#[derive(Debug, Clone)]
pub struct Front<T> {
    best: Vec<(u32, f64, T)>,
    /// Numbers of ranks that any point had.
    tried: BTreeSet<u32>,
}

impl<T> Default for Front<T> {
    fn default() -> Front<T> {
        Front { best: Vec::new(), tried: BTreeSet::new() }
    }
}

impl<T> Front<T> {
    /// Adds a point with this many ranks and images/s; of equal ones the first stays.
    pub fn add(&mut self, ranks: u32, images_per_s: f64, point: impl FnOnce() -> T) {
        self.tried.insert(ranks);
        let at = self.best.partition_point(|(fewer, ..)| *fewer < ranks);
        let beaten = |best: Option<&(u32, f64, T)>| best.is_some_and(|best| best.1 >= images_per_s);
        let same = self.best.get(at).filter(|best| best.0 == ranks);
        if beaten(at.checked_sub(1).and_then(|before| self.best.get(before))) || beaten(same) {
            return;
        }
        let end = at + self.best[at..].iter().take_while(|best| best.1 <= images_per_s).count();
        self.best.splice(at..end, [(ranks, images_per_s, point())]);
    }

    /// The points of the front, by ranks.
    pub fn points(&self) -> impl Iterator<Item = &T> {
        self.best.iter().map(|(_, _, point)| point)
    }

    /// The most ranks that any point had.
    pub fn widest(&self) -> Option<u32> {
        self.tried.last().copied()
    }

    /// For each point of the front, the throughput with up to twice its ranks over its own, where twice as
    /// many were tried.
    pub fn gains(&self) -> Vec<Option<f64>> {
        let gain = |(ranks, images_per_s, _): &(u32, f64, T)| {
            let twice = ranks.checked_mul(2).filter(|twice| self.tried.contains(twice))?;
            let within = self.best.partition_point(|(ranks, ..)| *ranks <= twice);
            Some(self.best[within - 1].1 / images_per_s)
        };
        self.best.iter().map(gain).collect()
    }

    /// The position of the first point after which no doubling pays off; `None` where the last known one does.
    pub fn knee(&self) -> Option<usize> {
        let known: Vec<(usize, f64)> =
            self.gains().into_iter().enumerate().filter_map(|(at, gain)| Some((at, gain?))).collect();
        known.iter().rev().take_while(|(_, gain)| *gain < PAYS).last().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Directly from the definition: each point against each other.
    fn quadratic(points: &[(u32, f64)]) -> Vec<usize> {
        let beats = |a: usize, b: usize| {
            let ((ranks, images), (more, fewer)) = (points[a], points[b]);
            ranks <= more && images >= fewer && (ranks < more || images > fewer || a < b)
        };
        let mut front: Vec<usize> =
            (0..points.len()).filter(|b| !(0..points.len()).any(|a| a != *b && beats(a, *b))).collect();
        front.sort_by_key(|point| points[*point].0);
        front
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_front_is_the_undominated_points(points in proptest::collection::vec((1u32..12, 0u8..12), 0..40)) {
            let points: Vec<(u32, f64)> = points.into_iter().map(|(ranks, images)| (ranks, f64::from(images))).collect();
            let mut front = Front::default();
            for (index, (ranks, images)) in points.iter().enumerate() {
                front.add(*ranks, *images, || index);
            }
            prop_assert_eq!(front.points().copied().collect::<Vec<_>>(), quadratic(&points));
        }
    }

    fn front(points: &[(u32, f64)]) -> Front<()> {
        let mut front = Front::default();
        points.iter().for_each(|(ranks, images)| front.add(*ranks, *images, || ()));
        front
    }

    #[test]
    fn the_knee_is_the_last_doubling_that_pays() {
        // 100, 190, 340, 450, 500: gains of 1.9, 1.79, 1.32 and 1.11, so the knee is at 4 ranks.
        let bent = front(&[(1, 100.0), (2, 190.0), (4, 340.0), (8, 450.0), (16, 500.0)]);
        assert_eq!(bent.knee(), Some(2));
        assert_eq!(bent.gains()[4], None);
        // The first doubling starts to communicate and gains little; later ones pay off.
        assert_eq!(front(&[(1, 100.0), (2, 120.0), (4, 235.0), (8, 460.0)]).knee(), None);
        // More ranks that are slower leave the front, and the doubling to them gains nothing.
        let worse = front(&[(8, 100.0), (16, 90.0)]);
        assert_eq!((worse.gains(), worse.knee(), worse.widest()), (vec![Some(1.0)], Some(0), Some(16)));
        // 8 to 1024 is no doubling: nothing is known.
        assert_eq!(front(&[(8, 100.0), (1024, 5000.0)]).knee(), None);
    }
}
