//! Keeps state between updates: components, the results for them, and what a repair reaches.

use super::choice::Choice;
use super::classes::{Classes, NONE};
use super::resource::Resource;
use super::share;

/// A component: its classes and tight resources.
#[derive(Debug, Clone)]
pub(super) struct Component {
    pub(super) groups: Vec<u32>,
    pub(super) resources: Vec<u32>,
    /// The class that represents it in the schedule, or none.
    pub(super) leader: u32,
    /// Whether its speeds were found by filling, so that each class's draft names its bottleneck.
    pub(super) filled: bool,
    /// The cost of that, in classes and users visited, and the number of classes that it had.
    pub(super) cost: u64,
    pub(super) solved: u64,
}

impl Default for Component {
    fn default() -> Component {
        Component { groups: Vec::new(), resources: Vec::new(), leader: NONE, filled: false, cost: 0, solved: 1 }
    }
}

impl Component {
    /// The cost of solving all of it now, estimated from the last time.
    pub(super) fn whole(&self) -> u64 {
        self.cost * self.groups.len() as u64 / self.solved
    }

    /// Adds a class and those of its tight resources that are not in; `by` is the search that all of it carries.
    pub(super) fn join(&mut self, class: u32, by: u64, classes: &mut Classes, resources: &mut [Resource]) {
        let group = &mut classes.groups[class as usize];
        if group.seen != by {
            group.seen = by;
            group.place = self.groups.len() as u32;
            self.groups.push(class);
        }
        for link in &classes.links[group.range()] {
            let resource = &mut resources[link.resource as usize];
            if resource.tight && resource.seen != by {
                resource.seen = by;
                self.resources.push(link.resource);
            }
        }
    }
}

/// The classes that a repair reaches and their tight resources; kept to save the allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Reached {
    pub(super) groups: Vec<u32>,
    pub(super) resources: Vec<u32>,
    /// The users of these, all together.
    pub(super) users: u64,
}

/// State kept between settlings, most of it to save its allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    /// Resources whose demand has changed, and whether they were tight before.
    pub(super) changed: Vec<(u32, bool)>,
    /// Touched classes that have members.
    pub(super) alive: Vec<u32>,
    pub(super) seeds: Vec<u32>,
    /// The component found last.
    pub(super) found: Component,
    pub(super) kept: Component,
    /// The largest component that the present settling has found, if it is to be kept.
    pub(super) fresh: Component,
    pub(super) keeping: Keeping,
    /// The search that found the kept component, which its classes and resources carry; zero: none is kept.
    pub(super) kept_by: u64,
    /// Attached classes that are uneven.
    pub(super) uneven: usize,
    /// Whether a class of it was detached since the last settling.
    pub(super) left: bool,
    /// Settlings for which it may still be used.
    pub(super) turns: u32,
    /// Whether that component is repaired; kept from one search to the next, as the component found is mostly
    /// the kept one.
    pub(super) choice: Choice,
    /// Classes that are about to join a component.
    pub(super) joining: Vec<u32>,
    pub(super) reached: Reached,
    pub(super) share: share::Scratch,
}

/// Which components are kept, and for how long.
#[derive(Debug, Clone)]
pub(super) struct Keeping {
    /// Classes from which on a component is kept.
    pub(super) large: usize,
    /// Settlings for which a kept component is used before it is searched again.
    pub(super) stretch: u32,
}

impl Default for Keeping {
    fn default() -> Keeping {
        Keeping { large: 32, stretch: 256 }
    }
}
