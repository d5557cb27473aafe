//! Finds detours: routes between two ports of a fabric some of whose wires have failed.
//!
//! A flow whose own route is intact keeps it. Otherwise it chooses again among the remaining wires, by the rule of its
//! first choice: the first, another hash, or the next digit of the destination's number. So the traffic of a failed
//! spine spreads over the others. In a torus it takes a shortest remaining way.

use std::collections::BTreeMap;

use super::choice::{Choice, Routing};
use super::torus::Torus;
use super::tree::{Crossing, Tree};

/// Salts of the second choice, beyond those of the first.
const AGAIN: u64 = 1 << 10;

impl Tree {
    /// The wires between switches from one slot to another, all of which `whole` accepts; `None` where there
    /// are none left.
    pub(super) fn detour(
        &self,
        from: u64,
        to: u64,
        choice: &Choice,
        whole: &dyn Fn(Crossing) -> bool,
    ) -> Option<Vec<Crossing>> {
        let top = self.common_level(from, to)?;
        self.rise(1, top, (from, to), 0, choice, whole)
    }

    /// Continues from the switch with copy `b` of a level, up to level `top` and down again.
    fn rise(
        &self,
        level: usize,
        top: usize,
        (from, to): (u64, u64),
        b: u64,
        choice: &Choice,
        whole: &dyn Fn(Crossing) -> bool,
    ) -> Option<Vec<Crossing>> {
        if level == top {
            return self.descend(top, to, b, choice, whole);
        }
        let (w, cables) = self.ways_up(level);
        let up = |pick: u64| (self.numbered(level, from, b, pick % w, pick / w), false);
        let mut left: Vec<u64> = (0..w * cables).filter(|pick| whole(up(*pick))).collect();
        while !left.is_empty() {
            let pick = left.remove(self.again(level, to, choice, level as u64, left.len()));
            let copy = b + pick % w * self.copies(level);
            if let Some(rest) = self.rise(level + 1, top, (from, to), copy, choice, whole) {
                return Some(std::iter::once(up(pick)).chain(rest).collect());
            }
        }
        None
    }

    /// Down from the switch with copy `b` of level `top`: only the cable to each next switch can be chosen.
    fn descend(
        &self,
        top: usize,
        to: u64,
        mut b: u64,
        choice: &Choice,
        whole: &dyn Fn(Crossing) -> bool,
    ) -> Option<Vec<Crossing>> {
        let mut ways = Vec::with_capacity(top);
        for level in (1..top).rev() {
            let (below, c) = (b % self.copies(level), b / self.copies(level));
            let down = |cable: u64| (self.numbered(level, to, below, c, cable), true);
            let left: Vec<u64> = (0..self.ways_up(level).1).filter(|cable| whole(down(*cable))).collect();
            if left.is_empty() {
                return None;
            }
            ways.push(down(left[self.again(level, to, choice, 64 + level as u64, left.len())]));
            b = below;
        }
        Some(ways)
    }

    /// Picks one of the `left` remaining ways.
    fn again(&self, level: usize, to: u64, choice: &Choice, salt: u64, left: usize) -> usize {
        let pick = match choice.routing {
            Routing::Ecmp => choice.hash(AGAIN + salt),
            Routing::DModK => {
                let passed = (1..=level).map(|l| self.ways_up(l)).map(|(w, cables)| w * cables);
                to / passed.fold(1, |product: u64, n| product.saturating_mul(n)).max(1)
            }
            _ => 0,
        };
        (pick % left as u64) as usize
    }
}

impl Torus {
    /// A shortest way between two slots over wires that `whole` accepts, lower dimensions and upward steps first.
    pub(super) fn detour(&self, from: u64, to: u64, whole: &dyn Fn(Crossing) -> bool) -> Option<Vec<Crossing>> {
        let [from, to] = [from, to].map(|slot| slot / u64::from(self.per_router));
        let mut back: BTreeMap<u64, (u64, Crossing)> = BTreeMap::new();
        let mut frontier = vec![from];
        while !frontier.is_empty() && !back.contains_key(&to) && from != to {
            let mut next = Vec::new();
            for router in frontier {
                for (crossing, far) in self.neighbours(router).filter(|(crossing, _)| whole(*crossing)) {
                    if far != from && !back.contains_key(&far) {
                        back.insert(far, (router, crossing));
                        next.push(far);
                    }
                }
            }
            frontier = next;
        }
        let mut ways = Vec::new();
        let mut at = to;
        while at != from {
            let (before, crossing) = back.get(&at)?;
            ways.push(*crossing);
            at = *before;
        }
        ways.reverse();
        Some(ways)
    }
}
