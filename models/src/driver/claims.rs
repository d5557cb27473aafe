//! Assigns the micro-batches of an iteration to ranks that claim them: first come, first served, round-robin, or from a
//! record. Each rank gets equally many (Koliousis et al. 2019, §4.3: one learning task for each model replica).

use lockstep_topology::{ErrorPlace, InputError, Time};

use super::Observation;
use super::pools::Pools;

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
    /// None yet: it is another rank's turn. The rank asks again.
    Wait,
}

/// The rule by which micro-batches are assigned.
#[derive(Debug, Clone)]
enum Rule {
    /// First come, first served, within a pool.
    FirstCome {
        pools: Pools,
        /// By pool, then by iteration: how many are taken.
        taken: Vec<Vec<u32>>,
    },
    /// Round-robin within a pool, to each rank its own.
    InTurn {
        pools: Pools,
        /// By pool: how many have been assigned since the run began.
        given: Vec<u64>,
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
        Claims::first_come(Pools::default())
    }
}

impl Claims {
    /// First come, first served, from the ranks' pools.
    pub(super) fn first_come(pools: Pools) -> Claims {
        let taken = vec![Vec::new(); pools.count()];
        Claims { rule: Rule::FirstCome { pools, taken }, record: Vec::new() }
    }

    /// Round-robin within each pool: one for every rank in rank order, then a second one, and so on.
    pub(super) fn in_turn(pools: Pools) -> Claims {
        let given = vec![0; pools.count()];
        Claims { rule: Rule::InTurn { pools, given }, record: Vec::new() }
    }

    /// What `record` says, for `workers` ranks with `each` micro-batches an iteration.
    pub(super) fn replay(each: u32, workers: u32, steps: u32, record: &[Claim]) -> Result<Claims, InputError> {
        let wrong = |value: String, message: &str| Err(InputError::flag("replay", value, message));
        let batches = workers * each;
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
        for (rank, of_rank) in replayed.iter_mut().enumerate() {
            let mut got = vec![0; steps as usize];
            of_rank.iter().for_each(|(iteration, _)| got[*iteration as usize] += 1);
            if let Some(iteration) = got.iter().position(|got| *got != each) {
                let message = format!(
                    "has {} micro-batches in the log, and each learner takes {each} an iteration: record a new log with {} \
                     (earlier versions gave fast learners more)",
                    got[iteration],
                    ErrorPlace::Flag("driver_log")
                );
                return wrong(format!("iteration {iteration}, rank {rank}"), &message);
            }
            of_rank.sort_by_key(|(iteration, _)| *iteration);
            of_rank.reverse();
        }
        Ok(Claims { rule: Rule::Replay(replayed), record: Vec::new() })
    }

    /// What a reader of results must know of the assignment.
    pub(super) fn note(&self) -> Option<&'static str> {
        match &self.rule {
            Rule::FirstCome { pools, .. } | Rule::InTurn { pools, .. } if pools.are_of_one() => Some(
                "each learner is alone in its process: it takes its own batches and waits for no turn, so first-come and \
                 round-robin change nothing",
            ),
            _ => None,
        }
    }

    /// The pools, where batches are assigned first come, first served.
    pub(super) fn pools(&self) -> Option<&Pools> {
        match &self.rule {
            Rule::FirstCome { pools, .. } if pools.count() > 0 => Some(pools),
            _ => None,
        }
    }

    /// The micro-batch that the record gives `rank` after the next `number` ones; `None` without a record, or at its end.
    pub(super) fn recorded(&self, rank: u32, number: usize) -> Option<u32> {
        let Rule::Replay(by_rank) = &self.rule else { return None };
        by_rank.get(rank as usize)?.iter().rev().nth(number).map(|(_, micro_batch)| *micro_batch)
    }

    /// Whether it answers from a record.
    pub(super) fn replays(&self) -> bool {
        matches!(self.rule, Rule::Replay(_))
    }

    /// The rank that gets the next micro-batch of the pool of `rank`, where they are assigned round-robin.
    pub(super) fn turn(&self, rank: u32) -> Option<u32> {
        let Rule::InTurn { pools, given } = &self.rule else { return None };
        let pool = pools.of(rank);
        let ranks = pools.ranks(pool);
        Some(ranks[(given[pool as usize] % ranks.len() as u64) as usize])
    }

    /// The answer to a rank that is free; it asks as often in an iteration as it has micro-batches.
    pub(super) fn take(&mut self, observation: &Observation) -> ClaimAnswer {
        let Observation { rank, iteration, at } = *observation;
        let turn = self.turn(rank);
        let micro_batch = match &mut self.rule {
            Rule::Replay(by_rank) => {
                let next = by_rank[rank as usize].pop_if(|(of, _)| *of == iteration);
                next.expect("a rank asks for its own share of an iteration").1
            }
            Rule::FirstCome { pools, taken } => {
                let pool = pools.of(rank);
                let (taken, index) = (&mut taken[pool as usize], iteration as usize);
                if taken.len() <= index {
                    taken.resize(index + 1, 0);
                }
                taken[index] += 1;
                pools.batch(pool, taken[index] - 1)
            }
            Rule::InTurn { pools, given } => {
                if turn != Some(rank) {
                    return ClaimAnswer::Wait;
                }
                let (pool, each) = (pools.of(rank), pools.each());
                let given = &mut given[pool as usize];
                let round = *given / pools.ranks(pool).len() as u64;
                *given += 1;
                rank * each + (round % u64::from(each)) as u32
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

    fn ask(claims: &mut Claims, iteration: u32, rank: u32) -> u32 {
        match answer(claims, iteration, rank) {
            ClaimAnswer::Take(micro_batch) => micro_batch,
            ClaimAnswer::Wait => panic!("no learner waits where there are no turns"),
        }
    }

    fn one_pool(workers: u32, each: u32) -> Claims {
        Claims::first_come(Pools::new(workers, each, |_| 0))
    }

    #[test]
    fn a_learner_out_of_turn_waits() {
        // Two ranks with two batches each: 0 and 1 are rank 0's, 2 and 3 rank 1's.
        let mut claims = Claims::in_turn(Pools::new(2, 2, |_| 0));
        let asked = [(0, 1), (0, 0), (0, 0), (0, 1), (0, 0), (1, 0), (0, 1), (1, 1), (1, 0), (1, 1)];
        let got = asked.map(|(iteration, rank)| answer(&mut claims, iteration, rank));
        use ClaimAnswer::{Take, Wait};
        assert_eq!(got, [Wait, Take(0), Wait, Take(2), Take(1), Wait, Take(3), Wait, Take(0), Take(2)]);
        assert_eq!((claims.turn(1), claims.record().len()), (Some(0), 6));
        // A replay need not wait.
        let mut replay = Claims::replay(2, 2, 1, claims.record()).unwrap();
        assert_eq!([1, 1, 0, 0].map(|rank| ask(&mut replay, 0, rank)), [2, 3, 0, 1]);
    }

    /// Ranks 0 and 2 are of one process, rank 1 of another, which waits for none of them.
    #[test]
    fn turns_are_within_a_process() {
        let mut claims = Claims::in_turn(Pools::new(3, 1, |rank| rank % 2));
        let got =
            [(0, 1), (1, 1), (0, 2), (0, 0), (0, 2)].map(|(iteration, rank)| answer(&mut claims, iteration, rank));
        use ClaimAnswer::{Take, Wait};
        assert_eq!(got, [Take(1), Take(1), Wait, Take(0), Take(2)]);
        assert_eq!([0, 1, 2].map(|rank| claims.turn(rank)), [Some(0), Some(1), Some(0)]);
        // Learners that are all alone neither share nor wait.
        let alone = |workers: u32| Pools::new(workers, 2, |rank| rank);
        assert!(claims.note().is_none() && Claims::in_turn(alone(1)).note().is_none());
        assert!([Claims::in_turn(alone(2)), Claims::first_come(alone(2))].iter().all(|of| of.note().is_some()));
    }

    #[test]
    fn the_first_to_ask_gets_the_first_batch() {
        let mut claims = one_pool(2, 2);
        // Rank 1 is fast, and is in the next iteration before rank 0 has asked at all.
        assert_eq!([1, 1].map(|rank| ask(&mut claims, 0, rank)), [0, 1]);
        assert_eq!((ask(&mut claims, 1, 1), ask(&mut claims, 0, 0), ask(&mut claims, 1, 0)), (0, 2, 1));
        assert_eq!(claims.record().len(), 5);
    }

    /// Ranks 0 and 2 are of one process, rank 1 of another: each process has its own ranks' batches.
    #[test]
    fn a_process_takes_its_own_batches() {
        let mut claims = Claims::first_come(Pools::new(3, 2, |rank| [7, 3, 7][rank as usize]));
        assert_eq!([2, 1, 2, 0, 1, 0].map(|rank| ask(&mut claims, 0, rank)), [0, 2, 1, 4, 3, 5]);
    }

    proptest! {
        #[test]
        fn each_takes_equally_many_and_a_record_replays_in_any_order_of_requests(
            asks in prop::collection::vec(0u32..4, 200), each in 1u32..5, processes in 1u32..4, backwards: bool,
        ) {
            // Each rank asks for its share, iteration by iteration.
            let mut claims = Claims::first_come(Pools::new(4, each, |rank| rank % processes));
            let mut asked = [0u32; 4];
            for rank in asks.into_iter().chain((0..4).flat_map(|rank| [rank; 20])) {
                let asked = &mut asked[rank as usize];
                if *asked < 4 * each {
                    ask(&mut claims, *asked / each, rank);
                    *asked += 1;
                }
            }
            let record = claims.record().to_vec();
            let of_rank = |rank: u32, iteration: u32| -> Vec<u32> {
                let own = record.iter().filter(|c| (c.rank, c.iteration) == (rank, iteration));
                own.map(|c| c.micro_batch).collect()
            };
            for iteration in 0..4 {
                let mut all: Vec<u32> = (0..4).flat_map(|rank| of_rank(rank, iteration)).collect();
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(0..4 * each));
            }
            let mut replay = Claims::replay(each, 4, 4, &record).unwrap();
            let ranks: Vec<u32> = if backwards { (0..4).rev().collect() } else { (0..4).collect() };
            for rank in ranks {
                for iteration in 0..4 {
                    prop_assert_eq!(of_rank(rank, iteration).len() as u32, each);
                    let got: Vec<u32> = (0..each).map(|_| ask(&mut replay, iteration, rank)).collect();
                    prop_assert_eq!(got, of_rank(rank, iteration));
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
            (vec![claim(0, 1, 0), claim(0, 1, 1)], "rank 0: has 0 micro-batches in the log"),
        ] {
            let error = Claims::replay(1, 2, 1, &record).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        // Earlier versions let a fast learner take the batches of a slow one.
        let taken_over = [(0, 0, 0), (0, 0, 1), (0, 1, 2), (0, 1, 3), (1, 1, 0), (1, 0, 1), (1, 1, 2), (1, 1, 3)];
        let record: Vec<Claim> = taken_over.map(|(iteration, rank, batch)| claim(iteration, rank, batch)).to_vec();
        let error = Claims::replay(2, 2, 2, &record).unwrap_err().to_string();
        assert!(
            error.contains("iteration 1, rank 0: has 1 micro-batches") && error.contains("--driver-log"),
            "{error}"
        );
        assert!(Claims::replay(2, 2, 1, &record).is_ok());
        // Later iterations of a longer log do not matter.
        assert!(Claims::replay(1, 2, 1, &[claim(0, 0, 0), claim(1, 0, 0), claim(0, 1, 1)]).is_ok());
    }
}
