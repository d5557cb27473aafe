//! Decides whether a change to the kept component is repaired or solved again, by cost.
//!
//! A change reaches few classes where many resources bind a few activities each, and most of them where few resources
//! bind many. This can change while a component empties, so it is learned. A repair gives up before the round that, if
//! it keeps growing, makes it cost more than solving. The savings of repairs, less the cost of failed ones, are their
//! credit. Without credit, changes are solved again for a pause that doubles each time.
//!
//! Cost is counted and not timed, so that the same input gives the same choices: it is the number of classes, and of
//! users in resources' lists, that are visited.

/// Settlings of the shortest and the longest pause in repairs.
const SHORT: u32 = 1;
const LONG: u32 = 256;
/// Credit never exceeds this many whole solutions, so that repairs that stop paying are soon noticed.
const CREDIT: u64 = 4;
/// The cost of a round of a repair for each user in the lists that it visits: it reads them three times and fills some
/// of them, in a less regular order than a whole solution.
const READS: u64 = 5;
/// The cost of reaching a class: each of its resources is looked up.
const REACH: u64 = 4;

/// The rule of the choice; tests always take one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// By cost.
    Cost,
    #[cfg(test)]
    Repair,
    #[cfg(test)]
    Solve,
}

/// The history of the kept component.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) rule: Rule,
    /// The savings of repairs less later losses.
    credit: u64,
    /// Settlings until a repair is tried again.
    wait: u32,
    /// The length of the next pause.
    pause: u32,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice { rule: Rule::Cost, credit: u64::MAX, wait: 0, pause: SHORT }
    }
}

impl Choice {
    /// Whether the present settling is to try a repair.
    pub(super) fn repairs(&mut self) -> bool {
        match self.rule {
            Rule::Cost => {
                let tries = self.wait == 0;
                self.wait = self.wait.saturating_sub(1);
                tries
            }
            #[cfg(test)]
            Rule::Repair => true,
            #[cfg(test)]
            Rule::Solve => false,
        }
    }

    /// A repair where solving would cost `whole`.
    pub(super) fn attempt(&self, whole: u64) -> Attempt {
        let budget = match self.rule {
            Rule::Cost => whole,
            #[cfg(test)]
            Rule::Repair | Rule::Solve => u64::MAX,
        };
        Attempt { whole, budget, spent: 0, reached: 0, round: 0 }
    }

    /// Learns how a repair has ended: whether it has found the speeds.
    pub(super) fn learn(&mut self, attempt: &Attempt, found: bool) {
        let Attempt { whole, spent, .. } = *attempt;
        let credit = self.credit.min(CREDIT * whole);
        if found {
            self.credit = (credit + whole.saturating_sub(spent)).min(CREDIT * whole);
            self.pause = (self.pause / 2).max(SHORT);
        } else if credit > spent {
            self.credit = credit - spent;
        } else {
            (self.credit, self.wait) = (0, self.pause);
            self.pause = (2 * self.pause).min(LONG);
        }
    }
}

/// A repair in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    whole: u64,
    budget: u64,
    spent: u64,
    /// Classes reached so far.
    reached: usize,
    /// The cost of the last round.
    round: u64,
}

impl Attempt {
    /// Whether it may do a round over this many classes and the lists of their resources, which have this many users;
    /// rounds that grow are expected to grow twice more.
    pub(super) fn may_read(&mut self, classes: usize, users: u64) -> bool {
        let reach = REACH * (classes - self.reached) as u64;
        (self.spent, self.reached) = (self.spent.saturating_add(reach), classes);
        let round = READS * users;
        let expected = match self.round {
            0 => round,
            before => (round.saturating_mul(round) / before).saturating_mul(round) / before,
        };
        let may = self.spent.saturating_add(expected) <= self.budget;
        if may {
            (self.spent, self.round) = (self.spent + round, round);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries a repair whenever the rule allows; each reaches `classes` classes whose lists have `users` users. Returns
    /// the number of tries.
    fn tries(choice: &mut Choice, settlings: u32, whole: u64, (classes, users): (usize, u64)) -> u32 {
        let mut tries = 0;
        for _ in 0..settlings {
            if choice.repairs() {
                tries += 1;
                let mut attempt = choice.attempt(whole);
                let found = attempt.may_read(classes, users);
                choice.learn(&attempt, found);
            }
        }
        tries
    }

    #[test]
    fn repairs_that_affect_few_are_always_tried() {
        assert_eq!(tries(&mut Choice::default(), 1_000, 10_000, (10, 100)), 1_000);
    }

    #[test]
    fn repairs_that_affect_most_are_rarely_tried() {
        let tries = tries(&mut Choice::default(), 10_000, 10_000, (1_000, 10_000));
        assert!((1..100).contains(&tries), "{tries}");
    }

    #[test]
    fn a_change_of_load_is_noticed_after_the_longest_pause() {
        let mut choice = Choice::default();
        tries(&mut choice, 10_000, 10_000, (1_000, 10_000));
        // Each success halves the pause, and a failure costs one pause at the most.
        let since = tries(&mut choice, 2 * LONG, 10_000, (10, 100));
        assert!(since >= LONG, "{since}");
    }

    #[test]
    fn growing_rounds_end_before_they_cost_as_much_as_solving() {
        let mut attempt = Choice::default().attempt(10_000);
        let rounds = (0..).take_while(|round| attempt.may_read(1 << round, 10 << round)).count();
        assert!(attempt.spent <= 10_000 && rounds > 3, "{attempt:?}");
    }
}
