//! Sends the state of a training from the first process of a job to all others, so that each continues from it.

use lockstep_models::{AccuracyMonitor, Moments, Target};
use lockstep_topology::Rank;

use super::{Position, State};
use crate::transport::{Transport, TransportError, control};

/// Kind of the messages that carry values.
const VALUES: u32 = 10;

/// The state that the first rank of the job has, in all ranks, one of each process; the states of others are ignored.
///
/// # Errors
/// When the job has ended; a first rank without a state.
pub fn share_state(end: &mut dyn Transport, own: Option<State>) -> Result<State, TransportError> {
    if end.rank() != Rank(0) {
        return receive(end);
    }
    let none = || TransportError::Unsupported("the first process has no state to share".to_owned());
    let state = own.ok_or_else(none)?;
    for to in (1..end.ranks()).map(Rank) {
        send(end, to, &state)?;
    }
    Ok(state)
}

/// Its vectors by meaning: weights, statistics, states of the optimizer, the average model with the one before, reference models,
/// declared buffers.
fn groups(state: &State) -> [Vec<&[f32]>; 6] {
    let averages = state.average.iter().flat_map(|(average, previous)| [Some(average), previous.as_ref()]);
    [
        state.weights.iter().map(Vec::as_slice).collect(),
        state.statistics.iter().map(Vec::as_slice).collect(),
        state.states.iter().map(Vec::as_slice).collect(),
        averages.flatten().map(Vec::as_slice).collect(),
        state.references.iter().map(Vec::as_slice).collect(),
        state.buffers.iter().map(Vec::as_slice).collect(),
    ]
}

/// Position, the format of moments by its number, accuracies as bits, and the lengths of all vectors; each list after its number of entries.
fn header(state: &State) -> Vec<u64> {
    let (position, monitor) = (state.position, &state.accuracy_monitor);
    let list = |values: Vec<u64>| std::iter::once(values.len() as u64).chain(values);
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect();
    let lengths = groups(state).map(|group| group.iter().map(|values| values.len() as u64).collect());
    let moments = Moments::ALL.iter().position(|of| *of == state.moments).unwrap_or_default() as u64;
    [position.epoch, position.samples, moments]
        .into_iter()
        .chain(list(monitor.before().map(f64::to_bits).into_iter().collect()))
        .chain(list(bits(monitor.recent())))
        .chain(lengths.into_iter().flat_map(list))
        .collect()
}

fn send(end: &mut dyn Transport, to: Rank, state: &State) -> Result<(), TransportError> {
    control::send_words(end, to, &header(state))?;
    for values in groups(state).iter().flatten().filter(|values| !values.is_empty()) {
        control::send_elements(end, to, VALUES, values.to_vec())?;
    }
    Ok(())
}

fn receive(end: &mut dyn Transport) -> Result<State, TransportError> {
    let first = Rank(0);
    let mut header = control::receive_words(end, first)?.into_iter();
    let mut next = || header.next().unwrap_or_default();
    let position = Position { epoch: next(), samples: next() };
    let moments = Moments::ALL.into_iter().nth(next() as usize).unwrap_or_default();
    let mut list = || -> Vec<u64> { (0..next()).map(|_| next()).collect() };
    let (before, recent) = (list(), list());
    let lengths: [Vec<u64>; 6] = std::array::from_fn(|_| list());
    let mut vectors = |of: &[u64]| -> Result<Vec<Vec<f32>>, TransportError> {
        let one = |length: &u64| match length {
            0 => Ok(Vec::new()),
            _ => control::receive_elements(end, first, VALUES, *length as usize),
        };
        of.iter().map(one).collect()
    };
    let (weights, statistics) = (vectors(&lengths[0])?, vectors(&lengths[1])?);
    let states = vectors(&lengths[2])?;
    let mut averages = vectors(&lengths[3])?.into_iter();
    let average = averages.next().map(|average| (average, averages.next()));
    let value = |bits: &u64| f64::from_bits(*bits);
    let monitor = AccuracyMonitor::new(Target::default());
    Ok(State {
        position,
        weights,
        statistics,
        states,
        moments,
        average,
        references: vectors(&lengths[4])?,
        buffers: vectors(&lengths[5])?,
        accuracy_monitor: monitor.resuming(before.first().map(value), recent.iter().map(value).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::memory;

    #[test]
    fn every_process_gets_the_state_of_the_first() {
        let some = |seed: u32, count: u32| -> Vec<f32> { (0..count).map(|at| f32::from_bits(seed + at)).collect() };
        let monitor = AccuracyMonitor::new(Target::default()).resuming(Some(0.25), vec![0.5, 0.75]);
        let learners = State {
            position: Position { epoch: 1 << 33, samples: 7 },
            weights: vec![some(1, 5), some(9, 5), some(20, 5)],
            statistics: vec![Vec::new(), some(3, 2)],
            states: Vec::new(),
            moments: Moments::F32,
            average: Some((some(4, 5), Some(some(5, 5)))),
            references: vec![some(6, 5)],
            buffers: vec![some(9, 5), Vec::new()],
            accuracy_monitor: monitor,
        };
        let begun = State { average: Some((some(4, 5), None)), references: Vec::new(), ..learners.clone() };
        let states = vec![some(8, 5), some(9, 5)];
        let replicas = State { average: None, states, moments: Moments::Bf16, ..learners.clone() };
        for state in [learners, begun, replicas] {
            let states = vec![Some(state.clone()), None, None];
            let shared = memory::run(states, 0, |end, own| share_state(end, own.take())).unwrap();
            assert_eq!(shared, [state.clone(), state.clone(), state]);
        }
    }
}
