//! Models bursts: after a pause, a link with a token bucket passes some bytes faster than its bandwidth.
//!
//! In t seconds it passes at most min(M + p t, b + r t) bytes, with r its bandwidth, b the burst, p the peak rate and M
//! what passes at once (RFC 2212, section 1, and the token bucket of RFC 2215, section 3.6). Each of both terms is a
//! bucket of the generic cell rate algorithm (ITU-T I.371): its state is the time at which it is full again.

use std::collections::BTreeMap;

use lockstep_topology::Time;
use lockstep_topology::cluster::{Burst, Link};

use super::Carrier;
use crate::fluid::ResourceId;

/// Levels of a message's load on links with bursts: of its bytes, none to all take of the links' bandwidth. Its load on
/// other resources is whole at every level.
pub(super) const LEVELS: u32 = 8;

/// The part of a path that bursts concern.
#[derive(Debug)]
pub(crate) struct BurstPath {
    /// Its links with bursts.
    pub(super) links: Vec<u32>,
    /// The carrier of each level, from 0 to [`LEVELS`].
    pub(super) carriers: Vec<Carrier>,
}

/// Bytes of a message that flow at one level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) carrier: Carrier,
    pub(crate) bytes: f64,
}

/// All links with bursts on paths.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    known: BTreeMap<ResourceId, u32>,
    shapers: Vec<Shaper>,
    /// When the buckets of links will be full that no path has crossed yet, in the order of their first use.
    first: Waits,
}

/// Seconds until the buckets of links are full.
pub(crate) type Waits = Vec<[Time; 2]>;

/// The two buckets of a link: at the peak rate, and at its bandwidth.
#[derive(Debug)]
struct Shaper {
    buckets: [Bucket; 2],
}

#[derive(Debug)]
struct Bucket {
    /// Bytes that it holds.
    size: f64,
    /// Bytes that it gains per second.
    bytes_per_s: f64,
    /// When it is full, unless more bytes pass.
    full: Time,
}

impl Bucket {
    /// The seconds that `bytes` take from `at` on, if no others pass.
    fn pass(&mut self, bytes: f64, at: Time) -> f64 {
        let full = self.full.max(at);
        let tokens = (self.size - self.bytes_per_s * (full - at).as_secs_f64()).max(0.0);
        self.full = full + Time::from_secs_f64(bytes / self.bytes_per_s);
        (bytes - tokens).max(0.0) / self.bytes_per_s
    }
}

impl Bursts {
    /// The number of the link whose wire this resource is.
    pub(super) fn of(&mut self, wire: ResourceId, link: &Link, burst: Burst) -> u32 {
        let next = self.shapers.len() as u32;
        let shaper = *self.known.entry(wire).or_insert(next);
        if shaper == next {
            let rate = link.payload().bytes_per_s();
            let full = self.first.get(shaper as usize).copied().unwrap_or_default();
            let bucket = |bytes: u64, bytes_per_s: f64, full| Bucket { size: bytes as f64, bytes_per_s, full };
            let buckets = [bucket(burst.at_once.0, rate * burst.peak, full[0]), bucket(burst.bytes.0, rate, full[1])];
            self.shapers.push(Shaper { buckets });
        }
        shaper
    }

    /// Passes `bytes` from `at` on: returns those that take as long at the links' bandwidth, and the pieces that flow, one
    /// after the other.
    pub(crate) fn pass(&mut self, path: &BurstPath, bytes: f64, at: Time) -> (f64, [Option<Piece>; 2]) {
        // The slowest link decides. Another link may be emptier and yet pass the bytes sooner, since its rate is higher.
        let (mut longest, mut loaded) = (0.0, 0.0);
        for link in &path.links {
            let buckets = &mut self.shapers[*link as usize].buckets;
            let seconds = buckets.iter_mut().map(|bucket| bucket.pass(bytes, at)).fold(0.0, f64::max);
            if seconds > longest {
                (longest, loaded) = (seconds, bytes.min(seconds * buckets[1].bytes_per_s));
            }
        }
        // Two levels whose mean is that of the bytes.
        let level = f64::from(LEVELS) * loaded / bytes;
        let below = level.floor();
        let piece = |level: f64, share: f64| {
            let carrier = path.carriers[level.min(f64::from(LEVELS)) as usize];
            (share > 0.0).then_some(Piece { carrier, bytes: share * bytes })
        };
        (loaded, [piece(below, 1.0 + below - level), piece(below + 1.0, level - below)])
    }

    /// The times from `now` until each bucket is full.
    pub(crate) fn waits(&self, now: Time) -> Waits {
        let left = |bucket: &Bucket| bucket.full.max(now) - now;
        self.shapers.iter().map(|Shaper { buckets: [peak, own] }| [left(peak), left(own)]).collect()
    }

    /// Links as they are after a run that ended with these waits.
    pub(crate) fn after(first: Waits) -> Bursts {
        Bursts { first, ..Bursts::default() }
    }
}
