//! The state of a training that begins with given values, such as those of a file of weights.

use lockstep_models::{InitialValues, Judge, Program};

use crate::init;
use crate::state::{Position, State};

impl State {
    /// The state before the first step, with `values` in place of what `seed` draws; learners and their average model all begin so.
    ///
    /// # Panics
    /// Values of another length than the parameter of their name.
    pub fn beginning(program: &Program, seed: u64, values: &InitialValues) -> State {
        let whole = program.whole_model();
        let (mut parameters, mut statistics) = (init::parameters(whole, seed), init::statistics(whole));
        values.put(whole, &mut parameters, &mut statistics);
        let mut own = vec![init::statistics(&program.model); program.workers() as usize];
        for (pieces, having) in program.statistics_shares() {
            for (range, start) in &pieces {
                let values = &statistics[range.start as usize..range.end as usize];
                for rank in &having {
                    own[*rank as usize][*start as usize..][..values.len()].copy_from_slice(values);
                }
            }
        }
        let averages = program.averages();
        let velocity = if averages { Vec::new() } else { vec![0.0; parameters.len()] };
        let (weights, average) =
            if averages { (Vec::new(), Some((parameters, None))) } else { (vec![parameters], None) };
        let (references, judge) = (Vec::new(), Judge::default());
        State { position: Position::default(), weights, statistics: own, velocity, average, references, judge }
    }
}
