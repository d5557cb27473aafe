//! Scales task times measured between marks to a step without marks, which the device receives as one graph.

use lockstep_models::{Op, median};

use super::learners::Steps;
use super::steps::Laps;

/// The time of passes in a whole step relative to their sum between marks: scaled by it, a step's tasks add up to the
/// step time of `alone`, a single learner, of which updates and loads take `beside` seconds. 1 where that is unknown.
pub(super) fn share(laps: &Laps, alone: Option<&Steps>, beside: f64) -> f64 {
    let passes = laps.tasks.iter().filter(|(op, _)| matches!(op, Op::Compute { .. }));
    let one_by_one: f64 = passes.map(|(_, seconds)| median(seconds.clone())).sum();
    let whole = alone.filter(|steps| !steps.steps.is_empty()).map(|steps| median(steps.steps.clone()) - beside);
    match whole {
        Some(whole) if whole > 0.0 && one_by_one > 0.0 => whole / one_by_one,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::{Elementwise, Optimizer, Phase};

    use super::*;

    #[test]
    fn task_times_are_scaled_to_a_step() {
        let pass = |seconds: f64| {
            let op = Op::Compute { chain: 0, phase: Phase::Forward, samples: 1, pass: None };
            (op, vec![seconds, 9.0 * seconds, seconds])
        };
        let update = Op::Elementwise(Elementwise::new(Optimizer::update(1.0, false), 0..1));
        let tasks = vec![pass(2.0), (update, vec![5.0]), pass(3.0)];
        let laps = Laps { tasks, updates: Vec::new(), marks: Vec::new() };
        let steps = |steps: &[f64]| Steps { steps: steps.to_vec(), loads: Vec::new() };
        // 10 seconds, 6 of which are not the passes'; they take 5 one by one.
        assert_eq!(share(&laps, Some(&steps(&[10.0, 10.0, 99.0])), 6.0), 0.8);
        for unknown in [None, Some(&steps(&[])), Some(&steps(&[6.0]))] {
            assert_eq!(share(&laps, unknown, 6.0), 1.0);
        }
        assert_eq!(share(&Laps { tasks: Vec::new(), ..laps }, Some(&steps(&[10.0])), 6.0), 1.0);
    }
}
