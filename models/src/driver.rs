//! Drives runs: makes every choice that depends on what happens at run time, as one pure state machine.
//!
//! Simulator and executor ask it the same questions, with simulated and with measured times; a program itself holds
//! no choice. Synchronous SGD asks only which batch comes next and when to stop. Learners with round-robin or
//! first-come batches also claim their batches of an iteration. Claims are recorded, and a record can be replayed.

mod accuracy_monitor;
mod claims;
mod devices;
mod pools;
mod tuner;

use lockstep_topology::{InputError, Time};

pub use accuracy_monitor::{AccuracyMonitor, RunControl, Target};
use claims::Claims;
pub use claims::{Claim, ClaimAnswer};
pub use pools::Pools;

use crate::{Assignment, Program};
pub use devices::DeviceRates;
pub use tuner::{DEFAULT_THRESHOLD, Trial, Tuner, Verdict};

/// What a rank reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The rank.
    pub rank: u32,
    /// The iteration that it is about to begin, or that it claims a batch of.
    pub iteration: u32,
    /// The time, on the run's clock.
    pub at: Time,
}

/// What the rank does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// One more iteration, on this batch of the pool.
    Run {
        /// Index of the global batch.
        batch: u64,
    },
    /// No more.
    Stop,
}

/// Answers observations; equal observations in equal order get equal answers.
#[derive(Debug, Clone)]
pub struct Driver {
    first: u64,
    steps: u32,
    claims: Claims,
}

impl Driver {
    /// Every rank runs iteration i on global batch i, for `steps` iterations.
    pub fn fixed(steps: u32) -> Driver {
        Driver::fixed_from(0, steps)
    }

    /// As [`Driver::fixed`], from global batch `first` on.
    pub fn fixed_from(first: u64, steps: u32) -> Driver {
        Driver { first, steps, claims: Claims::default() }
    }

    /// The same, for the ranks of `program`, each in the process that `process` says: those that claim batches get an
    /// iteration's micro-batches within their process, round-robin or first come, first served, unless replaying.
    pub fn serving(self, program: &Program, process: impl Fn(u32) -> u32) -> Driver {
        if self.claims.replays() {
            return self;
        }
        let pools = || Pools::new(program.workers(), program.accumulate, process);
        let claims = match program.averaging.map(|averaging| averaging.assignment) {
            Some(Assignment::FirstCome) => Claims::first_come(pools()),
            Some(Assignment::RoundRobin) => Claims::in_turn(pools()),
            Some(Assignment::Own) | None => Claims::default(),
        };
        Driver { claims, ..self }
    }

    /// The same, but claims are answered as `record` says, in whatever order they come.
    ///
    /// # Errors
    /// A record of another program or of fewer steps: each micro-batch of each iteration must be claimed once, and each
    /// rank must have claimed equally many.
    pub fn replaying(self, program: &Program, record: &[Claim]) -> Result<Driver, InputError> {
        let claims = Claims::replay(program.accumulate, program.workers(), self.steps, record)?;
        Ok(Driver { claims, ..self })
    }

    /// The number of iterations that every rank runs, whatever is reported meanwhile.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The decision for a rank that asks.
    pub fn next(&mut self, observation: &Observation) -> Decision {
        if observation.iteration >= self.steps {
            return Decision::Stop;
        }
        Decision::Run { batch: self.first + u64::from(observation.iteration) }
    }

    /// The micro-batch of a rank that is free.
    pub fn claim(&mut self, observation: &Observation) -> ClaimAnswer {
        self.claims.take(observation)
    }

    /// The micro-batch that a record of claims gives `rank` after the next `number` ones; `None` without a record, or at
    /// its end.
    pub fn recorded(&self, rank: u32, number: usize) -> Option<u32> {
        self.claims.recorded(rank, number)
    }

    /// Whether claims are answered from a record, in whatever order they come.
    pub fn replays(&self) -> bool {
        self.claims.replays()
    }

    /// What a reader of results must know of the assignment of batches, if anything.
    pub fn note(&self) -> Option<&'static str> {
        self.claims.note()
    }

    /// The pools from which learners take batches first come, first served; `None` where a rank's batches are known
    /// before it asks.
    pub fn pools(&self) -> Option<&Pools> {
        self.claims.pools()
    }

    /// The next rank of a round-robin assignment in the process of `rank`; its others wait for it.
    pub fn turn(&self, rank: u32) -> Option<u32> {
        self.claims.turn(rank)
    }

    /// All claims so far that got a micro-batch, in the order in which they were made.
    pub fn record(&self) -> &[Claim] {
        self.claims.record()
    }
}
