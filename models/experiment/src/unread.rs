//! Refuses settings that are stated and that nothing reads beside the others.

use lockstep_models::Axis;
use lockstep_topology::InputError;

use crate::device::DeviceChoice;
use crate::experiment::Experiment;

/// A setting that is read only beside others.
struct ReadBeside {
    key: &'static str,
    /// Its value, as errors repeat it.
    value: fn(&Experiment) -> String,
    /// Whether the others leave it unread.
    unread: fn(&Experiment) -> bool,
    /// Beside what it is read, and the cure.
    cure: &'static str,
}

const ALL: &[ReadBeside] = &[
    ReadBeside {
        key: "target_epochs",
        value: |e| e.target.epochs.to_string(),
        unread: |e| e.target.accuracy.is_none(),
        cure: "is read with target_accuracy alone: give that too, or leave it out",
    },
    ReadBeside {
        key: "tuner_threshold",
        value: |e| e.tuner_threshold.to_string(),
        unread: |e| !e.tunes,
        cure: "is read with learners = \"auto\" alone: give that too, or leave it out",
    },
    ReadBeside {
        key: "schedule",
        value: |e| e.schedule.to_string(),
        unread: |e| !has_stages(e),
        cure: "is of pipeline stages: give mesh a pipeline axis, e.g. pipeline=2, or leave it out",
    },
    ReadBeside {
        key: "cut",
        value: |e| e.cut.to_string(),
        unread: |e| !has_stages(e),
        cure: "is of pipeline stages: give mesh a pipeline axis, e.g. pipeline=2, or leave it out",
    },
    ReadBeside {
        key: "ranks_per_node",
        value: |e| e.ranks_per_node.unwrap_or_default().to_string(),
        unread: |e| e.on_this_machine() && e.ranks_per_node.is_some_and(|each| u64::from(each) > most_ranks(e)),
        cure: "is more than all ranks together: use at most as many, or leave it out",
    },
];

fn has_stages(experiment: &Experiment) -> bool {
    experiment.mesh.as_ref().is_some_and(|mesh| mesh.size(Axis::Pipeline) > 1)
}

/// The most ranks of a configuration, servers included.
fn most_ranks(experiment: &Experiment) -> u64 {
    if experiment.tunes || experiment.sweep.lists.contains_key("ranks") {
        return u64::MAX;
    }
    let workers = experiment.mesh.as_ref().map(|mesh| mesh.ranks()).or_else(|| experiment.ranks.iter().copied().max());
    let grown = experiment.growth.iter().map(|stage| stage.learners).chain([experiment.learners]).max().unwrap_or(1);
    let servers = experiment.algorithms.iter().map(|algorithm| algorithm.servers()).max().unwrap_or(0);
    u64::from(workers.unwrap_or(1)).saturating_mul(u64::from(grown)).saturating_add(u64::from(servers))
}

impl Experiment {
    /// Refuses settings that are stated and that nothing reads beside the others.
    ///
    /// # Errors
    /// The first of them, with the cure.
    pub fn check_read(&self) -> Result<(), InputError> {
        match ALL.iter().find(|of| self.states(of.key) && (of.unread)(self)) {
            None => Ok(()),
            Some(of) => Err(self.locate(InputError::flag(of.key, (of.value)(self), of.cure))),
        }
    }

    /// Refuses more than one thread per rank on devices that use none.
    ///
    /// # Errors
    /// Such a number of threads, with the cure.
    pub fn check_threads_of(&self, device: DeviceChoice) -> Result<(), InputError> {
        if self.threads_per_rank == 1 || device == DeviceChoice::Cpu {
            return Ok(());
        }
        let message = format!("is of ranks that compute on a CPU, and these use {device}: leave it out");
        Err(self.locate(InputError::flag("threads_per_rank", self.threads_per_rank.to_string(), message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table refuses its setting alone, at its line, and takes it beside what reads it.
    #[test]
    fn settings_that_nothing_reads_are_refused() {
        for (key, stated, beside) in [
            ("target_epochs", "target_epochs = 3", "target_accuracy = 0.9"),
            ("tuner_threshold", "tuner_threshold = 0.2", "learners = \"auto\"\nstrategy = \"sma\""),
            ("schedule", "schedule = \"gpipe\"", "mesh = \"pipeline=2\""),
            ("cut", "cut = \"layers\"", "mesh = \"pipeline=2\""),
            ("ranks_per_node", "ranks_per_node = 4", "ranks = 4"),
        ] {
            assert!(ALL.iter().any(|of| of.key == key), "{key}");
            let text = format!("name = \"a\"\nmodel = \"mlp\"\n{stated}\n");
            let error = Experiment::parse("e.toml", &text).unwrap().configurations().unwrap_err();
            assert!(error.to_string().starts_with("e.toml:3: "), "{error}");
            let read = Experiment::parse("e.toml", &format!("{text}{beside}\n")).unwrap();
            assert_eq!(read.check_read(), Ok(()), "{key}");
        }
        assert_eq!(ALL.len(), 5);
    }

    #[test]
    fn threads_are_those_of_cpus() {
        let four = Experiment { threads_per_rank: 4, ..Experiment::default() };
        assert_eq!(four.check_threads_of(DeviceChoice::Cpu), Ok(()));
        let error = four.check_threads_of(DeviceChoice::Null).unwrap_err();
        assert!(error.to_string().starts_with("--threads-per-rank: 4: is of ranks that compute on a CPU"), "{error}");
    }
}
