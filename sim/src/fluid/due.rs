//! Finds when the classes of a component are done at their new speeds; the first of them represents it in the schedule.

use lockstep_topology::Time;

use super::classes::{Classes, NONE, Pace};
use super::system::System;
use super::work::Component;

/// The class seen so far that is done first, followed in a chain by those that end at the same time.
struct First {
    due: Time,
    class: u32,
    peers: u32,
}

impl First {
    const NONE: First = First { due: Time::MAX, class: NONE, peers: NONE };

    fn see(&mut self, class: u32, pace: &mut Pace) {
        if pace.due < self.due {
            *self = First { due: pace.due, class, peers: NONE };
        } else if pace.due == self.due {
            pace.next_due = self.peers;
            self.peers = class;
        }
    }
}

impl Classes {
    /// Sets a class to the speed in its draft, and finds when it is done.
    fn set_pace(&mut self, class: u32, now: Time) -> &mut Pace {
        let (pace, speed) = (&mut self.paces[class as usize], self.drafts[class as usize].speed);
        if pace.speed != speed || pace.due == Time::MAX {
            pace.set(speed, now);
        }
        pace
    }
}

impl System {
    /// Sets the speeds of a component that was solved, and enters its next completion into the schedule.
    pub(super) fn set_all_paces(&mut self, component: &mut Component) {
        let mut first = First::NONE;
        for class in &component.groups {
            first.see(*class, self.classes.set_pace(*class, self.now));
        }
        self.retap_all(&component.groups);
        self.lead(component, &first);
    }

    /// As [`System::set_all_paces`], for a class that is a component by itself.
    pub(super) fn lead_alone(&mut self, class: u32) {
        let pace = self.classes.set_pace(class, self.now);
        pace.next_due = NONE;
        let due = pace.due;
        if due < Time::MAX {
            self.classes.groups[class as usize].leads = true;
            self.schedule.set(class, due);
        } else {
            self.unschedule(class);
        }
        self.retap_all(&[class]);
    }

    /// As [`System::set_all_paces`], where only `reached` have new speeds.
    pub(super) fn set_paces(&mut self, component: &mut Component, reached: &[u32]) {
        for class in reached {
            self.classes.set_pace(*class, self.now);
        }
        self.retap_all(reached);
        let mut first = First::NONE;
        for class in &component.groups {
            first.see(*class, &mut self.classes.paces[*class as usize]);
        }
        self.lead(component, &first);
    }

    fn retap_all(&mut self, groups: &[u32]) {
        // The first class with taps makes capacities change.
        if self.capacities > 0 {
            groups.iter().for_each(|class| self.retap(*class));
        }
    }

    /// Enters a component's next completion into the schedule.
    fn lead(&mut self, component: &mut Component, first: &First) {
        let before = std::mem::replace(&mut component.leader, first.class);
        if before != NONE && before != first.class && self.classes.groups[before as usize].seen == self.work.kept_by {
            self.unschedule(before);
        }
        if first.class != NONE {
            self.classes.paces[first.class as usize].next_due = first.peers;
            self.classes.groups[first.class as usize].leads = true;
            self.schedule.set(first.class, first.due);
        }
    }
}
