//! Predicts the work between steps: shuffles always, evaluations and checkpoints where an explanation asks.

use lockstep_models::{Periodic, Program, Timeline};
use lockstep_sim::{Platform, SimError, simulate_periodic};
use lockstep_topology::{Dtype, InputError};

use crate::setup::Setup;
use lockstep_experiment::{Configuration, Experiment};

/// The programs of periodic work, whose predicted tasks go into `timeline`.
///
/// # Errors
/// A shuffle of a set whose size only its files state; errors of a simulation.
pub(crate) fn periodic(
    configuration: &Configuration,
    experiment: &Experiment,
    (program, platform): (&Program, &Platform<'_>),
    setup: &Setup,
    timeline: &mut Timeline,
) -> Result<Vec<(Periodic, Program)>, SimError> {
    let shuffles = program.partition.as_ref().is_some_and(|partition| partition.shuffle_every.is_some());
    if !(shuffles || setup.explain) {
        return Ok(Vec::new());
    }
    let model = &configuration.job.model;
    let sizes = experiment.set_sizes(model.input());
    let mut works = Vec::new();
    match sizes {
        // A sample is sent as its image, or in packed form.
        Some(sizes) => works.extend(
            program
                .shuffle(sizes.train, sizes.message.unwrap_or((model.input().elements(), Dtype::F32)))?
                .map(|work| (Periodic::Shuffle, work)),
        ),
        None if shuffles => {
            let message =
                "is a folder, which predictions do not read: append :TRAIN+HELD_OUT with its numbers of samples";
            return Err(InputError::flag("data", experiment.data.clone(), message).into());
        }
        None => {}
    }
    if setup.explain {
        let recomputed = sizes.filter(|_| experiment.recompute_bn);
        let micro_batches = recomputed.map_or(0, |sizes| sizes.train / u64::from(program.batch_per_rank));
        if let Some(sizes) = sizes {
            let work = program.evaluation(sizes.held_out, micro_batches)?;
            works.push((Periodic::Evaluation, work));
        }
        works.push((Periodic::Checkpoint, program.checkpoint()?));
    }
    for (kind, work) in &works {
        let spans = simulate_periodic(*kind, work, platform, &setup.options, timeline);
        timeline.periodic.extend(spans?);
    }
    Ok(works)
}
