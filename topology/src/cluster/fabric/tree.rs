//! `Tree`: models fat trees of any depth as extended generalised fat trees (Öhring et al. 1995), in closed form.
//!
//! A switch of level l is (a, b): a numbers the subtree below it, b its copy among those that serve the same subtree.
//! With m_l children and w_l parents there are a < trees * m_{l+1} … m_L and b < w_2 … w_l. Stars and rails are trees
//! of one level; several trees are rails that are not connected.

use super::choice::{Choice, Routing};

/// A fat tree, or several side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Tree {
    /// The number of unconnected trees.
    pub(in super::super) trees: u32,
    /// Slots under a leaf, leaves under a switch above, …: one number a level.
    pub(in super::super) down: Vec<u32>,
    /// Switches above a leaf, …: one number a level but the last.
    pub(in super::super) up: Vec<u32>,
    /// Cables to each switch above.
    pub(in super::super) parallel: Vec<u32>,
}

/// A wire of a tree: its number among all, and whether it is crossed downwards.
pub(super) type Crossing = (u64, bool);

impl Tree {
    /// The same tree for packets that spread evenly over all ways up: what one level has above each subtree is one switch,
    /// and its cables are one wire; and how many cables each such wire stands for, by level.
    pub(in super::super) fn merged(&self) -> (Tree, Vec<f64>) {
        let cables = (1..self.down.len()).map(|level| {
            let (above, parallel) = self.ways_up(level);
            self.copies(level) as f64 * above as f64 * parallel as f64
        });
        let ones = vec![1; self.up.len()];
        let merged = Tree { trees: self.trees, down: self.down.clone(), up: ones.clone(), parallel: ones };
        (merged, cables.collect())
    }

    /// Slots for hosts.
    pub(in super::super) fn slots(&self) -> u64 {
        self.below(self.down.len()).saturating_mul(u64::from(self.trees))
    }

    /// Slots under one switch of a level.
    fn below(&self, level: usize) -> u64 {
        self.down[..level].iter().fold(1, |product: u64, m| product.saturating_mul(u64::from(*m)))
    }

    /// Copies of a switch of a level that serve the same subtree.
    pub(in super::super) fn copies(&self, level: usize) -> u64 {
        self.up[..level - 1].iter().fold(1, |product: u64, w| product.saturating_mul(u64::from(*w)))
    }

    /// Switches of a level, from 1.
    pub(in super::super) fn switches(&self, level: usize) -> u64 {
        (self.slots() / self.below(level)).saturating_mul(self.copies(level))
    }

    /// Wires from a level to the one above.
    pub(in super::super) fn wires(&self, level: usize) -> u64 {
        self.switches(level).saturating_mul(u64::from(self.up[level - 1]) * u64::from(self.parallel[level - 1]))
    }

    /// Both ends of every wire from a level to the one above, as positions in their levels, in the order of the wires.
    pub(in super::super) fn cables(&self, level: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (copies, above) = (self.copies(level), self.copies(level + 1));
        let (m, w, cables) = (self.down[level], self.up[level - 1], self.parallel[level - 1]);
        (0..self.switches(level)).flat_map(move |switch| {
            let (a, b) = (switch / copies, switch % copies);
            let parent = move |c: u32| a / u64::from(m) * above + b + u64::from(c) * copies;
            (0..w).flat_map(move |c| (0..cables).map(move |_| (switch, parent(c))))
        })
    }

    /// Switches above one of a level, and cables to each.
    pub(in super::super) fn ways_up(&self, level: usize) -> (u64, u64) {
        (u64::from(self.up[level - 1]), u64::from(self.parallel[level - 1]))
    }

    /// The number of a cable from the switch above `slot` with copy `b` of a level to its `c`-th parent.
    pub(in super::super) fn numbered(&self, level: usize, slot: u64, b: u64, c: u64, cable: u64) -> u64 {
        let base = (1..level).map(|level| self.wires(level)).sum::<u64>();
        let (w, cables) = self.ways_up(level);
        let switch = slot / self.below(level) * self.copies(level) + b;
        base + (switch * w + c) * cables + cable
    }

    /// The level of the lowest switch above both slots; `None` where they are in different trees.
    pub(in super::super) fn common_level(&self, from: u64, to: u64) -> Option<usize> {
        (1..=self.down.len()).find(|level| from / self.below(*level) == to / self.below(*level))
    }

    /// The wires between switches from one slot to another, in order.
    pub(in super::super) fn way(&self, from: u64, to: u64, choice: &Choice) -> Option<Vec<Crossing>> {
        let top = self.common_level(from, to)?;
        let mut b = 0;
        let mut ways = Vec::with_capacity(2 * top);
        for level in 1..top {
            let (w, cables) = self.ways_up(level);
            let pick = self.pick(level, to, choice, level as u64, w * cables);
            ways.push((self.numbered(level, from, b, pick % w, pick / w), false));
            b += pick % w * self.copies(level);
        }
        for level in (1..top).rev() {
            let (w, cables) = self.ways_up(level);
            let (below, c) = (b % self.copies(level), b / self.copies(level));
            let cable = match choice.routing {
                Routing::DModK => self.pick(level, to, choice, 0, w * cables) / w,
                _ => self.pick(level, to, choice, 64 + level as u64, cables),
            };
            ways.push((self.numbered(level, to, below, c, cable), true));
            b = below;
        }
        Some(ways)
    }

    /// Which of `options` equal ways a message to slot `to` takes at a level.
    fn pick(&self, level: usize, to: u64, choice: &Choice, salt: u64, options: u64) -> u64 {
        match choice.routing {
            Routing::Ecmp => choice.hash(salt) % options,
            Routing::DModK => {
                let passed = (1..level).map(|l| u64::from(self.up[l - 1]) * u64::from(self.parallel[l - 1]));
                to / passed.fold(1, |product: u64, n| product.saturating_mul(n)).max(1) % options
            }
            _ => 0,
        }
    }

    /// The least of the summed rates that join two halves of the slots, each half being whole subtrees; `rates` are
    /// those of a host's wire and of a wire up from each level.
    pub(in super::super) fn bisection(&self, ports: u64, rates: &[f64]) -> f64 {
        let hosts = (ports / 2) as f64 * rates[0];
        if self.trees > 1 {
            return 0.0;
        }
        let up = (1..self.down.len()).map(|level| self.wires(level) as f64 / 2.0 * rates[level]);
        up.fold(hosts, f64::min)
    }

    /// `down [18, 8], up [6], parallel [2]`.
    pub(in super::super) fn shown(&self) -> String {
        let mut text = format!("down {:?}", self.down);
        if !self.up.is_empty() {
            text += &format!(", up {:?}, parallel {:?}", self.up, self.parallel);
        }
        if self.trees > 1 { format!("{} x {text}", self.trees) } else { text }
    }

    /// The downward ports of a switch of `ports` ports with `oversubscription` times as many down as up; `None` where
    /// none is left.
    pub(in super::super) fn leaf_of_ports(ports: u32, oversubscription: f64) -> Option<u32> {
        let up = ((f64::from(ports) / (1.0 + oversubscription)).round() as u32).max(1);
        ports.checked_sub(up).filter(|down| *down > 0)
    }

    /// The tree of switches of `ports` ports, each level but the last with `oversubscription` times as many ports down
    /// as up, for `hosts` hosts; `None` where such switches make no tree.
    pub(in super::super) fn of_ports(hosts: u64, ports: u32, oversubscription: f64) -> Option<Tree> {
        let down = Tree::leaf_of_ports(ports, oversubscription)?;
        let up = ports - down;
        let mut tree = Tree { trees: 1, down: Vec::new(), up: Vec::new(), parallel: Vec::new() };
        let mut left = hosts;
        while left > u64::from(ports) {
            // Switches of one port down add no capacity to the tree.
            if down < 2 || tree.down.len() > 32 {
                return None;
            }
            tree.down.push(down);
            tree.up.push(up);
            tree.parallel.push(1);
            left = left.div_ceil(u64::from(down));
        }
        tree.down.push(left.max(1) as u32);
        Some(tree)
    }
}
