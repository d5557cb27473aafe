//! Chooses how many steps each configuration is trained for, where the experiment states the seconds of a run.

use lockstep_experiment::{Experiment, Length};
use lockstep_report::PredictedRow;

/// Fewest steps of a run whose median is meaningful: three are left out.
const FEWEST: u32 = 12;

/// The experiment of one configuration's run: as many steps as take `seconds_per_run` by its prediction, at least 12 and
/// at most its `steps`. `agreed` makes the number known to the processes that have no prediction, which give 0.
pub(super) fn run_of(
    experiment: &Experiment,
    predicted: Option<&PredictedRow>,
    agreed: impl FnOnce(u32) -> u32,
) -> Experiment {
    let (Some(seconds), Length::Steps(most)) = (experiment.seconds_per_run, experiment.length) else {
        return experiment.clone();
    };
    let fitting = |row: &PredictedRow| ((seconds / row.step_time_s) as u32).clamp(FEWEST.min(most), most);
    Experiment { length: Length::Steps(agreed(predicted.map_or(0, fitting))), ..experiment.clone() }
}

/// `60`, or `12 to 60`.
pub(super) fn span(steps: impl Iterator<Item = u32> + Clone) -> String {
    let (least, most) = (steps.clone().min().unwrap_or(0), steps.max().unwrap_or(0));
    if least == most { most.to_string() } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_take_their_seconds_by_the_prediction() {
        let experiment = Experiment { seconds_per_run: Some(0.6), length: Length::Steps(60), ..Experiment::default() };
        let steps = |step_time_s: f64| {
            let row = PredictedRow { step_time_s, ..PredictedRow::default() };
            run_of(&experiment, Some(&row), |own| own).length.steps()
        };
        assert_eq!([0.001, 0.02, 1.0].map(steps), [Some(60), Some(30), Some(12)]);
        // A process without predictions takes the number of the one that has them.
        assert_eq!(run_of(&experiment, None, |own| own.max(30)).length, Length::Steps(30));
        let whole = Experiment { seconds_per_run: None, ..experiment };
        assert_eq!(run_of(&whole, None, |_| 1).length, Length::Steps(60));
        assert_eq!((span([60, 12].into_iter()), span([60].into_iter())), ("12 to 60".to_owned(), "60".to_owned()));
    }
}
