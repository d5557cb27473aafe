//! `Training`: trains one configuration with one seed: in one piece, in segments between which learners join, or under
//! the auto-tuner.

mod segment;
mod tuned;

use lockstep_data::Dataset;
use lockstep_exec::{Run, State};
use lockstep_experiment::trained::TrainedRun;
use lockstep_experiment::{Configuration, Experiment, Length};
use lockstep_models::{Program, Trial};
use lockstep_report::failure::Failure;
use lockstep_topology::{ErrorPlace, InputError};

use crate::launch::Launch;
use crate::metrics::{Resumed, training};
use crate::operation::Operation;
use segment::Part;

/// What to train, on which data, and how it is controlled.
#[derive(Clone, Copy)]
pub struct Training<'a> {
    /// The experiment it belongs to.
    pub experiment: &'a Experiment,
    /// What to train and how.
    pub configuration: &'a Configuration,
    /// Seed of initial parameters, of the order of samples and of dropout.
    pub seed: u64,
    /// The training samples.
    pub data: &'a Dataset,
    /// The held-out samples for evaluations after each of the last epochs.
    pub held_out: Option<&'a Dataset>,
    /// How the run is controlled and observed.
    pub operation: &'a Operation,
}

/// The results of a run, as far as they are in this process.
pub struct MeasuredTraining {
    /// The configuration that was run, with the number of learners that the auto-tuner chose, if it ran.
    pub configuration: Configuration,
    /// The executed program.
    pub program: Program,
    /// Timeline, losses, state.
    pub run: Run,
    /// The seed.
    pub seed: u64,
    /// The auto-tuner's observations.
    pub trials: Vec<Trial>,
    /// The most learners of each device that it would have tried.
    pub most: Vec<u32>,
    /// The same in words.
    pub tuning: Option<String>,
}

impl Training<'_> {
    /// Trains. Returns nothing in processes other than rank 0's.
    ///
    /// # Errors
    /// Data that do not fit, a loss that is not finite, or a rank that panics or stalls.
    pub fn run(self, launch: &mut Launch) -> Result<Option<MeasuredTraining>, Failure> {
        let Training { experiment, configuration, operation, .. } = self;
        if experiment.tunes {
            return self.tuned(launch);
        }
        if let (Length::Epochs(epochs), false) = (experiment.length, experiment.growth.is_empty()) {
            return self.grown(launch, epochs);
        }
        let program = self.program()?;
        let all = self.steps(experiment.length, &program)?;
        let first = operation.first(&program, self.data.len());
        let left = u64::from(all).saturating_sub(first);
        if let (0, Some((_, path))) = (left, &operation.resumed) {
            let resume = ErrorPlace::Flag("resume");
            let message = format!("all {all} steps are done: ask for more of them, or start over without {resume}");
            return Err(InputError::flag("resume", path.display().to_string(), message).into());
        }
        if let (Some((checkpoint, _)), Some(metrics)) = (&operation.resumed, &operation.metrics) {
            let (training, label) = (training(&checkpoint.identity), configuration.label());
            let before = (&*checkpoint.label(configuration), checkpoint.steps);
            metrics.resume(Resumed { training: &training, now: (&label, first), before })?;
        }
        self.segment(launch, Part { steps: left as u32, first, start: None, hosts: None })
    }

    /// Trains while learners join: a segment for each number of learners, resumed by the next one. New learners start
    /// from the average model, and α follows their number.
    fn grown(self, launch: &mut Launch, epochs: u32) -> Result<Option<MeasuredTraining>, Failure> {
        let (mut state, mut begun, mut done): (Option<State>, u32, u32) = (None, 0, 0);
        let (mut losses, mut evaluations, mut whole) = (Vec::new(), Vec::new(), None);
        for (learners, end) in self.experiment.stages(epochs) {
            let more = self.experiment.with_learners(self.configuration, learners)?;
            let more = Training { configuration: &more, ..self };
            let steps = more.steps(Length::Epochs(end - begun), &more.program()?)?;
            let hosts = more.hosts(launch)?;
            let part = Part { steps, first: u64::from(done), start: state.as_ref(), hosts: Some(&hosts) };
            let mut measured = more.segment(launch, part)?;
            let taken = launch.maximum(measured.as_ref().map_or(0, |measured| measured.run.losses.len() as u32));
            (state, begun, done) = (Some(more.carried(launch, measured.as_ref())?), end, done + taken);
            if let Some(measured) = &mut measured {
                losses.append(&mut measured.run.losses);
                evaluations.append(&mut measured.run.evaluations);
            }
            whole = measured;
            if taken < steps {
                break;
            }
        }
        Ok(whole.map(|mut measured: MeasuredTraining| {
            (measured.run.losses, measured.run.evaluations, measured.run.first) = (losses, evaluations, 0);
            measured
        }))
    }

    /// The process of each rank: learners of a device share one.
    fn hosts(&self, launch: &Launch) -> Result<Vec<u32>, Failure> {
        let (learners, servers) = (self.configuration.learners_by_device(), self.configuration.job.servers());
        let hosts = launch.hosts_of(&learners, servers);
        let error = |message| InputError::flag("ranks", learners.len().to_string(), message);
        Ok(hosts.map_err(|message| self.experiment.locate(error(message)))?)
    }

    /// The state after a segment, in all processes.
    fn carried(&self, launch: &mut Launch, measured: Option<&MeasuredTraining>) -> Result<State, Failure> {
        launch.share(measured.map(|measured| measured.run.state()))
    }

    /// Its identity among trainings.
    fn as_run(&self) -> TrainedRun<'_> {
        TrainedRun { experiment: self.experiment, configuration: self.configuration, seed: self.seed }
    }

    /// The program of its ranks.
    fn program(&self) -> Result<Program, InputError> {
        self.configuration.program().map_err(|error| self.experiment.locate(error))
    }

    /// Steps of a run of `program` of this length.
    ///
    /// # Errors
    /// More than 2³² steps.
    fn steps(&self, length: Length, program: &Program) -> Result<u32, InputError> {
        match length {
            Length::Steps(steps) => Ok(steps),
            Length::Epochs(epochs) => {
                let per_epoch = self.data.len() as u64 / program.global_batch();
                u32::try_from(u64::from(epochs) * per_epoch).map_err(|_| {
                    let message = "gives more than 2^32 steps: use fewer epochs";
                    self.experiment.locate(InputError::flag("epochs", epochs.to_string(), message))
                })
            }
        }
    }
}
