//! Holds the state of a training between two iterations: enough to resume, also with another number of learners.

mod share;

use std::borrow::Cow;

use lockstep_models::{AccuracyMonitor, Moments, Program};

pub use share::share_state;

/// Progress of a training through its samples, independent of the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Completed epochs.
    pub epoch: u64,
    /// Samples done in the current epoch.
    pub samples: u64,
}

impl Position {
    /// The position after `steps` steps of `global_batch` samples, with `steps_per_epoch` steps in an epoch.
    pub(crate) fn after(steps: u64, global_batch: u64, steps_per_epoch: u64) -> Position {
        Position { epoch: steps / steps_per_epoch, samples: steps % steps_per_epoch * global_batch }
    }

    /// The number of steps of that size to here, rounded up where they do not divide.
    pub fn steps(self, global_batch: u64, steps_per_epoch: u64) -> u64 {
        self.epoch * steps_per_epoch + self.samples.div_ceil(global_batch).min(steps_per_epoch)
    }
}

/// The state from which a training resumes. `V` holds the values of a model: its own, or values in a rank's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct State<V = Vec<f32>> {
    /// Progress through the samples.
    pub position: Position,
    /// Each learner's parameters; one entry where all workers train one model.
    pub weights: Vec<V>,
    /// Each worker's running statistics.
    pub statistics: Vec<V>,
    /// What the optimizer keeps for each parameter, state by state; none for learners that have an average model.
    pub states: Vec<V>,
    /// The format of these, to whose numbers they are rounded.
    pub moments: Moments,
    /// z and, unless it has not moved yet, z_prev.
    pub average: Option<(V, Option<V>)>,
    /// The reference models of all devices but the first, whose reference is the average model; empty where there are
    /// none.
    pub references: Vec<V>,
    /// The buffers that the program declares as state; empty before its first iteration.
    pub buffers: Vec<V>,
    /// The decisions made from accuracies so far.
    pub accuracy_monitor: AccuracyMonitor,
}

impl State<Cow<'_, [f32]>> {
    /// The same state, with copies of what it borrows.
    pub fn into_owned(self) -> State {
        let all = |of: Vec<Cow<'_, [f32]>>| of.into_iter().map(Cow::into_owned).collect();
        State {
            position: self.position,
            weights: all(self.weights),
            statistics: all(self.statistics),
            states: all(self.states),
            moments: self.moments,
            average: self.average.map(|(z, previous)| (z.into_owned(), previous.map(Cow::into_owned))),
            references: all(self.references),
            buffers: all(self.buffers),
            accuracy_monitor: self.accuracy_monitor,
        }
    }
}

impl State {
    /// The parameters of worker `rank`; a new learner starts from the average model (Koliousis et al. 2019, §4.4).
    pub(crate) fn weights_of(&self, rank: usize) -> &[f32] {
        match &self.average {
            None => &self.weights[0],
            Some((average, _)) => self.weights.get(rank).unwrap_or(average),
        }
    }

    /// The reference model of `device` (not the first); a new device starts from the average model.
    pub(crate) fn reference_of(&self, device: u32) -> &[f32] {
        let average = self.average.as_ref().map_or(&[][..], |(average, _)| average);
        self.references.get(device as usize - 1).map_or(average, Vec::as_slice)
    }

    /// The running statistics of worker `rank`; a new one starts from the mean of all.
    pub(crate) fn statistics_of(&self, rank: usize) -> Vec<f32> {
        let of_all = || mean(self.statistics.iter().map(Vec::as_slice));
        self.statistics.get(rank).cloned().unwrap_or_else(of_all)
    }

    /// Whether it matches `program`: the same model, moments of its format, and an average model where the program has one.
    pub(crate) fn fits(&self, program: &Program) -> bool {
        let (parameters, statistics) =
            (program.whole_model().parameter_elements(), program.model.statistics_elements());
        let long = |values: &[f32], elements: u64| values.len() as u64 == elements;
        let average = self.average.as_ref().is_none_or(|(z, previous)| {
            long(z, parameters) && previous.as_ref().is_none_or(|previous| long(previous, parameters))
        });
        average
            && self.average.is_some() == program.averages()
            && (self.average.is_some() || !self.weights.is_empty() && self.states.len() == program.rule.states().len())
            && self.states.iter().all(|state| long(state, parameters))
            && self.moments == program.moments
            && !self.statistics.is_empty()
            && (self.buffers.is_empty() || self.buffers.len() == program.state_buffers().count())
            && program.state_buffers().zip(&self.buffers).all(|((of, _), values)| long(values, program.elements(of)))
            && self.weights.iter().chain(&self.references).all(|weights| long(weights, parameters))
            && self.statistics.iter().all(|of| long(of, statistics))
            // Where ranks hold parts of the model, each takes its own back.
            && (!program.cuts_model() || statistics == 0 || self.statistics.len() == program.workers() as usize)
    }
}

/// The elementwise mean over workers, as running statistics are averaged for evaluation.
pub(crate) fn mean<'a>(all: impl ExactSizeIterator<Item = &'a [f32]>) -> Vec<f32> {
    let count = all.len() as f64;
    let mut mean: Vec<f64> = Vec::new();
    for values in all {
        mean.resize(values.len(), 0.0);
        mean.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value) / count);
    }
    mean.into_iter().map(|value| value as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_by_hand() {
        // 100 samples: 6 steps of 16 in an epoch, 4 left over. 20 steps are 3 epochs and 2 steps.
        let at = Position::after(20, 16, 6);
        assert_eq!(at, Position { epoch: 3, samples: 32 });
        assert_eq!(at.steps(16, 6), 20);
        // In steps of 24, 4 to an epoch, that is between the first and the second of epoch 3.
        assert_eq!(at.steps(24, 4), 3 * 4 + 2);
        // Near the end of an epoch there is no further step in it.
        assert_eq!(Position { epoch: 0, samples: 96 }.steps(30, 3), 3);
    }
}
