//! Claims: who gets which micro-batch of an iteration, first come, first served or as it was once before.

use lockstep_topology::{InputError, Time};

use super::Observation;

/// A micro-batch that a rank got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Of which iteration.
    pub iteration: u32,
    /// Who.
    pub rank: u32,
    /// Its number within the iteration's global batch.
    pub micro_batch: u32,
    /// When, on the run's clock.
    pub at: Time,
}

/// The micro-batches of each iteration, and who got them.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims {
    /// Micro-batches in an iteration.
    batches: u32,
    /// By iteration, how many are gone.
    taken: Vec<u32>,
    /// By rank, what it gets: iteration and micro-batch, in the reverse order; empty where nothing is replayed.
    replayed: Vec<Vec<(u32, u32)>>,
    record: Vec<Claim>,
}

impl Claims {
    /// `batches` micro-batches an iteration, for whoever comes first.
    pub(super) fn first_come(batches: u32) -> Claims {
        Claims { batches, ..Claims::default() }
    }

    /// What `record` says, for `workers` ranks.
    pub(super) fn replay(batches: u32, workers: u32, steps: u32, record: &[Claim]) -> Result<Claims, InputError> {
        let wrong = |value: String, message: &str| Err(InputError::new("--replay", value, message));
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
                return wrong(text, "stands twice in the log");
            }
            replayed[rank as usize].push((iteration, micro_batch));
        }
        if let Some(place) = seen.iter().position(|seen| !seen) {
            let (iteration, batch) = (place / batches as usize, place % batches as usize);
            let text = format!("iteration {iteration}, micro-batch {batch}");
            return wrong(text, "is missing in the log: replay no more steps than it was written with");
        }
        replayed.iter_mut().for_each(|of_rank| of_rank.reverse());
        Ok(Claims { batches, replayed, ..Claims::default() })
    }

    /// Whether it answers as was answered once.
    pub(super) fn replays(&self) -> bool {
        !self.replayed.is_empty()
    }

    /// The answer to a rank that is free.
    pub(super) fn take(&mut self, observation: &Observation) -> Option<u32> {
        let Observation { rank, iteration, at } = *observation;
        let micro_batch = match self.replayed.get_mut(rank as usize) {
            Some(of_rank) => of_rank.pop_if(|(of, _)| *of == iteration)?.1,
            None => {
                let index = iteration as usize;
                if self.taken.len() <= index {
                    self.taken.resize(index + 1, 0);
                }
                let next = self.taken[index];
                if next >= self.batches {
                    return None;
                }
                self.taken[index] += 1;
                next
            }
        };
        self.record.push(Claim { iteration, rank, micro_batch, at });
        Some(micro_batch)
    }

    pub(super) fn record(&self) -> &[Claim] {
        &self.record
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(claims: &mut Claims, iteration: u32, rank: u32) -> Option<u32> {
        claims.take(&Observation { rank, iteration, at: Time(u64::from(rank)) })
    }

    #[test]
    fn who_comes_first_is_served_first() {
        let mut claims = Claims::first_come(3);
        // Rank 1 is quick, and is in the next iteration before rank 0 has asked at all.
        assert_eq!([1, 1, 0, 1].map(|rank| ask(&mut claims, 0, rank)), [Some(0), Some(1), Some(2), None]);
        assert_eq!((ask(&mut claims, 1, 1), ask(&mut claims, 0, 0), ask(&mut claims, 1, 0)), (Some(0), None, Some(1)));
        assert_eq!(claims.record().len(), 5);
    }

    proptest! {
        #[test]
        fn a_record_replays_in_any_order_of_asking(
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
            (vec![claim(0, 0, 0), claim(0, 1, 0)], "stands twice"),
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
