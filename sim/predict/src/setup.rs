//! `Setup`: states how an experiment is predicted: network, noise and trials.

use lockstep_models::{CopiedBy, Input, Jitter, READ_AHEAD, SampleForm, SampleSource, TransformAt, fits};
use lockstep_sim::{Conditions, NetworkModel, Platform, SimOptions};
use lockstep_topology::{Bandwidth, Bytes, InputError, Time};

use crate::site::Site;
use lockstep_experiment::Experiment;

/// Steps that a prediction with noise counts, for a stable median.
pub(crate) const NOISY_STEPS: u32 = 100;
/// Steps that one of several trials counts.
const TRIAL_STEPS: u32 = 10;

/// How predictions are made.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// How transfers share links.
    pub network: NetworkModel,
    /// Iterations and threads.
    pub options: SimOptions,
    /// Whether each prediction is explained, which takes tens of further simulations.
    pub explain: bool,
    /// Stated noise.
    pub conditions: Conditions,
    /// Simulations of each configuration under noise; none without noise.
    pub trials: u32,
}

impl Setup {
    /// The setup for an experiment: its threads per rank, its noise or else the site's, as many steps as noise needs.
    ///
    /// # Errors
    /// A precision that the site's figures do not cover, noise fitted to a missing record, trials where nothing varies.
    pub fn of(experiment: &Experiment, site: &Site, network: NetworkModel) -> Result<Setup, InputError> {
        site.check_precision(experiment)?;
        let (noise, trials) = jitter(experiment, site)?;
        let varies = site.costs.noise().is_some() || !noise.is_empty();
        if trials > 1 && !varies {
            let message = "all trials would be equal, since nothing varies: state kernel, step, rank, latency or \
                           bandwidth in [noise], or use a profile that lockstep calibrate recorded noise in";
            return Err(experiment.locate(InputError::flag("noise", format!("trials = {trials}"), message)));
        }
        let usual = SimOptions { threads_per_rank: experiment.threads_per_rank, ..SimOptions::default() };
        let counted = match (varies, trials) {
            (false, _) => usual.counted,
            (true, 1) => NOISY_STEPS,
            (true, _) => TRIAL_STEPS,
        };
        let trials = if varies { trials } else { 0 };
        let input = experiment.input.as_ref().map(|stated| stated.input()).transpose();
        let input = input.map_err(|error| experiment.locate(error))?.or_else(|| prepared(experiment, site));
        // A pipeline is in steady state when every buffer has been used.
        let filling = input.as_ref().map_or(0, |input| input.prefetch.min(64) + 2);
        let options = SimOptions { counted, warm_up: usual.warm_up + filling, ..usual };
        Ok(Setup {
            network,
            options,
            explain: false,
            conditions: Conditions { noise, input, ..Conditions::default() },
            trials,
        })
    }

    /// The platform with this network and these conditions.
    pub(crate) fn on<'a>(&'a self, platform: Platform<'a>) -> Platform<'a> {
        Platform { network: self.network, conditions: &self.conditions, ..platform }
    }
}

/// The input of a set whose batches threads prepare, from measurements; `None` for other sets, and where none was
/// measured.
fn prepared(experiment: &Experiment, site: &Site) -> Option<Input> {
    let (profile, sizes) = (site.profile.as_ref()?, experiment.loaded?);
    let sample = experiment.prepared()?;
    let model = experiment.load_model(&experiment.model).ok()?;
    let entry = profile.decode_of(sample, model.input().elements(), experiment.augmentation)?;
    if experiment.transform_at != TransformAt::Host && entry.transform.is_none() {
        return None;
    }
    let source = match sample.form {
        // Each process has all of them.
        SampleForm::Values => SampleSource::Memory { groups: 1, shuffle_every: None },
        SampleForm::Jpeg | SampleForm::Png | SampleForm::Bytes => {
            let storage = profile.storage.as_ref()?;
            let page_cache = Bytes(storage.page_cache);
            SampleSource::Files { bandwidth: Bandwidth::new(storage.random.value)?, latency: Time::ZERO, page_cache }
        }
    };
    let transform = entry.transform.map_or(0.0, |seconds| seconds.value);
    let threads = experiment.decode_threads.unwrap_or(profile.cores).saturating_mul(experiment.processes.unwrap_or(1));
    Some(Input {
        samples: sizes.train,
        sample_bytes: Bytes(sample.bytes),
        source,
        threads,
        decode: Time::from_secs_f64((entry.seconds.value - transform).max(0.0)),
        // Each of n cores that all decode takes f/n of the memory bandwidth.
        decode_memory: if entry.slowdown > 1.0 { entry.slowdown / f64::from(profile.cores.max(1)) } else { 0.0 },
        transform: Time::from_secs_f64(transform),
        prefetch: READ_AHEAD,
        // As timed by calibration.
        copied_by: CopiedBy::Load,
    })
}

/// The noise that an experiment states, and its trials.
fn jitter(experiment: &Experiment, site: &Site) -> Result<(Jitter, u32), InputError> {
    let Some(stated) = &experiment.noise else { return Ok((Jitter::default(), 1)) };
    let mut jitter = stated.jitter.clone();
    if stated.fitted_kernel || stated.fitted_step {
        let trace = site.profile.as_ref().and_then(|profile| profile.noise.as_ref());
        let Some(best) = trace.and_then(|trace| fits(trace).into_iter().next()) else {
            let message =
                "there is no recorded noise to fit: run lockstep calibrate on this machine, or state a family";
            return Err(experiment.locate(InputError::flag("noise", "fitted", message)));
        };
        let fitted = |yes: bool, stated| if yes { Some(best.distribution) } else { stated };
        jitter.kernel = fitted(stated.fitted_kernel, jitter.kernel);
        jitter.step = fitted(stated.fitted_step, jitter.step);
    }
    Ok((jitter, stated.trials))
}
