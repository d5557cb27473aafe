//! Determines what a run of a task waits for, counted in runs, and which exchanges of roles belong together: rules
//! shared by simulator, executor and critical path.

use std::ops::Range;

use crate::{After, Exchange, Op, Program, Role, Stream, Task, TaskId};

/// A dependency of a task on another of its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The other task.
    pub task: TaskId,
    /// How many runs ago, as [`After::lag`](crate::After::lag).
    lag: u32,
    /// How often that other task runs in an iteration.
    per_iteration: u32,
    /// Both are in one loop, and run waits for run.
    together: bool,
}

impl Need {
    /// How many runs of the other task must be done before a run of this one in `iteration` and `repetition`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, random_model};
    /// let job = Job { accumulate: 4, ..Job::new(Arc::new(random_model(7, false)), 2, 8) };
    /// let program = job.program().unwrap();
    /// let role = &program.roles[0];
    /// let (exchange, _) = role.exchanges().next().unwrap();
    /// // The gradients of the second iteration are there after eight micro-batches.
    /// assert_eq!(role.needs(exchange)[0].runs(1, 0), 8);
    /// ```
    pub fn runs(self, iteration: u32, repetition: u32) -> u64 {
        let per = u64::from(self.per_iteration);
        if self.together {
            return (u64::from(iteration) * per + u64::from(repetition) + 1).saturating_sub(u64::from(self.lag));
        }
        iteration.checked_sub(self.lag).map_or(0, |earlier| (u64::from(earlier) + 1) * per)
    }

    /// Whether it waits for runs of its own iteration.
    pub fn is_of_this_iteration(self) -> bool {
        self.lag == 0
    }

    /// The last of those runs, as iteration and repetition.
    pub fn last_run(self, iteration: u32, repetition: u32) -> Option<(u32, u32)> {
        let (last, per) = (self.runs(iteration, repetition).checked_sub(1)?, u64::from(self.per_iteration));
        Some(((last / per) as u32, (last % per) as u32))
    }
}

impl Role {
    /// The `Repeat` or `Schedule` that `task` is in, if any, and how often it runs the task in an iteration; loops
    /// do not nest.
    pub fn loop_of(&self, task: TaskId) -> Option<(TaskId, u32)> {
        self.tasks[..task].iter().enumerate().rev().find_map(|(id, t)| match &t.op {
            Op::Repeat { count, body, .. } if task <= id + body => Some((id, *count)),
            Op::Schedule(order) if task <= id + order.tasks() => Some((id, order.micro_batches)),
            _ => None,
        })
    }

    /// The tasks that a `Repeat` or `Schedule` runs; any other task is its own.
    pub(crate) fn tasks_of(&self, task: TaskId) -> Range<TaskId> {
        match &self.tasks[task].op {
            Op::Repeat { body, .. } => task + 1..task + 1 + body,
            Op::Schedule(order) => task + 1..task + 1 + order.tasks(),
            _ => task..task + 1,
        }
    }

    /// How often a task runs in an iteration.
    pub fn runs_of(&self, task: TaskId) -> u32 {
        self.loop_of(task).map_or(1, |(_, count)| count)
    }

    /// Whether the compute stream waits, in an iteration, for the run of `task` in the one before: an iteration may then
    /// begin although that run, an exchange, has not started yet.
    pub fn is_awaited_next(&self, task: TaskId) -> bool {
        let waits = |other: &Task| other.stream == Stream::Compute && other.after.contains(&After { task, lag: 1 });
        self.tasks.iter().any(waits)
    }

    /// The loops of all its tasks, found once.
    pub fn loops(&self) -> Loops<'_> {
        let mut of_task = vec![None; self.tasks.len()];
        for (id, task) in self.tasks.iter().enumerate() {
            let (count, inside) = match &task.op {
                Op::Repeat { count, body, .. } => (*count, *body),
                Op::Schedule(order) => (order.micro_batches, order.tasks()),
                _ => continue,
            };
            of_task[id + 1..=id + inside].fill(Some((id, count)));
        }
        Loops { role: self, of_task }
    }

    /// As [`Loops::needs`], for one task.
    pub fn needs(&self, task: TaskId) -> Vec<Need> {
        self.loops().needs(task)
    }
}

/// The loops of the tasks of a role.
#[derive(Debug)]
pub struct Loops<'a> {
    role: &'a Role,
    /// As [`Role::loop_of`], by task.
    of_task: Vec<Option<(TaskId, u32)>>,
}

impl Loops<'_> {
    /// As [`Role::loop_of`].
    pub fn loop_of(&self, task: TaskId) -> Option<(TaskId, u32)> {
        self.of_task[task]
    }

    /// As [`Role::runs_of`].
    pub fn runs_of(&self, task: TaskId) -> u32 {
        self.of_task[task].map_or(1, |(_, count)| count)
    }

    /// What each run of `task` waits for. Every task of a loop waits for what the loop waits for; what waits for a loop
    /// waits for all of it.
    pub fn needs(&self, task: TaskId) -> Vec<Need> {
        let role = self.role;
        let around = self.loop_of(task).map(|(of, _)| of);
        let inherited = around.iter().flat_map(|of| &role.tasks[*of].after);
        let mut needs = Vec::new();
        for after in role.tasks[task].after.iter().chain(inherited) {
            needs.extend(role.tasks_of(after.task).map(|other| Need {
                task: other,
                lag: after.lag,
                per_iteration: self.runs_of(other),
                together: around.is_some() && self.loop_of(other).map(|(of, _)| of) == around,
            }));
        }
        needs
    }
}

impl Program {
    /// Numbers exchanges across roles, by role and task: the n-th of equal ones in one role belongs to the n-th in
    /// another. `None` for other tasks.
    pub fn exchange_numbers(&self) -> Vec<Vec<Option<u32>>> {
        let mut known: Vec<(&Exchange, usize)> = Vec::new();
        let mut all = Vec::with_capacity(self.roles.len());
        for role in &self.roles {
            let mut mine: Vec<&Exchange> = Vec::new();
            let mut numbers = vec![None; role.tasks.len()];
            for (id, exchange) in role.exchanges() {
                let key = (exchange, mine.iter().filter(|other| **other == exchange).count());
                mine.push(exchange);
                let number = known.iter().position(|other| *other == key).unwrap_or_else(|| {
                    known.push(key);
                    known.len() - 1
                });
                numbers[id] = Some(number as u32);
            }
            all.push(numbers);
        }
        all
    }
}
