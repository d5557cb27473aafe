//! Makes the state of a training that starts from given values, such as those of a weights file.

use lockstep_models::{AccuracyMonitor, InitialValues, Program};
use lockstep_topology::InputError;

use crate::init;
use crate::state::{Position, State};

impl State {
    /// The state before the first step, with `values` instead of those drawn from `seed`; learners and their average
    /// model all start from it.
    ///
    /// # Errors
    /// Values that cannot be read, or are not finite.
    ///
    /// # Panics
    /// Values for a model of other shapes.
    pub fn beginning(program: &Program, seed: u64, values: &dyn InitialValues) -> Result<State, InputError> {
        let whole = program.whole_model();
        let (mut parameters, mut statistics) = (init::parameters(whole, seed), init::statistics(whole));
        values.put(whole, &mut parameters, &mut statistics)?;
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
        let kept = if averages { 0 } else { program.rule.states().len() };
        let states = (0..kept).map(|_| vec![0.0; parameters.len()]).collect();
        let (weights, average) =
            if averages { (Vec::new(), Some((parameters, None))) } else { (vec![parameters], None) };
        let (references, accuracy_monitor) = (Vec::new(), AccuracyMonitor::default());
        Ok(State {
            position: Position::default(),
            weights,
            statistics: own,
            states,
            moments: program.moments,
            average,
            references,
            buffers: Vec::new(),
            accuracy_monitor,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Job, Mesh, Model, NamedValues};

    use super::*;
    use crate::whole::{mean_statistics, part};

    const MODEL: &str = "name = \"m\"\ninput = [2, 4, 4]\n[[layer]]\nkind = \"conv2d\"\nout_channels = 6\nkernel = 3\n\
                         [[layer]]\nkind = \"batch_norm\"\n[[layer]]\nkind = \"dense\"\nout_features = 4\n\
                         [[layer]]\nkind = \"softmax_cross_entropy\"\n";

    /// A distinct value for each element, by name.
    fn values(model: &Model) -> NamedValues {
        let ramp = |count: u64, from: u64| (from..from + count).map(|at| at as f32).collect::<Vec<f32>>();
        let parameters = model.layers().iter().flat_map(|node| &node.parameters);
        let statistics = model.layers().iter().filter_map(|node| Some((node.name.clone(), node.statistics.clone()?)));
        NamedValues {
            parameters: parameters.map(|of| (of.name.clone(), ramp(of.elements(), 1000 + of.range.start))).collect(),
            statistics: statistics.map(|(name, of)| (name, ramp(of.end - of.start, 1 + of.start))).collect(),
        }
    }

    /// With every strategy each rank gets its part of the parameters and running statistics, and the parts of all ranks
    /// make up the whole.
    #[test]
    fn every_rank_begins_with_its_part() {
        let model = Arc::new(lockstep_readers::parse_model("m.toml", MODEL).unwrap());
        let (given, elements) = (values(&model), model.parameter_elements());
        let whole: Vec<f32> = (1000..1000 + elements).map(|at| at as f32).collect();
        let running: Vec<f32> = (1..=model.statistics_elements()).map(|at| at as f32).collect();
        for (strategy, mesh) in [
            ("ssgd", "data=2"),
            ("zero-3", "data=2"),
            ("hybrid:a", "data=2"),
            ("model-parallel", "data=2,tensor=2"),
            ("sma", "learner=2"),
            ("local-sgd:tau=2", "learner=2"),
        ] {
            let mesh: Mesh = mesh.parse().unwrap();
            // On a single axis it is the strategy's default.
            let (ranks, mesh) = (mesh.ranks(), (strategy == "model-parallel").then_some(mesh));
            let job = Job { strategy: strategy.parse().unwrap(), mesh, ..Job::new(Arc::clone(&model), ranks, 4) };
            let program = job.program().unwrap_or_else(|error| panic!("{strategy}: {error}"));
            let state = State::beginning(&program, 1, &given).unwrap();
            assert!(state.fits(&program), "{strategy}");
            let own: Vec<Vec<f32>> = (0..ranks as usize).map(|rank| state.statistics_of(rank)).collect();
            let own: Vec<&[f32]> = own.iter().map(Vec::as_slice).collect();
            assert_eq!(mean_statistics(&program, &own), running, "{strategy}");
            for rank in 0..ranks {
                assert_eq!(state.weights_of(rank as usize), whole, "{strategy}");
                let part = part(&program, rank, state.weights_of(rank as usize));
                assert_eq!(part.len() as u64, program.model.parameter_elements(), "{strategy}");
            }
        }
        // Values missing from the file are drawn as without one.
        let program = Job::new(Arc::clone(&model), 1, 4).program().unwrap();
        let none = State::beginning(&program, 7, &NamedValues::default()).unwrap();
        assert_eq!(none.weights_of(0), init::parameters(&model, 7));
        assert_eq!(none.statistics_of(0), init::statistics(&model));
    }
}
