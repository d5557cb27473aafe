//! The driver: every choice that depends on what happens at run time, as one pure state machine.
//!
//! Simulator and executor ask it the same questions, with simulated and with measured times; a program itself holds no
//! choice. Synchronous SGD asks only which batch comes next and when to stop; the answers are logged all the same.

use lockstep_topology::Time;

/// What a rank reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Who.
    pub rank: u32,
    /// The iteration that it is about to begin.
    pub iteration: u32,
    /// When, on the run's clock.
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
}

impl Driver {
    /// Every rank runs iteration i on global batch i, for `steps` iterations.
    pub fn fixed(steps: u32) -> Driver {
        Driver { first: 0, steps }
    }

    /// As [`Driver::fixed`], from global batch `first` on.
    pub fn fixed_from(first: u64, steps: u32) -> Driver {
        Driver { first, steps }
    }

    /// How many iterations it lets every rank run, whatever it is told meanwhile.
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
}
