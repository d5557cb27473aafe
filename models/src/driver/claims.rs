//! Assigns the micro-batches of an iteration to ranks that claim them: first come, first served, round-robin, or from a
//! record.

use lockstep_topology::{InputError, Time};

use super::Observation;

/// A micro-batch that a rank got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its iteration.
    pub iteration: u32,
    /// The rank.
    pub rank: u32,
    /// Its number within the iteration's global batch.
    pub micro_batch: u32,
    /// The time, on the run's clock.
    pub at: Time,
}

/// The answer to a rank that asks for a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// This one, as a number within the iteration's global batch.
    Take(u32),
    /// None: this iteration has no more for it.
    Nothing,
    /// None yet: it is another rank's turn. The rank asks again.
    Wait,
}

/// The rule by which micro-batches are assigned.
#[derive(Debug, Clone)]
enum Rule {
    /// First come, first served.
    FirstCome {
        /// Micro-batches in an iteration.
        batches: u32,
        /// By iteration, how many are taken.
        taken: Vec<u32>,
    },
    /// Round-robin, to each rank its own.
    InTurn {
        workers: u32,
        /// Micro-batches of each in an iteration.
        each: u32,
        /// How many have been assigned since the run began.
        given: u64,
    },
    /// By rank, its iterations and micro-batches, in reverse order.
    Replay(Vec<Vec<(u32, u32)>>),
}

/// The micro-batches of each iteration, and the ranks that got them.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    rule: Rule,
    record: Vec<Claim>,
}

impl Default for Claims {
    /// None for any rank.
    fn default() -> Claims {
        Claims::first_come(0)
    }
}

impl Claims {
    /// `batches` micro-batches an iteration, first come, first served.
    pub(super) fn first_come(batches: u32) -> Claims {
        Claims { rule: Rule::FirstCome { batches, taken: Vec::new() }, record: Vec::new() }
    }

    /// `each` micro-batches an iteration for each of `workers` ranks, round-robin: one for every rank in rank order,
    /// then a second one, and so on.
    pub(super) fn in_turn(workers: u32, each: u32) -> Claims {
        Claims { rule: Rule::InTurn { workers, each, given: 0 }, record: Vec::new() }
    }

    /// What `record` says, for `workers` ranks.
    pub(super) fn replay(batches: u32, workers: u32, steps: u32, record: &[Claim]) -> Result<Claims, InputError> {
        let wrong = |value: String, message: &str| Err(InputError::flag("replay", value, message));
        let mut seen = vec![false; batches as usize * steps as usize];
        let mut replayed = vec![Vec::new(); workers as usize];
        for claim in record.iter().filter(|claim| claim.iteration < steps) {
            let Claim { iteration, rank, micro_batch, .. } = *claim;
            let text = format!("iteration {iteration}, rank {rank}, micro-batch {micro_batch}");
            if rank >= workers || micro_batch >= batches {
                return wrong(text, "is none of this program: replay a log with the settings that it was written with");
            }
            let place = iteration as usize * batches as usize + micro_batch as usize;
            if std::mem::replace(&mut seen[place], true) {
                return wrong(text, "is given twice in the log");
            }
            replayed[rank as usize].push((iteration, micro_batch));
        }
        if let Some(place) = seen.iter().position(|seen| !seen) {
            let (iteration, batch) = (place / batches as usize, place % batches as usize);
            let text = format!("iteration {iteration}, micro-batch {batch}");
            return wrong(text, "is missing in the log: replay no more steps than it was written with");
        }
        replayed.iter_mut().for_each(|of_rank| of_rank.reverse());
        Ok(Claims { rule: Rule::Replay(replayed), record: Vec::new() })
    }

    /// Whether it answers from a record.
    pub(super) fn replays(&self) -> bool {
        matches!(self.rule, Rule::Replay(_))
    }

    /// The rank of the next micro-batch, where they are assigned round-robin.
    pub(super) fn turn(&self) -> Option<u32> {
        match self.rule {
            Rule::InTurn { workers, given, .. } => Some((given % u64::from(workers)) as u32),
            _ => None,
        }
    }

    /// The answer to a rank that is free.
    pub(super) fn take(&mut self, observation: &Observation) -> ClaimAnswer {
        let Observation { rank, iteration, at } = *observation;
        let turn = self.turn();
        let micro_batch = match &mut self.rule {
            Rule::Replay(by_rank) => {
                let of_rank = by_rank.get_mut(rank as usize);
                let Some((_, micro_batch)) = of_rank.and_then(|all| all.pop_if(|(of, _)| *of == iteration)) else {
                    return ClaimAnswer::Nothing;
                };
                micro_batch
            }
            Rule::FirstCome { batches, taken } => {
                let index = iteration as usize;
                if taken.len() <= index {
                    taken.resize(index + 1, 0);
                }
                let next = taken[index];
                if next >= *batches {
                    return ClaimAnswer::Nothing;
                }
                taken[index] += 1;
                next
            }
            Rule::InTurn { workers, each, given } => {
                if turn != Some(rank) {
                    return ClaimAnswer::Wait;
                }
                let round = *given / u64::from(*workers);
                *given += 1;
                rank * *each + (round % u64::from(*each)) as u32
            }
        };
        self.record.push(Claim { iteration, rank, micro_batch, at });
        ClaimAnswer::Take(micro_batch)
    }

    pub(super) fn record(&self) -> &[Claim] {
        &self.record
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(claims: &mut Claims, iteration: u32, rank: u32) -> ClaimAnswer {
        claims.take(&Observation { rank, iteration, at: Time(u64::from(rank)) })
    }

    fn ask(claims: &mut Claims, iteration: u32, rank: u32) -> Option<u32> {
        match answer(claims, iteration, rank) {
            ClaimAnswer::Take(micro_batch) => Some(micro_batch),
            ClaimAnswer::Nothing => None,
            ClaimAnswer::Wait => panic!("no learner waits where there are no turns"),
        }
    }

    #[test]
    fn a_learner_out_of_turn_waits() {
        // Two ranks with two batches each: 0 and 1 are rank 0's, 2 and 3 rank 1's.
        let mut claims = Claims::in_turn(2, 2);
        let asked = [(0, 1), (0, 0), (0, 0), (0, 1), (0, 0), (1, 0), (0, 1), (1, 1), (1, 0), (1, 1)];
        let got = asked.map(|(iteration, rank)| answer(&mut claims, iteration, rank));
        use ClaimAnswer::{Take, Wait};
        assert_eq!(got, [Wait, Take(0), Wait, Take(2), Take(1), Wait, Take(3), Wait, Take(0), Take(2)]);
        assert_eq!((claims.turn(), claims.record().len()), (Some(0), 6));
        // A replay need not wait.
        let mut replay = Claims::replay(4, 2, 1, claims.record()).unwrap();
        assert_eq!([1, 1, 0, 0].map(|rank| ask(&mut replay, 0, rank)), [Some(2), Some(3), Some(0), Some(1)]);
    }

    #[test]
    fn the_first_to_ask_is_served_first() {
        let mut claims = Claims::first_come(3);
        // Rank 1 is fast, and is in the next iteration before rank 0 has asked at all.
        assert_eq!([1, 1, 0, 1].map(|rank| ask(&mut claims, 0, rank)), [Some(0), Some(1), Some(2), None]);
        assert_eq!((ask(&mut claims, 1, 1), ask(&mut claims, 0, 0), ask(&mut claims, 1, 0)), (Some(0), None, Some(1)));
        assert_eq!(claims.record().len(), 5);
    }

    proptest! {
        #[test]
        fn a_record_replays_in_any_order_of_requests(
            asks in prop::collection::vec(0u32..4, 200), batches in 1u32..9, backwards: bool,
        ) {
            // Each rank asks until it gets no more, iteration by iteration.
            let mut claims = Claims::first_come(batches);
            let mut at = [0u32; 4];
            for rank in asks.into_iter().chain((0..4).flat_map(|rank| [rank; 40])) {
                if at[rank as usize] < 4 && ask(&mut claims, at[rank as usize], rank).is_none() {
                    at[rank as usize] += 1;
                }
            }
            let record = claims.record().to_vec();
            prop_assert_eq!(record.len() as u32, 4 * batches);
            let mut replay = Claims::replay(batches, 4, 4, &record).unwrap();
            let ranks: Vec<u32> = if backwards { (0..4).rev().collect() } else { (0..4).collect() };
            for rank in ranks {
                for iteration in 0..4 {
                    let wanted: Vec<u32> = record.iter().filter(|c| (c.rank, c.iteration) == (rank, iteration))
                        .map(|c| c.micro_batch).collect();
                    let got: Vec<u32> = std::iter::from_fn(|| ask(&mut replay, iteration, rank)).collect();
                    prop_assert_eq!(got, wanted);
                }
            }
        }
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused() {
        let claim = |iteration, rank, micro_batch| Claim { iteration, rank, micro_batch, at: Time::ZERO };
        for (record, message) in [
            (vec![claim(0, 0, 0)], "is missing"),
            (vec![claim(0, 0, 0), claim(0, 1, 0)], "is given twice"),
            (vec![claim(0, 2, 0), claim(0, 1, 1)], "none of this program"),
            (vec![claim(0, 1, 0), claim(0, 1, 2)], "none of this program"),
        ] {
            let error = Claims::replay(2, 2, 1, &record).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        // Later iterations of a longer log do not matter.
        assert!(Claims::replay(2, 2, 1, &[claim(0, 0, 0), claim(1, 0, 0), claim(0, 0, 1)]).is_ok());
    }
}
