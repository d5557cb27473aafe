//! Which runs of a task are done: a count, and the few that ended ahead of an earlier one.

/// Runs of one task on one rank, numbered over iterations and repetitions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completions {
    /// All runs below this are done.
    count: u64,
    /// Done runs above it, in no order.
    ahead: Vec<u64>,
}

impl Completions {
    /// Notes that `run` is done.
    pub(crate) fn add(&mut self, run: u64) {
        if run != self.count {
            self.ahead.push(run);
            return;
        }
        self.count += 1;
        while let Some(at) = self.ahead.iter().position(|run| *run == self.count) {
            self.ahead.swap_remove(at);
            self.count += 1;
        }
    }

    /// Whether the first `runs` runs are done.
    pub(crate) fn reached(&self, runs: u64) -> bool {
        self.count >= runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_may_end_out_of_order() {
        let mut done = Completions::default();
        done.add(1);
        done.add(2);
        assert!(done.reached(0) && !done.reached(1));
        done.add(0);
        assert!(done.reached(3) && !done.reached(4));
    }
}
