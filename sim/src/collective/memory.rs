//! Estimates the memory that the simulation of a collective takes, before it begins.
//!
//! A rank keeps what it has sent to each other rank, with the path there: its links, their share in the fluid solver,
//! and its queue. So what counts is the number of pairs that exchange messages: 65,535 × 65,536 of them where 65,536
//! ranks send to each other directly.

use std::collections::BTreeSet;

use lockstep_topology::{Action, Bytes, InputError, Schedule};

/// Bytes of a pair of ranks that exchange messages over links, and of a rank without its pairs, as measured on clusters
/// of up to 1,024 hosts (`direct` of 256 to 1,024 ranks, `halving-doubling` and `ring` of 4,096 and 8,192): at the
/// lower end, so that no simulation that fits is refused.
const PAIR: u64 = 1_300;
const RANK: u64 = 3_000;

/// Members whose partners are counted; those of the others are assumed to be as many.
const COUNTED: u32 = 16;

/// Most steps of a member that are looked at.
const MOST_STEPS: usize = 1 << 20;

/// The estimate for `ranks` simulated members.
pub(super) struct Estimate {
    members: u32,
    ranks: u32,
    pub(super) pairs: u64,
    bytes: u64,
}

impl Estimate {
    pub(super) fn of(schedule: &Schedule, ranks: u32) -> Estimate {
        let places =
            (0..COUNTED.min(ranks)).map(|at| (u64::from(at) * u64::from(ranks) / u64::from(COUNTED.min(ranks))) as u32);
        let mut partners: Vec<u64> = places.map(|member| partners(schedule, member)).collect();
        partners.sort_unstable();
        // A root has many, and there are few of them.
        let usual = partners.get(partners.len() / 2).copied().unwrap_or(0);
        let pairs = usual * u64::from(ranks) + partners.last().map_or(0, |most| most - usual);
        Estimate {
            members: schedule.members(),
            ranks,
            pairs,
            bytes: pairs.saturating_mul(PAIR).saturating_add(u64::from(ranks) * RANK),
        }
    }

    /// Refuses a simulation that takes more than `memory` bytes.
    ///
    /// # Errors
    /// The estimate, what is there, and what takes less.
    pub(super) fn check(&self, memory: u64) -> Result<(), InputError> {
        if self.bytes <= memory {
            return Ok(());
        }
        let message = format!(
            "{} pairs of {} simulated ranks exchange messages, which takes at least {}, and this host has {} left: use \
             fewer ranks, or an algorithm with fewer partners for each, e.g. ring or halving-doubling",
            self.pairs,
            self.ranks,
            Bytes(self.bytes),
            Bytes(memory)
        );
        Err(InputError::flag("ranks", self.members.to_string(), message))
    }
}

/// How many others a member sends to.
fn partners(schedule: &Schedule, member: u32) -> u64 {
    let steps = (0..schedule.lanes()).flat_map(|index| schedule.lane(member, index)).take(MOST_STEPS);
    let to: BTreeSet<u32> = steps.filter(|step| step.action == Action::Send).map(|step| step.peer).collect();
    to.len() as u64
}

#[cfg(test)]
mod tests {
    use lockstep_topology::{Algorithm, Collective, Group};

    use super::*;

    /// Closed forms: everyone to everyone else, log₂ p partners, the next one, and a root with all the others.
    #[test]
    fn pairs_by_hand() {
        let of = |algorithm: &str, ranks: u32| {
            let algorithm: Algorithm = algorithm.parse().unwrap();
            let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(ranks), 1 << 20, 0).unwrap();
            Estimate::of(&schedule, ranks).pairs
        };
        assert_eq!(of("direct", 64), 64 * 63);
        assert_eq!(of("direct", 65_536), 65_536 * 65_535);
        assert_eq!(of("halving-doubling", 1024), 1024 * 10);
        assert_eq!(of("ring", 1000), 1000);
        assert_eq!(of("parameter-server:1", 64), 64 + 62);
    }

    #[test]
    fn an_estimate_beyond_the_memory_is_refused_with_a_cure() {
        let schedule =
            Schedule::new(&Collective::AllReduce, &"direct".parse().unwrap(), &Group::flat(65_536), 1 << 18, 0)
                .unwrap();
        let estimate = Estimate::of(&schedule, 65_536);
        assert_eq!(estimate.check(u64::MAX), Ok(()));
        let refused = estimate.check(64 << 30).unwrap_err().to_string();
        assert!(refused.contains("4294901760 pairs") && refused.contains("64GiB left: use fewer ranks"), "{refused}");
    }
}
