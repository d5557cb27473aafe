//! Settings that do not reach both sides of a comparison alike: what only one side would do is refused before anything is measured;
//! what neither does, or what is noise on one of them, is added as a note.

use lockstep_models::{Augmentation, Precision, Sampling};
use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{Cluster, InputError};

use super::{Axes, Device, Experiment, SETTINGS, TransportKind};

/// Where runs are measured.
#[derive(Debug, Clone, Copy)]
pub struct Here {
    /// Hosts that the processes of the job are on.
    pub hosts: u32,
    /// Cores of this one.
    pub cores: u32,
    /// Whether predictions rest on a profile.
    pub profiled: bool,
}

/// What is wrong with a setting: its value, and why with the cure.
pub type Wrong = (String, String);

/// What a comparison does about a setting that does not reach both sides alike.
#[derive(Clone, Copy)]
pub enum Unlike {
    /// Both follow it, or it decides what is trained and not how long a step takes.
    Never,
    /// Refuses it, where the function says so.
    Refused(fn(&Experiment, Here) -> Option<Wrong>),
    /// Adds a note, where the function says so.
    Noted(fn(&Experiment) -> Option<String>),
}

/// Refuses what only one side of a comparison would do; what a reader must know of the rest.
///
/// # Errors
/// The first such setting, at its line, with the cure.
pub fn check(experiment: &Experiment, here: Here) -> Result<Vec<String>, InputError> {
    let mut notes = Vec::new();
    for setting in SETTINGS {
        match setting.unlike {
            Unlike::Never => {}
            Unlike::Refused(wrong) => {
                if let Some((value, message)) = wrong(experiment, here) {
                    return Err(experiment.locate(InputError::flag(setting.key, value, message)));
                }
            }
            Unlike::Noted(note) => notes.extend(note(experiment)),
        }
    }
    Ok(notes)
}

pub(super) fn cluster(experiment: &Experiment, here: Here) -> Option<Wrong> {
    if experiment.on_this_machine() {
        return None;
    }
    let wrong = |message: String| Some((experiment.cluster.clone(), message));
    let own = "write cluster = \"this-machine\"";
    // A cluster that cannot be read is refused by whoever needs it.
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
            "has GPUs ({}), which are predicted, and device = \"{}\" is measured: {own}, or take device = \"cuda\"",
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

pub(super) fn shuffle(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let Sampling::Partitioned { shuffle_every: Some(_), .. } = experiment.sampling else { return None };
    let message = "measured runs exchange samples, and predictions know nothing of it: leave shuffle-every out, or \
                   measure with lockstep exec run";
    Some((experiment.sampling.to_string(), message.to_owned()))
}

pub(super) fn device(experiment: &Experiment, here: Here) -> Option<Wrong> {
    let message = match experiment.device {
        Device::Null => {
            "computing takes no time in measured runs, and predictions count it: take device = \"cpu\", or measure \
             the exchanges with lockstep exec run"
        }
        Device::Cuda(Precision::Tf32 | Precision::Bf16) if !here.profiled => {
            "predictions from data sheets know fp32 alone: give the --profile that lockstep exec profile has written of it"
        }
        _ => return None,
    };
    Some((experiment.device.to_string(), message.to_owned()))
}

pub(super) fn augmentation(experiment: &Experiment, _: Here) -> Option<Wrong> {
    // A patch of a larger image is what calibration loads, too.
    let timed = Augmentation { patch: false, ..experiment.augmentation };
    let message = "takes time in measured runs, which predictions leave out: leave it out here (patch may stay)";
    (timed != Augmentation::default()).then(|| (experiment.augmentation.to_string(), message.to_owned()))
}

pub(super) fn anchor(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let message = "scales what is predicted to a measured point, and nothing that is measured: leave it out, or use \
                   lockstep sim predict";
    experiment.anchor.as_ref().map(|anchor| (format!("images_per_s = {}", anchor.images_per_s), message.to_owned()))
}

pub(super) fn input(experiment: &Experiment, _: Here) -> Option<Wrong> {
    let message = "describes how samples reach the devices in predictions alone; measured runs read them from memory: \
                   leave [input] out, or use lockstep sim predict";
    experiment.input.as_ref().map(|_| ("[input]".to_owned(), message.to_owned()))
}

pub(super) fn noise(experiment: &Experiment) -> Option<String> {
    experiment.noise.as_ref()?;
    Some("predictions vary as [noise] states, measured steps as this machine does".to_owned())
}

pub(super) fn scenarios(experiment: &Experiment) -> Option<String> {
    let count = experiment.scenarios.len();
    (count > 0)
        .then(|| format!("{count} scenario(s) left out: both sides are undisturbed (lockstep sim predict has them)"))
}

pub(super) fn seeds(experiment: &Experiment) -> Option<String> {
    let Experiment { seed, seeds, .. } = experiment;
    (*seeds > 1)
        .then(|| format!("seeds = {seeds} left out: all runs have seed {seed} (lockstep exec run takes several)"))
}

pub(super) fn target(experiment: &Experiment) -> Option<String> {
    let accuracy = experiment.target.accuracy?;
    Some(format!("target_accuracy = {accuracy} left out: runs go to their last step (lockstep exec run looks for it)"))
}

pub(super) fn recompute_bn(experiment: &Experiment) -> Option<String> {
    let recompute = experiment.recompute_bn;
    recompute.then(|| "recompute_bn left out: accuracies are of batch norm's running statistics".to_owned())
}

pub(super) fn sweep(experiment: &Experiment) -> Option<String> {
    (experiment.sweep != Axes::default()).then(|| "[sweep] left out: it is for lockstep sim sweep alone".to_owned())
}

pub(super) fn arms(experiment: &Experiment) -> Option<String> {
    (!experiment.arms.is_empty()).then(|| "[[arm]] left out: arms are for lockstep exec sweep alone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here { hosts: 1, cores: 16, profiled: false };

    fn checked(more: &str) -> Result<Vec<String>, InputError> {
        let text = format!("name = \"e\"\nmodel = \"lenet\"\nranks = [2]\n{more}");
        check(&Experiment::parse("e.toml", &text).expect("an experiment"), HERE)
    }

    #[test]
    fn what_one_side_alone_does_is_refused_with_its_line_and_the_cure() {
        let input = "[input]\nsamples = 10\nimage = \"1KiB\"\nthreads = 1\ndecode = \"1ms\"\n[input.provenance]\n\
                     samples = \"assumed: a\"\nimage = \"assumed: a\"\nthreads = \"assumed: a\"\ndecode = \"assumed: a\"\n";
        for (more, cure) in [
            (input, "leave [input] out"),
            ("cluster = \"ethernet-4\"\n", "this-machine"),
            ("cluster = \"dgx1-v100\"\n", "device = \"cuda\""),
            ("cluster = \"ethernet-4:1\"\ndevice = \"cuda\"\n", "no GPUs"),
            ("cluster = \"dgx1-v100\"\ndevice = \"cuda:bf16\"\n", "--profile"),
            ("sampling = \"partitioned:groups=1:shuffle-every=5\"\n", "leave shuffle-every out"),
            ("device = \"null\"\n", "exec run"),
            ("augment = \"crop=4,flip\"\n", "leave it out"),
            ("[anchor]\nimages_per_s = 100.0\n", "leave it out"),
        ] {
            let error = checked(more).expect_err(more);
            assert!(error.place.to_string().starts_with("e.toml:") && error.message.contains(cure), "{more}: {error}");
        }
    }

    #[test]
    fn what_both_do_passes_and_what_neither_does_is_told() {
        for more in [
            "",
            "cluster = \"ethernet-4:1\"\n",
            "cluster = \"workstation\"\n",
            "sampling = \"partitioned:groups=1\"\n",
            "augment = \"patch\"\n",
            "cluster = \"dgx1-v100\"\ndevice = \"cuda\"\n",
        ] {
            assert_eq!(checked(more), Ok(Vec::new()), "{more}");
        }
        for (more, word) in [
            ("seeds = 3\n", "seeds = 3"),
            ("target_accuracy = 0.9\n", "target_accuracy"),
            ("recompute_bn = true\n", "recompute_bn"),
            ("[noise]\nkernel = { family = \"lognormal\", cv = 0.1 }\n", "[noise]"),
            ("[sweep]\nranks = [1, 2]\n", "[sweep]"),
            ("[[arm]]\nname = \"a\"\n", "[[arm]]"),
            ("[[scenario]]\nname = \"slow\"\nslow = [{ ranks = [0], factor = 2.0 }]\n", "1 scenario"),
        ] {
            let notes = checked(more).expect(more);
            assert!(notes.len() == 1 && notes[0].contains(word), "{more}: {notes:?}");
        }
    }

    #[test]
    fn a_job_on_several_hosts_is_held_against_a_cluster_of_as_many() {
        let text = "name = \"e\"\nmodel = \"lenet\"\ncluster = \"ethernet-4\"\ntransport = \"mpi\"\n";
        let experiment = Experiment::parse("e.toml", text).expect("an experiment");
        assert_eq!(check(&experiment, Here { hosts: 4, ..HERE }), Ok(Vec::new()));
        let error = check(&experiment, HERE).expect_err("refused");
        assert!(error.message.contains("has 4 hosts") && error.message.contains("ranks on 1 hosts"), "{error}");
        let error = check(&experiment, Here { hosts: 4, cores: 2, ..HERE }).expect_err("refused");
        assert!(error.message.contains("hosts of 16 cores, and this one has 2"), "{error}");
    }
}
