//! Refuses settings that are stated and that nothing reads beside the others.

use lockstep_models::{Axis, Layer, Model, Sampling, Scaling, Strategy, WarmUp};
use lockstep_topology::{Algorithm, ErrorPlace, InputError, Time};

use crate::device::DeviceChoice;
use crate::experiment::Experiment;
use crate::initial;
use crate::input::Stated as StatedInput;

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

const OF_SGD: &str = "is of the optimizer sgd, and another one is chosen: leave it out, or use sgd";
const OF_ADAM: &str =
    "is of the optimizers adam and adamw, and another one is chosen: use optimizer = \"adamw\", or leave it out";

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
    ReadBeside {
        key: "seconds_per_run",
        value: |e| e.seconds_per_run.unwrap_or_default().to_string(),
        unread: |e| e.length.steps().is_none(),
        cure: "shortens runs of a number of steps, and the length is in epochs: give steps instead, or leave it out",
    },
    ReadBeside {
        key: "momentum",
        value: |e| e.optimizer.momentum.to_string(),
        unread: |e| !steps_by(e, "momentum"),
        cure: OF_SGD,
    },
    ReadBeside {
        key: "nesterov",
        value: |e| e.optimizer.nesterov.to_string(),
        unread: |e| !steps_by(e, "nesterov"),
        cure: OF_SGD,
    },
    ReadBeside {
        key: "momentum_form",
        value: |e| e.optimizer.form.to_string(),
        unread: |e| !steps_by(e, "momentum_form"),
        cure: OF_SGD,
    },
    ReadBeside {
        key: "beta1",
        value: |e| e.optimizer.beta1.to_string(),
        unread: |e| !steps_by(e, "beta1"),
        cure: OF_ADAM,
    },
    ReadBeside {
        key: "beta2",
        value: |e| e.optimizer.beta2.to_string(),
        unread: |e| !steps_by(e, "beta2"),
        cure: OF_ADAM,
    },
    ReadBeside {
        key: "epsilon",
        value: |e| e.optimizer.epsilon.to_string(),
        unread: |e| !steps_by(e, "epsilon"),
        cure: OF_ADAM,
    },
    ReadBeside {
        key: "nesterov",
        value: |_| "true".to_owned(),
        unread: |e| steps_by(e, "nesterov") && e.optimizer.nesterov && e.optimizer.momentum == 0.0,
        cure: "looks ahead along the momentum, which is 0: give momentum a value above 0, or leave it out",
    },
    ReadBeside {
        key: "momentum_form",
        value: |e| e.optimizer.form.to_string(),
        unread: |e| steps_by(e, "momentum_form") && e.optimizer.momentum == 0.0,
        cure: "says what the momentum's buffer holds, and momentum is 0: give that a value above 0, or leave it out",
    },
    ReadBeside {
        key: "decay_batch_norm",
        value: |_| "true".to_owned(),
        unread: |e| e.optimizer.decay_batch_norm && e.optimizer.weight_decay == 0.0,
        cure: "is about weight decay, which is 0: give weight_decay a value above 0, or leave it out",
    },
    ReadBeside {
        key: "no_decay",
        value: |e| e.optimizer.no_decay.to_string(),
        unread: |e| !e.optimizer.no_decay.is_empty() && e.optimizer.weight_decay == 0.0,
        cure: "is about weight decay, which is 0: give weight_decay a value above 0, or leave it out",
    },
    ReadBeside {
        key: "warm_up",
        value: |e| e.optimizer.warm_up.to_string(),
        unread: |e| {
            e.optimizer.warm_up.rate().is_none()
                && e.optimizer.warm_up != WarmUp::None
                && e.optimizer.scaling == Scaling::None
        },
        cure: "leads to the scaled rate, and nothing scales it: give scaling, or the rate to start at, as in gradual:5@0.1",
    },
    ReadBeside {
        key: "input.callback",
        value: |e| e.input.as_ref().map_or(Time::ZERO, StatedInput::callback).to_string(),
        unread: |e| !matches!(e.strategy, Strategy::FirstDeviceTable(_)) && !lists(e, &["strategy"]),
        cure: "is the end of a device's job under the strategy first-device-table: use that, or leave it out",
    },
];

/// Whether the optimizer is one that reads this key.
fn steps_by(experiment: &Experiment, key: &str) -> bool {
    experiment.optimizer.rule.reads().contains(&key)
}

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
        && !experiment.strategy.splits_layers()
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
    /// The keys that one of several experiments reads, where they are several.
    pub(crate) fn read_by_some(all: &[Experiment]) -> Vec<&'static str> {
        let read = |of: &&ReadBeside| all.len() > 1 && all.iter().any(|one| !(of.unread)(one));
        ALL.iter().filter(read).map(|of| of.key).collect()
    }

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
    /// Statistics or decay of batch norm, where there is none; initial values of layers that it lacks.
    pub(crate) fn check_read_by(&self, model: &Model) -> Result<(), InputError> {
        let own = |key: &str| self.states(key) && !self.shared.contains(key) && self.arms.is_empty();
        let refused = |key, value: String, what: &str| {
            let message = format!("is of {what}, and {} has none: leave it out", model.name());
            Err(self.locate(InputError::flag(key, value, message)))
        };
        let normalises = || model.layers().iter().any(|node| matches!(node.layer, Layer::BatchNorm(_)));
        if self.recompute_bn && own("recompute_bn") && !normalises() {
            return refused("recompute_bn", "true".to_owned(), "batch norm");
        }
        let spared = || model.layers().iter().flat_map(|node| &node.parameters).any(|parameter| !parameter.decay);
        if self.optimizer.decay_batch_norm && own("decay_batch_norm") && !spared() {
            return refused("decay_batch_norm", "true".to_owned(), "batch norm and scales");
        }
        let parameters = model.layers().iter().flat_map(|node| &node.parameters);
        if let Some(pattern) = self.optimizer.no_decay.idle(parameters).filter(|_| own("no_decay")) {
            let what = format!("parameters that match {pattern} (names are like fc1.weight)");
            return refused("no_decay", self.optimizer.no_decay.to_string(), &what);
        }
        match initial::unread(model).into_iter().find(|of| own(of.place)) {
            Some(of) => refused(of.place, (of.value)(&self.inits), of.what),
            None => Ok(()),
        }
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
