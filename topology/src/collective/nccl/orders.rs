//! Finds the orders of rings among the GPUs of a node: cycles through all of them, as many and as fast as the wires
//! carry at once.
//!
//! Speeds are tried downwards. At each one cycles are found depth first, the fastest next hop first, and each takes its
//! speed from its wires; both directions of a cycle are taken together where they fit (NVIDIA/nccl,
//! `src/graph/search.cc`). The search ends after a number of steps, as NCCL's does.

use std::collections::BTreeMap;

/// Seconds that a byte takes on each wire of a hop, by the wire's number, and for the copies of a pair of GPUs.
pub(super) type Uses = Vec<(u64, f64)>;

/// The hops from each member of a node to each other one, by both.
pub(super) type Hops = BTreeMap<(usize, usize), Uses>;

/// Speeds that are tried, in GB/s: NCCL's.
const SPEEDS: [f64; 27] = [
    90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 28.0, 24.0, 22.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0,
    4.0, 3.0, 2.4, 1.2, 0.6, 0.24, 0.12,
];

/// Steps of a search at one speed.
const STEPS: u32 = 3000;

/// The most cycles.
const MOST: usize = 16;

/// Cycles through `members` members whose hops are all there, where some may be missing; `None` where the search finds none.
pub(super) fn cycles_of(hops: &Hops, members: usize) -> Option<Vec<Vec<usize>>> {
    let natural: Vec<usize> = (0..members).collect();
    let whole = |cycle: &Vec<usize>| steps(cycle).all(|step| hops.contains_key(&step));
    let of_whole = |cycles: &[Vec<usize>]| if cycles.iter().all(whole) { rate(hops, cycles) } else { 0.0 };
    let best = improved(hops, members, both(natural), of_whole);
    best.iter().all(whole).then_some(best)
}

/// Cycles through `members` members, none of which need be fast: their order and its reverse where nothing is better.
pub(super) fn cycles(hops: &Hops, members: usize) -> Vec<Vec<usize>> {
    let natural: Vec<usize> = (0..members).collect();
    improved(hops, members, both(natural), |cycles| rate(hops, cycles))
}

/// The cycles with the highest `rate`: those that are found, or `best`.
fn improved(
    hops: &Hops,
    members: usize,
    mut best: Vec<Vec<usize>>,
    rate: impl Fn(&[Vec<usize>]) -> f64,
) -> Vec<Vec<usize>> {
    if members < 2 {
        return best;
    }
    let mut most = rate(&best);
    for speed in SPEEDS {
        let bound = bound(hops, members, speed * 1e9);
        if bound == 0 || bound as f64 * speed * 1e9 <= most * 1.001 {
            continue;
        }
        let mut search = Search { hops, members, speed: speed * 1e9, bound, steps: STEPS, best: Vec::new() };
        search.grow(&mut BTreeMap::new(), &mut vec![0], &mut Vec::new());
        let found = rate(&search.best);
        if found > most * 1.001 {
            (most, best) = (found, search.best);
        }
    }
    best
}

/// Bytes per second that all members send on cycles with equal parts: the narrowest wire's.
pub(super) fn rate(hops: &Hops, cycles: &[Vec<usize>]) -> f64 {
    let taken = cycles.iter().flat_map(|cycle| steps(cycle)).filter_map(|step| hops.get(&step));
    narrowest(taken, cycles.len() as f64)
}

/// Bytes per second of `parts` equal parts, each of which takes some of these hops.
pub(super) fn narrowest<'a>(taken: impl Iterator<Item = &'a Uses>, parts: f64) -> f64 {
    let mut wires: BTreeMap<u64, f64> = BTreeMap::new();
    for (wire, seconds) in taken.flatten() {
        *wires.entry(*wire).or_default() += seconds;
    }
    let busiest = wires.into_values().fold(0.0, f64::max);
    if busiest > 0.0 {
        parts / busiest
    } else if parts > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}

/// The hops of a cycle.
fn steps(cycle: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    cycle.iter().copied().zip(cycle.iter().copied().cycle().skip(1))
}

/// A cycle and its reverse.
fn both(cycle: Vec<usize>) -> Vec<Vec<usize>> {
    let backwards = cycle.iter().rev().copied().collect();
    vec![cycle, backwards]
}

/// The most cycles of a speed: what the wires next to each member carry.
fn bound(hops: &Hops, members: usize, speed: f64) -> usize {
    let of = |member: usize| {
        // The wires that the hops of a member do not share with each other are its own.
        let mut firsts: BTreeMap<u64, f64> = BTreeMap::new();
        for (_, uses) in hops.range((member, 0)..(member + 1, 0)) {
            if let Some((wire, seconds)) = uses.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)) {
                firsts.insert(wire, seconds);
            }
        }
        firsts.into_values().map(|seconds| (1.0 / (seconds * speed) + 1e-3) as usize).sum::<usize>()
    };
    (0..members).map(of).min().unwrap_or(0).min(MOST)
}

/// A search at one speed.
struct Search<'a> {
    hops: &'a Hops,
    members: usize,
    speed: f64,
    bound: usize,
    steps: u32,
    best: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Extends `path`; `used` is the share of each wire that is taken. Returns whether the search is over.
    fn grow(&mut self, used: &mut BTreeMap<u64, f64>, path: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) -> bool {
        if self.steps == 0 {
            return true;
        }
        self.steps -= 1;
        let last = path[path.len() - 1];
        if path.len() == self.members {
            return self.fits(used, (last, path[0])) && self.close(used, path, found);
        }
        let mut next: Vec<(f64, usize)> = (0..self.members)
            .filter(|member| !path.contains(member) && self.fits(used, (last, *member)))
            .map(|member| (self.left(used, (last, member)), member))
            .collect();
        next.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        for (_, member) in next {
            self.take(used, (last, member), 1.0);
            path.push(member);
            let over = self.grow(used, path, found);
            path.pop();
            self.take(used, (last, member), -1.0);
            if over {
                return true;
            }
        }
        false
    }

    /// Adds the cycle `path`, backwards too where that fits, and looks for the next one.
    fn close(&mut self, used: &mut BTreeMap<u64, f64>, path: &[usize], found: &mut Vec<Vec<usize>>) -> bool {
        let forth = (path[path.len() - 1], path[0]);
        self.take(used, forth, 1.0);
        found.push(path.to_vec());
        let backwards: Vec<usize> = path.iter().rev().copied().collect();
        let mut taken = Vec::new();
        for step in steps(&backwards) {
            if self.members < 3 || !self.fits(used, step) {
                break;
            }
            self.take(used, step, 1.0);
            taken.push(step);
        }
        let doubled = taken.len() == self.members;
        if doubled {
            found.push(backwards);
        } else {
            taken.drain(..).for_each(|step| self.take(used, step, -1.0));
        }
        if found.len() > self.best.len() {
            self.best.clone_from(found);
        }
        let over = self.best.len() >= self.bound || self.grow(used, &mut vec![0], found);
        if doubled {
            found.pop();
            taken.into_iter().for_each(|step| self.take(used, step, -1.0));
        }
        found.pop();
        self.take(used, forth, -1.0);
        over
    }

    /// Whether a hop's wires have this speed left.
    fn fits(&self, used: &BTreeMap<u64, f64>, step: (usize, usize)) -> bool {
        self.left(used, step) >= self.speed * 0.999
    }

    /// Bytes per second that a hop's wires have left.
    fn left(&self, used: &BTreeMap<u64, f64>, step: (usize, usize)) -> f64 {
        let Some(uses) = self.hops.get(&step) else { return 0.0 };
        let wires = uses.iter().map(|(wire, seconds)| (1.0 - used.get(wire).copied().unwrap_or(0.0)) / seconds);
        wires.fold(f64::MAX, f64::min)
    }

    fn take(&self, used: &mut BTreeMap<u64, f64>, step: (usize, usize), sign: f64) {
        for (wire, seconds) in self.hops.get(&step).into_iter().flatten() {
            *used.entry(*wire).or_default() += sign * seconds * self.speed;
        }
    }
}
