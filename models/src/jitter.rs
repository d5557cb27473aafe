//! Draws stated noise: what varies, by which distribution, independently from draw to draw.
//!
//! Work varies by factors that multiply: one for each run of a task, one for all work of a rank in an iteration, one
//! for all its work ever. A message varies in its delay in seconds and in a factor on its bytes, as with retransmitted
//! packets.

mod distribution;
mod draw;
mod fit;

use lockstep_topology::Time;

pub use distribution::{Distribution, Family};
use draw::{What, uniform};
pub use fit::{Fit, fits};

/// Distributions of what varies; without any nothing does.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Jitter {
    /// The seed of the run.
    pub seed: u64,
    /// Factor on one run of one task of the compute stream.
    pub kernel: Option<Distribution>,
    /// Factor on all work of a rank in one iteration.
    pub step: Option<Distribution>,
    /// Factor on all work of a rank, always.
    pub rank: Option<Distribution>,
    /// Seconds by which a message over links arrives later than its latency.
    pub latency: Option<Distribution>,
    /// Factor on the bytes with which a message over links occupies its wires.
    pub bandwidth: Option<Distribution>,
}

impl Jitter {
    /// Whether nothing varies.
    pub fn is_empty(&self) -> bool {
        !self.work() && self.latency.is_none() && self.bandwidth.is_none()
    }

    /// Whether work is stated to vary: then a record of the host's noise is not played.
    pub fn work(&self) -> bool {
        self.kernel.is_some() || self.step.is_some() || self.rank.is_some()
    }

    fn draw(&self, of: Option<Distribution>, trial: u32, what: What, whom: (u32, u32), index: u64) -> Option<f64> {
        of.map(|of| of.quantile(uniform(self.seed, trial, what, whom, index)))
    }

    /// The factor on the `run`-th run of `task` on `rank`.
    pub fn kernel(&self, trial: u32, rank: u32, task: u32, run: u64) -> f64 {
        self.draw(self.kernel, trial, What::Kernel, (rank, task), run).unwrap_or(1.0)
    }

    /// The factor on all work of `rank` in `iteration`.
    pub fn of_step(&self, trial: u32, rank: u32, iteration: u32) -> f64 {
        let step = self.draw(self.step, trial, What::Step, (rank, 0), u64::from(iteration)).unwrap_or(1.0);
        step * self.draw(self.rank, trial, What::Rank, (rank, 0), 0).unwrap_or(1.0)
    }

    /// The delay of the `index`-th message between two ranks, and the factor on its bytes.
    pub fn message(&self, trial: u32, from: u32, to: u32, index: u64) -> (Time, f64) {
        let late = self.draw(self.latency, trial, What::Latency, (from, to), index).unwrap_or(0.0);
        let bytes = self.draw(self.bandwidth, trial, What::Bandwidth, (from, to), index).unwrap_or(1.0);
        (Time::from_secs_f64(late), bytes)
    }

    /// Describes what varies and how, a sentence for each, with the largest of `ranks` draws where ranks wait
    /// for each other.
    pub fn notes(&self, ranks: u32) -> Vec<String> {
        let factor = |(what, of): (&str, Option<Distribution>)| {
            let of = of?;
            let most = of.expected_maximum(ranks) / of.mean();
            Some(format!("noise: {what} vary, {of}; of {ranks} draws the largest is expected at {most:.3} of the mean"))
        };
        let work = [("tasks", self.kernel), ("steps of ranks", self.step), ("ranks", self.rank)];
        let late = self.latency.map(|of| {
            let [median, high] = [0.5, 0.99].map(|u| of.quantile(u) * 1e6);
            format!("noise: messages are late, {} (median {median:.3} us, 99 % below {high:.3} us)", of.family())
        });
        let bytes = self.bandwidth.map(|of| format!("noise: the bytes of messages vary, {of}"));
        work.into_iter().filter_map(factor).chain(late).chain(bytes).collect()
    }
}
