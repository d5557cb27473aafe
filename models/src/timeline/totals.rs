//! Totals a run's spans: counts how often each task of a role ran in each iteration and for how long.
//!
//! Totals replace the spans of runs of more than a million tasks. Sums are whole picoseconds, so they do not depend
//! on the order.

use lockstep_topology::Time;

use crate::{Program, Span};

/// Summed runs of one task, of one kind of tasks, or of anything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many.
    pub runs: u64,
    /// Picoseconds from start to end, summed.
    pub busy_ps: u128,
    /// Picoseconds from ready to start, summed.
    pub waited_ps: u128,
    /// When the last of them ended.
    pub end: Time,
}

impl Total {
    /// The total of one run.
    pub fn of(span: &Span) -> Total {
        let between = |from: Time, to: Time| u128::from(to.since(from).0);
        let (busy_ps, waited_ps) = (between(span.start, span.end), between(span.ready, span.start));
        Total { runs: 1, busy_ps, waited_ps, end: span.end }
    }

    /// Adds other runs.
    pub fn add(&mut self, other: Total) {
        self.runs += other.runs;
        self.busy_ps += other.busy_ps;
        self.waited_ps += other.waited_ps;
        self.end = self.end.max(other.end);
    }

    /// Seconds from start to end, summed.
    pub fn busy_s(&self) -> f64 {
        self.busy_ps as f64 / 1e12
    }
}

/// Totals by iteration, role and task.
///
/// ```
/// use lockstep_models::{Span, Totals};
/// use lockstep_topology::Time;
/// let span = |start, end| Span { rank: 0, task: 2, iteration: 1, repetition: 0, ready: start, start, end };
/// let mut totals = Totals::default();
/// totals.add(0, &span(Time(10), Time(25)));
/// totals.add(0, &span(Time(30), Time(40)));
/// let [(iteration, role, task, total)] = totals.iter().collect::<Vec<_>>()[..] else { panic!("one task ran") };
/// assert_eq!((iteration, role, task), (1, 0, 2));
/// assert_eq!((total.runs, total.busy_ps, total.end), (2, 25, Time(40)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// By iteration, role and task.
    runs: Vec<Vec<Vec<Total>>>,
    /// By role: one more than its last rank that ran something.
    ranks: Vec<u32>,
}

impl Totals {
    /// Those of `spans`.
    pub fn of(spans: &[Span], program: &Program) -> Totals {
        let mut totals = Totals::default();
        for of_rank in spans.chunk_by(|one, next| one.rank == next.rank) {
            let role = program.role_of(of_rank[0].rank);
            of_rank.iter().for_each(|span| totals.add(role, span));
        }
        totals
    }

    /// Adds one run of a task of `role`.
    pub fn add(&mut self, role: usize, span: &Span) {
        self.add_runs(role, span, Total::of(span));
    }

    /// Adds runs of one task of `role` in one iteration by one rank, as named by `like`.
    pub fn add_runs(&mut self, role: usize, like: &Span, runs: Total) {
        let roles = at(&mut self.runs, like.iteration as usize);
        at(at(roles, role), like.task as usize).add(runs);
        let ranks = at(&mut self.ranks, role);
        *ranks = (*ranks).max(like.rank + 1);
    }

    /// What was added since the state `before`.
    ///
    /// ```
    /// use lockstep_models::{Span, Totals};
    /// use lockstep_topology::Time;
    /// let span = |iteration, end| Span { rank: 0, task: 2, iteration, repetition: 0, ready: Time(0), start: Time(0), end };
    /// let mut totals = Totals::default();
    /// totals.add(0, &span(0, Time(10)));
    /// let before = totals.clone();
    /// totals.add(0, &span(1, Time(30)));
    /// let mut again = before.clone();
    /// again.add_later(&totals.since(&before), (1, Time(5))); // one iteration and 5 ps later
    /// let (iteration, _, _, total) = again.iter().last().expect("it ran");
    /// assert_eq!((iteration, total.runs, total.end), (2, 1, Time(35)));
    /// ```
    pub fn since(&self, before: &Totals) -> Totals {
        let known = |iteration: u32, role: usize, task: usize| {
            let roles = before.runs.get(iteration as usize)?;
            roles.get(role)?.get(task).copied()
        };
        let mut since = Totals { runs: Vec::new(), ranks: self.ranks.clone() };
        for (iteration, role, task, Total { runs, busy_ps, waited_ps, end }) in self.iter() {
            let before = known(iteration, role, task).unwrap_or_default();
            if runs > before.runs {
                let (busy_ps, waited_ps) = (busy_ps - before.busy_ps, waited_ps - before.waited_ps);
                let roles = at(&mut since.runs, iteration as usize);
                *at(at(roles, role), task) = Total { runs: runs - before.runs, busy_ps, waited_ps, end };
            }
        }
        since
    }

    /// Adds runs like `others`, each later by this many iterations and this much time.
    pub fn add_later(&mut self, others: &Totals, (iterations, span): (u32, Time)) {
        for (iteration, role, task, total) in others.iter() {
            let roles = at(&mut self.runs, (iteration + iterations) as usize);
            at(at(roles, role), task).add(Total { end: total.end + span, ..total });
        }
        for (role, ranks) in others.ranks.iter().enumerate() {
            let known = at(&mut self.ranks, role);
            *known = (*known).max(*ranks);
        }
    }

    /// Drops the iterations from `first` on.
    pub fn cut(&mut self, first: u32) {
        self.runs.truncate(first as usize);
    }

    /// Whether nothing ran.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Iteration, role, task and total of each task that ran.
    pub fn iter(&self) -> impl Iterator<Item = (u32, usize, usize, Total)> + '_ {
        let tasks = |(iteration, roles)| {
            let of_role = move |(role, tasks): (usize, &'_ Vec<Total>)| {
                tasks.iter().enumerate().map(move |(task, total)| (iteration, role, task, *total)).collect::<Vec<_>>()
            };
            let roles: &Vec<Vec<Total>> = roles;
            roles.iter().enumerate().flat_map(of_role)
        };
        (0..).zip(&self.runs).flat_map(tasks).filter(|(.., total)| total.runs > 0)
    }

    /// One more than the last rank of `role` that ran something.
    pub(crate) fn ranks(&self, role: usize) -> u32 {
        self.ranks.get(role).copied().unwrap_or(0)
    }

    /// When the last rank ended each iteration.
    pub(crate) fn ends(&self) -> Vec<Time> {
        let last = |roles: &Vec<Vec<Total>>| roles.iter().flatten().map(|total| total.end).max();
        self.runs.iter().map(|roles| last(roles).unwrap_or(Time::ZERO)).collect()
    }
}

/// An entry of a table that grows on access.
#[inline]
fn at<T: Clone + Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}
