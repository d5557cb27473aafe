//! Takes the number of ranks from the launcher, before the processes join each other.

use lockstep_experiment::{Experiment, TransportKind};
use lockstep_report::log::print_line;
use lockstep_topology::ErrorPlace;

/// Variables with the number of started processes: Open MPI's, those of MPICH and its derivatives, and `srun`'s.
const STARTED: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Whether a launcher has started several processes, of which this is one.
pub fn is_one_of_several() -> bool {
    started() > 1
}

/// How many processes the launcher has started; one without a launcher.
fn started() -> u32 {
    STARTED.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).unwrap_or(1)
}

/// Sets one rank per started process, unless the file or a flag gives their number.
pub fn take_started(experiment: &mut Experiment) {
    take(experiment, started());
}

fn take(experiment: &mut Experiment, started: u32) {
    match experiment.transport {
        _ if started <= 1 => {}
        TransportKind::Threads => {
            let flag = ErrorPlace::Flag("transport");
            print_line(&format!(
                "one of {started} processes, each of which trains by itself: for one job of all use {flag} mpi"
            ));
        }
        TransportKind::Mpi if !experiment.sets("ranks") => {
            // Each learner is a rank.
            let learners = experiment.learners.max(1);
            experiment.ranks = vec![if started.is_multiple_of(learners) { started / learners } else { started }];
        }
        TransportKind::Mpi => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ranks_defaults_to_the_processes_started() {
        let ranks = |keys: &str, started: u32| {
            let text = format!("name = \"e\"\nmodel = \"mlp\"\n{keys}");
            let mut experiment = Experiment::parse("e.toml", &text).unwrap();
            take(&mut experiment, started);
            experiment.ranks
        };
        let mpi = "transport = \"mpi\"\n";
        assert_eq!(ranks(mpi, 1), [1]);
        assert_eq!(ranks(mpi, 3), [3]);
        assert_eq!(ranks("", 3), [1]);
        assert_eq!(ranks(&format!("{mpi}ranks = [6, 9]\n"), 3), [6, 9]);
        let learners = format!("{mpi}strategy = \"sma\"\nlearners = 2\n");
        assert_eq!(ranks(&learners, 4), [2]);
        assert_eq!(ranks(&learners, 3), [3]);
    }
}
