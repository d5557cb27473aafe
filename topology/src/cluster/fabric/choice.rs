//! `Routing`: chooses among equal routes, by number or by a seeded hash of source and destination.

use super::super::DeviceId;

/// How a route is chosen among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Routing {
    /// The one with the lowest numbers, always.
    #[default]
    Lowest,
    /// At each fork by a seeded hash of source, destination and flow: equal-cost multi-path.
    Ecmp,
    /// In fat trees: at each level by the destination's number, modulo the uplinks (Zahavi 2012).
    DModK,
    /// In tori: one dimension after the other.
    DimensionOrder,
    /// In fat trees: the packets of each message over all equal ways, evenly (Shalev et al. 2020, SRD; adaptive routing).
    Spray,
}

crate::named!(Routing, "routing":
    Lowest = "lowest", Ecmp = "ecmp", DModK = "d-mod-k", DimensionOrder = "dimension-order", Spray = "spray");

/// What a choice among equal routes depends on.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Choice {
    pub(in super::super) routing: Routing,
    pub(in super::super) seed: u64,
    pub(in super::super) from: DeviceId,
    pub(in super::super) to: DeviceId,
    pub(in super::super) flow: u32,
}

impl Choice {
    /// The random number of a fork (`salt`).
    pub(in super::super) fn hash(&self, salt: u64) -> u64 {
        let pair = u64::from(self.from.0) << 32 | u64::from(self.to.0);
        [pair, u64::from(self.flow), salt].into_iter().fold(mix(self.seed), |state, word| mix(state ^ mix(word)))
    }
}

/// SplitMix64's step and finaliser (Steele et al. 2014).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
