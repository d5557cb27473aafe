//! Keeps the state of a resource: its users, what they could use, and what filling assigns.

/// No activity uses the resource.
pub(super) const FREE: u32 = u32::MAX;
/// Its users are in its list.
pub(super) const SHARED: u32 = u32::MAX - 1;

/// Demand within this share of the capacity counts as filling it: sums kept by adding and subtracting drift a little.
const MARGIN: f64 = 1e-6;

/// How classes with taps use a resource.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Role {
    /// They tap it.
    pub(super) tapped: bool,
    /// They share it with others.
    pub(super) shared: bool,
}

/// A group's entry in the list of a resource's users: the group, and which of the links is its use.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) group: u32,
    pub(super) link: u32,
    /// The use of the resource by an activity of the group at its bound.
    pub(super) limit: f64,
}

/// A resource and its users.
#[derive(Debug, Clone, Default)]
pub(super) struct Resource {
    /// The capacity to share, after taps.
    pub(super) capacity: f64,
    /// The capacity without taps.
    pub(super) nominal: f64,
    /// The use by taps, and the number of classes that tap.
    pub(super) tapped: f64,
    pub(super) tapping: u32,
    pub(super) role: Role,
    /// Whether their use has changed since the users were updated.
    pub(super) sapped: bool,
    /// The use by its users if each ran at its own bound.
    pub(super) demand: f64,
    /// How many activities use it.
    pub(super) crowd: f64,
    /// Whether that demand may fill it; only then it joins its users into one component.
    pub(super) tight: bool,
    /// The settling (by number) that last noted it as changed.
    pub(super) changed: u64,
    /// The last search (by number) that visited it.
    pub(super) seen: u64,
    /// A lower bound on the limits of its users.
    pub(super) lowest: f64,
    pub(super) users: Vec<User>,
    /// The cell that it belongs to, or [`NONE`](super::classes::NONE).
    pub(super) cell: u32,
}

impl Resource {
    /// Whether its users could fill it. The use of a single activity is part of its bound.
    pub(super) fn could_fill(&self) -> bool {
        self.crowd > 1.0 && self.demand > self.capacity * (1.0 - MARGIN)
    }
}

/// The fields of a resource for progressive filling and the sweeps, kept separate so that they stay in the cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fill {
    /// Capacity that is not given out yet.
    pub(super) rest: f64,
    /// Activities that have no speed yet.
    pub(super) waiting: f64,
    /// The level, where sweeps look for it.
    pub(super) level: f64,
    /// Whether a repair gives it out.
    pub(super) asked: bool,
    /// Whether it equalises speeds: it is a wire.
    pub(super) by_speed: bool,
}

impl Fill {
    /// The level at which an activity that takes `per_speed` runs at speed 1, and how much of the resource each unit
    /// of the level is.
    pub(super) fn weights(&self, per_speed: f64) -> (f64, f64) {
        if self.by_speed { (1.0, per_speed) } else { (per_speed, 1.0) }
    }

    /// What each waiting activity gets of the rest; infinite where none waits.
    pub(super) fn level(&self) -> f64 {
        if self.waiting > 0.0 { self.rest / self.waiting } else { f64::INFINITY }
    }
}
