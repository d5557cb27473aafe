//! Keeps the classes of a fast system: activities with the same cap and uses, as one group with one speed.
//!
//! A group counts its progress since it became busy, the same for all its members, so a change of speed touches the
//! group and not each member; a member is done when the progress reaches the mark set at its start. Slots and ranges
//! of uses are recycled, because an all-to-all among 4,096 ranks has 16 million routes and few of them at a time.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use lockstep_topology::Time;

use super::Use;
use super::draft::Draft;
use super::resource::Fill;

/// No group, no member of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// A use of a resource by a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) resource: u32,
    /// The group's position in the resource's list of users, while it is attached.
    pub(super) slot: u32,
    pub(super) per_speed: f64,
}

/// One activity of a group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Member {
    /// The group's progress at which it is done.
    pub(super) mark: f64,
    pub(super) number: u64,
    pub(super) token: u64,
}

impl Ord for Member {
    /// Reversed, so that the binary heap's greatest is the first to be done.
    fn cmp(&self, other: &Member) -> Ordering {
        other.mark.total_cmp(&self.mark).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Member {
    fn partial_cmp(&self, other: &Member) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Member) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Member {}

/// Members that wait behind the first to be done.
pub(super) type Others = BinaryHeap<Member>;

/// The properties of a class, and what the solver looks up; as large as a cache line.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(super) struct Group {
    pub(super) cap: f64,
    /// The largest speed that cap and capacities allow, as of the last attachment or start alone.
    pub(super) bound: f64,
    /// The last search (by number) that visited it.
    pub(super) seen: u64,
    /// Its position in the kept component, if it belongs to that.
    pub(super) place: u32,
    /// Members that the shares were last solved for; not zero: the group is in its resources' lists.
    pub(super) attached: u32,
    pub(super) first_use: u32,
    pub(super) uses: u32,
    /// Requests for the class that were not released.
    pub(super) pins: u32,
    /// The next class of the same hash.
    chain: u32,
    /// Whether all its uses are the same per speed, and what it takes of wires is its speed.
    pub(super) even: bool,
    /// Whether its members have changed since the shares were last solved.
    pub(super) touched: bool,
    /// Whether it represents its component in the schedule.
    pub(super) leads: bool,
    /// Whether its only member has all its resources to itself, and is in no list.
    pub(super) alone: bool,
    /// Whether it taps resources, and whether it shares one that is tapped.
    pub(super) taps: bool,
    pub(super) sapped: bool,
    /// The version of the capacities for which `bound` was computed.
    pub(super) bound_as_of: u64,
}

impl Group {
    /// The range of its uses.
    pub(super) fn range(&self) -> Range<usize> {
        self.first_use as usize..(self.first_use + self.uses) as usize
    }
}

/// The progress of a group's members; the first to be done is stored here, the others wait in a separate heap.
///
/// As large as a cache line, since most events touch one and nothing else of its kind.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(super) struct Pace {
    /// Speed of each member since `last`.
    pub(super) speed: f64,
    /// Work done for each member up to `last`, counted since the group became busy.
    pub(super) progress: f64,
    pub(super) last: Time,
    /// When the first member is done, at the present speed; [`Time::MAX`] where that has to be recomputed.
    pub(super) due: Time,
    /// How many members there are.
    pub(super) members: u32,
    /// The next group of the component that ends at the same time.
    pub(super) next_due: u32,
    /// The member that is done first, if there are members.
    pub(super) first: Member,
}

impl Pace {
    /// Starts over at `now`, with `member` alone at `speed`.
    pub(super) fn restart(&mut self, member: Member, speed: f64, now: Time) {
        (self.first, self.members) = (member, 1);
        (self.progress, self.last, self.speed) = (0.0, now, speed);
        self.due = now + Time(super::picoseconds(member.mark, speed));
    }

    /// Counts the progress up to `now`.
    pub(super) fn catch_up(&mut self, now: Time) {
        self.progress += super::work_between(self.speed, self.last, now);
        self.last = now;
    }

    /// Continues at `speed` from `now` on.
    pub(super) fn set(&mut self, speed: f64, now: Time) {
        self.catch_up(now);
        self.speed = speed;
        self.due = now + Time(super::picoseconds(self.first.mark - self.progress, speed));
    }

    /// Counts the progress up to `now`; returns whether the first member still ends at the scheduled time.
    pub(super) fn keeps_due(&mut self, now: Time) -> bool {
        self.catch_up(now);
        self.due == now + Time(super::picoseconds(self.first.mark - self.progress, self.speed))
    }

    /// Adds a member, after those with the same mark.
    pub(super) fn push(&mut self, member: Member, others: &mut Others) {
        self.members += 1;
        if self.members == 1 {
            self.first = member;
        } else if member > self.first {
            others.push(std::mem::replace(&mut self.first, member));
        } else {
            others.push(member);
        }
    }

    /// Removes the first member.
    pub(super) fn pop(&mut self, others: &mut Others) -> Member {
        self.members -= 1;
        match self.members {
            0 => self.first,
            _ => others.pop().map_or(self.first, |next| std::mem::replace(&mut self.first, next)),
        }
    }

    /// Removes the member of this number.
    pub(super) fn take(&mut self, number: u64, others: &mut Others) -> Option<Member> {
        if self.members == 0 {
            return None;
        }
        if self.first.number == number {
            return Some(self.pop(others));
        }
        let member = *others.iter().find(|member| member.number == number)?;
        others.retain(|member| member.number != number);
        self.members -= 1;
        Some(member)
    }
}

/// Hashes are mixed before they get here.
#[derive(Debug, Clone, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    (product >> 64) as u64 ^ product as u64
}

fn hash(cap: f64, uses: &[Use]) -> u64 {
    uses.iter()
        .fold(mix(0, cap.to_bits()), |hash, used| mix(mix(hash, u64::from(used.resource.0)), used.per_speed.to_bits()))
}

/// The taps of a class and the rate for which they count now.
#[derive(Debug, Clone, Default)]
pub(super) struct Taps {
    pub(super) uses: Vec<Use>,
    pub(super) rate: f64,
}

/// All classes, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Classes {
    pub(super) groups: Vec<Group>,
    pub(super) paces: Vec<Pace>,
    /// The members of each class but the first to be done.
    pub(super) others: Vec<Others>,
    pub(super) drafts: Vec<Draft>,
    /// The cell of each class, or [`NONE`].
    pub(super) cells: Vec<u32>,
    pub(super) links: Vec<Link>,
    /// The use of resources that each class taps and does not share.
    pub(super) taps: Vec<Taps>,
    /// The first class of each hash; only looked up, never iterated.
    table: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    free_groups: Vec<u32>,
    /// Free ranges of `links`, by length.
    free_links: Vec<Vec<u32>>,
}

impl Classes {
    /// The class of `cap` and normalised `uses`, pinned once more.
    pub(super) fn intern(&mut self, cap: f64, uses: &[Use], fills: &[Fill]) -> u32 {
        let hash = hash(cap, uses);
        let first = self.table.get(&hash).copied().unwrap_or(NONE);
        let mut class = first;
        while class != NONE {
            if self.is(class, cap, uses) {
                self.groups[class as usize].pins += 1;
                return class;
            }
            class = self.groups[class as usize].chain;
        }
        let class = self.insert(cap, uses, first, fills);
        self.table.insert(hash, class);
        class
    }

    /// The properties of a class, and its progress.
    pub(super) fn both(&mut self, class: u32) -> (&mut Group, &mut Pace) {
        (&mut self.groups[class as usize], &mut self.paces[class as usize])
    }

    fn is(&self, class: u32, cap: f64, uses: &[Use]) -> bool {
        let group = &self.groups[class as usize];
        let links = &self.links[group.range()];
        let same = |link: &Link, used: &Use| link.resource == used.resource.0 && link.per_speed == used.per_speed;
        group.cap == cap && links.len() == uses.len() && links.iter().zip(uses).all(|(link, used)| same(link, used))
    }

    fn insert(&mut self, cap: f64, uses: &[Use], chain: u32, fills: &[Fill]) -> u32 {
        let links = uses.iter().map(|used| Link { resource: used.resource.0, slot: NONE, per_speed: used.per_speed });
        let first_use = match self.free_links.get_mut(uses.len()).and_then(Vec::pop) {
            Some(first) => {
                links.zip(&mut self.links[first as usize..]).for_each(|(link, place)| *place = link);
                first
            }
            None => {
                self.links.extend(links);
                (self.links.len() - uses.len()) as u32
            }
        };
        let group = Group {
            cap,
            first_use,
            uses: uses.len() as u32,
            pins: 1,
            chain,
            even: uses.windows(2).all(|pair| pair[0].per_speed == pair[1].per_speed)
                && uses.iter().all(|used| used.per_speed == 1.0 || !fills[used.resource.0 as usize].by_speed),
            bound_as_of: u64::MAX,
            ..Group::default()
        };
        match self.free_groups.pop() {
            Some(class) => {
                // The pace of a class without members is undefined.
                self.groups[class as usize] = group;
                self.taps[class as usize] = Taps::default();
                class
            }
            None => {
                self.groups.push(group);
                self.paces.push(Pace::default());
                self.others.push(Others::default());
                self.drafts.push(Draft::default());
                self.cells.push(NONE);
                self.taps.push(Taps::default());
                (self.groups.len() - 1) as u32
            }
        }
    }

    /// Drops a class that has no pins and no members; its number is reused.
    pub(super) fn forget(&mut self, class: u32) {
        let group = &self.groups[class as usize];
        let (first_use, length, next) = (group.first_use, group.uses as usize, group.chain);
        let uses: Vec<Use> = self.links[group.range()]
            .iter()
            .map(|link| Use { resource: super::ResourceId(link.resource), per_speed: link.per_speed })
            .collect();
        let hash = hash(group.cap, &uses);
        match self.table.get(&hash).copied() {
            Some(first) if first != class => {
                let mut before = first;
                while self.groups[before as usize].chain != class {
                    before = self.groups[before as usize].chain;
                }
                self.groups[before as usize].chain = next;
            }
            _ if next == NONE => drop(self.table.remove(&hash)),
            _ => drop(self.table.insert(hash, next)),
        }
        if self.free_links.len() <= length {
            self.free_links.resize(length + 1, Vec::new());
        }
        self.free_links[length].push(first_use);
        self.free_groups.push(class);
    }

    /// Updates the draft of a class for its members and for which resources are tight.
    pub(super) fn redraft(&mut self, class: u32, is_tight: impl Fn(u32) -> bool) {
        let (group, draft) = (&self.groups[class as usize], &mut self.drafts[class as usize]);
        let links = &self.links[group.range()];
        (draft.attached, draft.even, draft.tight) = (group.attached, group.even, 0);
        draft.per_speed = links.first().map_or(0.0, |link| link.per_speed);
        for link in links.iter().filter(|link| is_tight(link.resource)) {
            if let Some(place) = draft.first.get_mut(usize::from(draft.tight)) {
                *place = link.resource;
            }
            draft.tight = draft.tight.saturating_add(1);
        }
    }
}
