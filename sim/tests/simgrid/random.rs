//! Draws seeded random numbers for cases, so that the seed in a failure's message repeats it.

/// SplitMix64 (Steele et al. 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound` − 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `low` to `high`, each order of magnitude as likely as another.
    pub(crate) fn log(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// True once in `n` times on average.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Two different numbers below `bound`.
    pub(crate) fn pair(&mut self, bound: u64) -> (u32, u32) {
        let from = self.below(bound);
        let to = (from + 1 + self.below(bound - 1)) % bound;
        (from as u32, to as u32)
    }

    /// 0 to `count` − 1 in some order (Fisher and Yates).
    pub(crate) fn order(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.below(place as u64 + 1) as usize);
        }
        order
    }
}
