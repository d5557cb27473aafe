//! Refuses settings that are stated and that nothing reads beside the others.

use lockstep_models::{Axis, Layer, Model, Sampling, Strategy};
use lockstep_topology::{Algorithm, ErrorPlace, InputError};

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
    ReadBeside {
        key: "chunk",
        value: |e| e.chunk.map_or("auto".to_owned(), |bytes| bytes.to_string()),
        unread: |e| e.chunk.is_some() && only_libraries(e),
        cure: "is of lockstep's own algorithms, and a library divides buffers itself: use e.g. ring, or leave it out",
    },
];

fn has_stages(experiment: &Experiment) -> bool {
    experiment.mesh.as_ref().is_some_and(|mesh| mesh.size(Axis::Pipeline) > 1)
}

/// Whether a list of a sweep, which is not looked into, sets one of these keys.
fn lists(experiment: &Experiment, keys: &[&str]) -> bool {
    keys.iter().any(|key| experiment.sweep.lists.contains_key(key))
}

/// Whether libraries perform all exchanges.
fn only_libraries(experiment: &Experiment) -> bool {
    let is_library = |algorithm: &Algorithm| algorithm.library().is_some();
    !experiment.algorithms.is_empty()
        && experiment.algorithms.iter().all(is_library)
        && experiment.axis_algorithms.is_empty()
        && experiment.mesh.is_none()
        && !matches!(experiment.strategy, Strategy::Hybrid(_) | Strategy::ModelParallel(_) | Strategy::Megatron(_))
        && !lists(experiment, &["algorithm", "strategy"])
}

/// The most ranks of a configuration, servers included.
fn most_ranks(experiment: &Experiment) -> u64 {
    if experiment.tunes || lists(experiment, &["ranks"]) {
        return u64::MAX;
    }
    let workers = experiment.mesh.as_ref().map(|mesh| mesh.ranks()).or_else(|| experiment.ranks.iter().copied().max());
    let grown = experiment.growth.iter().map(|stage| stage.learners).chain([experiment.learners]).max().unwrap_or(1);
    let servers = experiment.algorithms.iter().map(|algorithm| algorithm.servers()).max().unwrap_or(0);
    u64::from(workers.unwrap_or(1)).saturating_mul(u64::from(grown)).saturating_add(u64::from(servers))
}

impl Experiment {
    /// Refuses settings that are stated and that nothing reads beside the others. What a file states outside of its
    /// arms is read if one arm reads it.
    ///
    /// # Errors
    /// The first of them, with the cure.
    pub fn check_read(&self) -> Result<(), InputError> {
        let unread = |of: &&ReadBeside| self.states(of.key) && !self.shared.contains(of.key) && (of.unread)(self);
        let read = |of: &ReadBeside| self.arms.iter().any(|arm| !(of.unread)(&arm.experiment));
        match ALL.iter().filter(unread).find(|of| !read(of)) {
            None => Ok(()),
            Some(of) => Err(self.locate(InputError::flag(of.key, (of.value)(self), of.cure))),
        }
    }

    /// Refuses settings that nothing in `model` reads.
    ///
    /// # Errors
    /// Statistics of batch norm, where there is none.
    pub(crate) fn check_read_by(&self, model: &Model) -> Result<(), InputError> {
        let normalises = || model.layers().iter().any(|node| matches!(node.layer, Layer::BatchNorm(_)));
        let of_arms = self.shared.contains("recompute_bn") || !self.arms.is_empty();
        if !self.recompute_bn || of_arms || normalises() {
            return Ok(());
        }
        let message = format!("is of batch norm, and {} has none: leave it out", model.name());
        Err(self.locate(InputError::flag("recompute_bn", "true", message)))
    }

    /// Refuses flags that say what is trained on and that a prediction does not read; in a file they are for runs.
    /// `explains`: it also predicts evaluations, whose time depends on the number of samples.
    ///
    /// # Errors
    /// The first of them, with the cure.
    pub fn check_predicted(&self, explains: bool) -> Result<(), InputError> {
        let is_flag = |key: &str| matches!(self.places.get(key), Some(ErrorPlace::Flag(_)));
        let refused = |key, value: String, message: &str| Err(InputError::flag(key, value, message));
        if self.sampling.shuffles() {
            return Ok(());
        }
        if is_flag("sampling") && self.sampling != Sampling::OneShuffle {
            let message = "decides which samples a rank draws, which takes no time without shuffle-every: leave it out, \
                           or use e.g. partitioned:shuffle-every=50";
            return refused("sampling", self.sampling.to_string(), message);
        }
        if is_flag("data") && self.loaded.is_none() && !explains {
            let message = "is not read by this prediction, which is of steps alone: leave it out, or ask for an \
                           explanation, give packed files, or a sampling that shuffles";
            return refused("data", self.data.clone(), message);
        }
        Ok(())
    }

    /// Notes in each arm which settings are those of the file, and not its own: another arm may be what reads them.
    pub fn share_settings(&mut self) {
        for arm in &mut self.arms {
            let same =
                |(key, place): (&String, &ErrorPlace)| (self.places.get(key) == Some(place)).then(|| key.clone());
            arm.experiment.shared = arm.experiment.places.iter().filter_map(same).collect();
        }
        for of in ALL {
            if self.arms.iter().all(|arm| (of.unread)(&arm.experiment)) {
                for arm in &mut self.arms {
                    arm.experiment.shared.remove(of.key);
                }
            }
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
mod tests;
