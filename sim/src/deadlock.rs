//! Describes deadlocks in words: which rank waits in which task for what.

use std::fmt;

/// The cause of a rank's wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// A message from a rank.
    Message(u32),
    /// A rank that has not received what was sent to it.
    Taking(u32),
    /// Another task of its own.
    Task(String),
}

/// A rank that waits forever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The rank.
    pub rank: u32,
    /// Its task.
    pub task: String,
    /// The cause.
    pub waits_for: WaitsFor,
}

impl Waiting {
    /// The next rank in the chain of waiting.
    fn next(&self) -> Option<u32> {
        match self.waits_for {
            WaitsFor::Message(rank) | WaitsFor::Taking(rank) => Some(rank),
            WaitsFor::Task(_) => None,
        }
    }
}

/// The chain of waiting that starts at the first rank, in words.
pub(crate) fn describe(all: &[Waiting], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("deadlock: ")?;
    let Some(mut at) = all.first() else { return f.write_str("no rank can continue") };
    let mut seen: Vec<u32> = Vec::new();
    write!(f, "rank {}", at.rank)?;
    loop {
        seen.push(at.rank);
        match &at.waits_for {
            WaitsFor::Message(from) => write!(f, " waits in `{}` for a message from rank {from}", at.task)?,
            WaitsFor::Taking(by) => write!(f, " waits in `{}` until rank {by} takes in what it sent", at.task)?,
            WaitsFor::Task(task) => write!(f, " waits with `{}` for its own `{task}`", at.task)?,
        }
        let Some(next) = at.next() else { return Ok(()) };
        let Some(waiting) = all.iter().find(|waiting| waiting.rank == next) else {
            return f.write_str(", which has ended");
        };
        if seen.contains(&next) {
            return write!(f, ": a circle of {} ranks", seen.len() - seen.iter().position(|r| *r == next).unwrap_or(0));
        }
        f.write_str(", which")?;
        at = waiting;
    }
}
