//! Defines what a comparison does about each setting that does not affect both sides equally, one function for each.

use lockstep_models::{Augmentation, Gradients};
use lockstep_topology::Cluster;
use lockstep_topology::cluster::DeviceKind;

use crate::device::DeviceChoice;
use crate::experiment::{Axes, Experiment};
use crate::transport::TransportKind;

/// Where runs are measured.
#[derive(Debug, Clone, Copy)]
pub struct Here {
    /// Hosts of the job's processes.
    pub hosts: u32,
    /// Cores of this one.
    pub cores: u32,
}

/// An error about a setting: its value, and the reason with the cure.
pub(crate) type Wrong = (String, String);

/// What a comparison does about a setting that does not affect both sides equally.
#[derive(Clone, Copy)]
pub enum Unlike {
    /// Both follow it, or it decides what is trained and not how long a step takes.
    Never,
    /// Refuses it, where the function returns an error.
    Refused(fn(&Experiment, Here) -> Option<Wrong>),
    /// Adds a note, where the function returns one.
    Noted(fn(&Experiment) -> Option<String>),
}

pub(crate) fn cluster(experiment: &Experiment, here: Here) -> Option<Wrong> {
    if experiment.on_this_machine() {
        return None;
    }
    let wrong = |message: String| Some((experiment.cluster.clone(), message));
    let own = "write cluster = \"this-machine\"";
    // A cluster that cannot be read is refused later, where it is needed.
    let cluster = Cluster::load(&experiment.cluster).ok()?;
    let hosts = cluster.hosts().len() as u32;
    if hosts != here.hosts {
        let threads = "ranks that are threads of this host";
        let processes = format!("ranks on {} hosts", here.hosts);
        let measured = if experiment.transport == TransportKind::Threads { threads } else { &processes };
        return wrong(format!(
            "has {hosts} hosts, and would be held against {measured}: {own}, or start the job with transport = \"mpi\" on \
             the hosts that it describes"
        ));
    }
    let kinds = || cluster.devices().iter().map(|device| &device.kind);
    let gpu = kinds().find_map(|kind| if let DeviceKind::Gpu(gpu) = kind { Some(gpu) } else { None });
    let other = |kind: &DeviceKind| match kind {
        DeviceKind::Cpu(cpu) if cpu.cores != here.cores => Some(cpu.cores),
        _ => None,
    };
    match (gpu, experiment.device.is_gpu()) {
        (Some(gpu), false) => wrong(format!(
            "has GPUs ({}), which are predicted, and device = \"{}\" is measured: {own}, or use device = \"cuda\"",
            gpu.model, experiment.device
        )),
        (None, true) => wrong(format!(
            "has no GPUs, and device = \"{}\" is measured: name a cluster that has them",
            experiment.device
        )),
        (Some(_), true) => None,
        (None, false) => kinds().find_map(other).and_then(|cores| {
            wrong(format!(
                "has hosts of {cores} cores, and this one has {}: {own}, or a cluster that describes it",
                here.cores
            ))
        }),
    }
}

pub(crate) fn device(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let message = match experiment.device {
        DeviceChoice::Null => {
            "computing takes no time in measured runs, and predictions count it: use device = \"cpu\", or measure \
             the exchanges with lockstep exec run"
        }
        _ => return None,
    };
    Some((experiment.device.to_string(), message.to_owned()))
}

/// Refuses precisions that the kernels of measured runs do not support.
pub(crate) fn precision(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let refused = experiment.computes_on().err().filter(|_| experiment.gradients == Gradients::F32)?;
    Some((refused.value, refused.message))
}

/// Refuses gradients that measured runs do not exchange.
pub(crate) fn gradients(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let refused = experiment.computes_on().err().filter(|_| experiment.gradients != Gradients::F32)?;
    Some((refused.value, refused.message))
}

pub(crate) fn augmentation(experiment: &Experiment, _: Here) -> Option<Wrong> {
    // Calibration also loads a patch of a larger image, and its decoding times include what threads do to
    // decoded samples.
    if experiment.is_prepared() {
        return None;
    }
    let timed = Augmentation { patch: false, ..experiment.augmentation };
    let message = "takes time in measured runs, which predictions leave out where no core is left for threads that do it: leave \
                   it out here (patch may stay), or state decode_threads";
    (timed != Augmentation::default()).then(|| (experiment.augmentation.to_string(), message.to_owned()))
}

pub(crate) fn anchor(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let message = "scales what is predicted to a measured point, and not what is measured: leave it out, or use \
                   lockstep sim predict";
    experiment.anchor.as_ref().map(|anchor| (format!("images_per_s = {}", anchor.images_per_s), message.to_owned()))
}

pub(crate) fn input(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let message = "describes how samples reach the devices in predictions alone; measured runs read them from memory: \
                   leave [input] out, or use lockstep sim predict";
    experiment.input.as_ref().map(|_| ("[input]".to_owned(), message.to_owned()))
}

pub(crate) fn noise(experiment: &Experiment) -> Option<String> {
    experiment.noise.as_ref()?;
    Some("predictions vary as [noise] states, measured steps as this machine does".to_owned())
}

pub(crate) fn scenarios(experiment: &Experiment) -> Option<String> {
    let count = experiment.scenarios.len();
    (count > 0)
        .then(|| format!("{count} scenario(s) left out: both sides are undisturbed (lockstep sim predict has them)"))
}

pub(crate) fn seeds(experiment: &Experiment) -> Option<String> {
    let Experiment { seed, seeds, .. } = experiment;
    (*seeds > 1)
        .then(|| format!("seeds = {seeds} left out: all runs have seed {seed} (lockstep exec run takes several)"))
}

pub(crate) fn target(experiment: &Experiment) -> Option<String> {
    let accuracy = experiment.target.accuracy?;
    Some(format!("target_accuracy = {accuracy} left out: runs go to their last step (lockstep exec run looks for it)"))
}

pub(crate) fn recompute_bn(experiment: &Experiment) -> Option<String> {
    let recompute = experiment.recompute_bn;
    recompute.then(|| "recompute_bn left out: accuracies are of batch norm's running statistics".to_owned())
}

pub(crate) fn sweep(experiment: &Experiment) -> Option<String> {
    (experiment.sweep != Axes::default()).then(|| "[sweep] left out: it is for lockstep sim sweep alone".to_owned())
}

pub(crate) fn arms(experiment: &Experiment) -> Option<String> {
    (!experiment.arms.is_empty()).then(|| "[[arm]] left out: arms are for lockstep exec sweep alone".to_owned())
}
