//! `Site`: holds a prediction's cluster with the costs of tasks and messages there.
//!
//! It is either a preset or a cluster file priced by data sheets, or a profile that `lockstep calibrate` or `lockstep
//! exec profile` measured, which has its own one-host cluster and may also price the CPUs and GPUs of another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockstep_models::Precision;
use lockstep_models::profile::{GpuEntry, Profile};
use lockstep_sim::{CostTable, Costs, Roofline};
use lockstep_topology::cluster::{CpuSpec, DeviceKind, GpuSpec, HostGpu, Origin};
use lockstep_topology::{Bandwidth, Bytes, Cluster, ErrorPlace, InputError, Time};

use lockstep_experiment::{DeviceChoice, Experiment, THIS_MACHINE, TransportKind};
use lockstep_report::log::timed;

use crate::shipped::load_profile;

/// The default path of this machine's profile, written by `lockstep calibrate`.
pub const PROFILE_PATH: &str = "out/this-machine.json";

/// Makes runs send messages between GPUs through the host's memory.
const NO_PEERS: &str = "LOCKSTEP_NO_PEERS";

/// A cluster and its prices.
#[derive(Clone)]
pub struct Site {
    /// Devices and links.
    pub cluster: Cluster,
    /// The costs of tasks and messages.
    pub costs: Arc<dyn Costs>,
    /// The profile, where costs are based on one.
    pub profile: Option<Profile>,
    /// What the costs are based on, for display.
    pub basis: String,
}

/// The GPUs of a cluster.
fn gpus_of(cluster: &Cluster) -> impl Iterator<Item = &GpuSpec> {
    cluster.devices().iter().filter_map(|device| match &device.kind {
        DeviceKind::Gpu(gpu) => Some(&**gpu),
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
    })
}

/// The cluster's GPUs that a profile prices, each with its figures.
fn priced<'a>(profile: &'a Profile, cluster: &'a Cluster) -> impl Iterator<Item = (&'a GpuSpec, &'a GpuEntry)> {
    gpus_of(cluster).filter_map(|gpu| Some((gpu, profile.gpus.iter().find(|of| gpu.is_model(&of.model))?)))
}

/// Which devices of another cluster a profile prices, for display.
fn basis_of(profile: &Profile, cluster: &Cluster) -> String {
    let Profile { host, date, gpus, .. } = profile;
    let measured: Vec<&str> = gpus.iter().map(|of| of.model.as_str()).collect();
    match (priced(profile, cluster).next(), gpus_of(cluster).next()) {
        (Some((gpu, _)), _) => format!("costs of CPUs and of {} were measured on {host}, {date}", gpu.model),
        (None, Some(gpu)) if !measured.is_empty() => format!(
            "costs of CPUs were measured on {host}, {date}; the profile's GPUs ({}) are not the cluster's, which are priced by \
             their data sheet: if they are the same, add driver_name = \"{}\" to {}'s [[host.gpu]]",
            measured.join(", "),
            measured[0],
            gpu.model
        ),
        _ => format!("costs of CPUs were measured on {host}, {date}"),
    }
}

impl Site {
    /// The site of an experiment; `profile` is the file that `--profile` names.
    ///
    /// # Errors
    /// An unknown cluster, a profile that is missing or broken, a device that the figures do not cover.
    pub fn open(experiment: &Experiment, profile: Option<&Path>) -> Result<Site, InputError> {
        timed(|| format!("cluster {}", experiment.cluster), || Site::read(experiment, profile))
    }

    /// As [`Site::open`].
    fn read(experiment: &Experiment, profile: Option<&Path>) -> Result<Site, InputError> {
        if experiment.on_this_machine() {
            let path = profile.map_or_else(|| PathBuf::from(PROFILE_PATH), Path::to_path_buf);
            if profile.is_none() && !path.exists() {
                let message = format!(
                    "has not been measured yet ({PROFILE_PATH} is missing): run lockstep calibrate, give {} FILE, or \
                     name a cluster (lockstep clusters list)",
                    ErrorPlace::Flag("profile")
                );
                return Err(experiment.locate(InputError::flag("cluster", THIS_MACHINE, message)));
            }
            let site = Site::of_profile(&load_profile(&path)?, experiment)?;
            return site.check_stated(experiment).map(|()| site);
        }
        let cluster = Cluster::load(&experiment.cluster).map_err(|error| {
            if error.place == ErrorPlace::Flag("cluster") { experiment.locate(error) } else { error }
        })?;
        let Some(path) = profile else {
            let basis =
                format!("cluster {}: lockstep clusters show lists the sources of its figures", experiment.cluster);
            let site = Site { cluster, costs: Arc::new(Roofline), profile: None, basis };
            return site.check_stated(experiment).map(|()| site);
        };
        let profile = load_profile(path)?;
        let basis = basis_of(&profile, &cluster);
        let site = Site { cluster, costs: Arc::new(CostTable::new(&profile)?), profile: Some(profile), basis };
        site.check_stated(experiment).map(|()| site)
    }

    fn gpus(&self) -> impl Iterator<Item = &GpuSpec> {
        gpus_of(&self.cluster)
    }

    /// Whether a profile prices this GPU.
    pub(crate) fn prices(&self, gpu: &GpuSpec) -> bool {
        self.profile.iter().flat_map(|profile| &profile.gpus).any(|of| gpu.is_model(&of.model))
    }

    /// The device of a profile that prices the cluster's GPUs.
    fn measured(&self) -> Option<&str> {
        let mut priced = priced(self.profile.as_ref()?, &self.cluster);
        priced.find_map(|(_, of)| Some(of.hardware.as_ref()?.device.as_str()))
    }

    /// The device that its figures cover: that of a profile that prices the cluster's GPUs, else what the cluster has.
    fn device(&self) -> &str {
        match self.gpus().next() {
            None => "cpu",
            Some(_) => self.measured().unwrap_or("cuda"),
        }
    }

    /// Whether its figures cover `device`; data sheets cover GPUs in any precision.
    fn is_of(&self, device: DeviceChoice) -> bool {
        let of = self.device();
        device.to_string() == of || of == "cuda" && device.is_gpu() && self.measured().is_none()
    }

    /// Refuses a precision that its figures do not cover.
    ///
    /// # Errors
    /// CPUs and GPUs that do not support it, a profile of another; names the cure.
    pub fn check_precision(&self, experiment: &Experiment) -> Result<(), InputError> {
        let (precision, name) = (experiment.numbers()?, self.cluster.name());
        let unserved = |gpu: &&GpuSpec| gpu.peak(precision.factors()).is_none();
        let message = match self.measured() {
            _ if precision == Precision::F32 => return Ok(()),
            Some(of) if of == DeviceChoice::Cuda(precision).to_string() => return Ok(()),
            Some(of) => format!(
                "is not what the profile's figures are of, which is {of}: use that, or a {} that lockstep exec profile has \
                 written in these numbers",
                ErrorPlace::Flag("profile")
            ),
            None if self.gpus().next().is_none() && precision == Precision::Bf16 => return Ok(()),
            None if self.gpus().next().is_none() => {
                format!(
                    "is of GPUs, and {name} has CPUs alone, which compute in fp32 and store fp32 or bf16: use one of these, or \
                     name another cluster"
                )
            }
            None => {
                let Some(gpu) = self.gpus().find(unserved) else { return Ok(()) };
                let served = Precision::ALL.into_iter().filter(|precision| gpu.peak(precision.factors()).is_some());
                let served: Vec<&str> = served.map(Precision::name).collect();
                format!(
                    "is not a precision of {}: use {}, or state {} of it in the cluster's file",
                    gpu.model,
                    served.join(" or "),
                    precision.factors()
                )
            }
        };
        let key = if experiment.precision.is_some() { "precision" } else { "device" };
        let value = if experiment.precision.is_some() { precision.to_string() } else { experiment.device.to_string() };
        Err(experiment.locate(InputError::flag(key, value, message)))
    }

    /// Refuses threads per rank that ranks on its devices do not use.
    fn check_threads(&self, experiment: &Experiment) -> Result<(), InputError> {
        let threads = experiment.threads_per_rank;
        let cores = |kind: &DeviceKind| if let DeviceKind::Cpu(cpu) = kind { Some(cpu.cores) } else { None };
        let most = self.cluster.devices().iter().filter_map(|device| cores(&device.kind)).max();
        let message = match most {
            _ if threads == 1 => return Ok(()),
            _ if self.gpus().next().is_some() => {
                format!("is of ranks on CPUs, and those on {} compute on its GPUs: leave it out", self.cluster.name())
            }
            Some(most) if threads > most => {
                format!(
                    "is more than the cores of a CPU of {}, which are {most}: use at most that",
                    self.cluster.name()
                )
            }
            _ => return Ok(()),
        };
        Err(experiment.locate(InputError::flag("threads_per_rank", threads.to_string(), message)))
    }

    /// Refuses a requested device or precision that would not change the prediction.
    ///
    /// # Errors
    /// Names what the figures cover.
    fn check_stated(&self, experiment: &Experiment) -> Result<(), InputError> {
        self.check_threads(experiment)?;
        let (of, device) = (self.device(), experiment.device);
        if !experiment.states("device") || self.is_of(device) {
            return self.check_precision(experiment);
        }
        let name = self.cluster.name();
        let message = match device {
            DeviceChoice::Null => {
                "computes nothing, and a prediction is of computing: leave it out, or run it".to_owned()
            }
            DeviceChoice::Cuda(_) if of == "cpu" => {
                format!("is not in {name}: leave it out, or name a cluster with GPUs")
            }
            DeviceChoice::Cpu => format!("is not what {name} computes on, which is {of}: use that, or leave it out"),
            DeviceChoice::Cuda(_) => format!(
                "would change nothing, for the figures of {name} are of {of}: use that, leave it out, or give a {} that \
                 lockstep exec profile {} {device} has written on such a GPU",
                ErrorPlace::Flag("profile"),
                ErrorPlace::Flag("device")
            ),
        };
        Err(experiment.locate(InputError::flag("device", device.to_string(), message)))
    }

    /// Refuses to compare runs on one kind of device with figures of another.
    ///
    /// # Errors
    /// Names both.
    pub fn check_device(&self, experiment: &Experiment) -> Result<(), InputError> {
        let (of, device) = (self.device(), experiment.computes_on()?);
        if self.is_of(device) {
            return Ok(());
        }
        let message = match (device, experiment.on_this_machine()) {
            (DeviceChoice::Null, _) => "computes nothing, and the prediction is of computing: use exec run".to_owned(),
            (measured, true) => format!(
                "is not what the profile's figures are of, which is {of}: use that, or measure with lockstep {}",
                if measured == DeviceChoice::Cpu { "calibrate" } else { "exec profile" }
            ),
            (_, false) => format!("is not what is predicted for {}, which is {of}: use that", self.cluster.name()),
        };
        Err(experiment.locate(InputError::flag("device", device.to_string(), message)))
    }

    /// The host that a profile was measured on, with the message paths of this experiment.
    ///
    /// # Errors
    /// Impossible figures.
    pub fn of_profile(profile: &Profile, experiment: &Experiment) -> Result<Site, InputError> {
        let rate = |figure: &str, bytes_per_s: f64| {
            let error =
                || InputError::new("profile", format!("{figure} = {bytes_per_s}"), "must be positive: calibrate again");
            Bandwidth::new(bytes_per_s).ok_or_else(error)
        };
        let cpu = CpuSpec {
            cores: profile.cores,
            flops_per_core_s: profile.flops_per_core_s,
            memory_bandwidth: rate("memory_bandwidth", profile.memory_bandwidth)?,
            // Not measured, so whether a job fits is unknown.
            memory: Bytes(0),
            message_wake: Time::from_secs_f64(profile.memory.wake.map_or(0.0, |wake| wake.value)),
        };
        let latency = Time::from_secs_f64(profile.memory.latency.value);
        let bandwidth = rate("memory.copy", 1.0 / profile.memory.copy.value)?;
        let source = Origin::Measured.with(format!("{}, {}", profile.command, profile.date));
        // Ranks of several processes go through the host, and so do all where peer access is off.
        let are_near = experiment.transport == TransportKind::Threads && std::env::var_os(NO_PEERS).is_none();
        let mut gpus = Vec::new();
        let mut measured_on = profile.cpu.clone();
        for (model, of) in profile.gpus.iter().filter_map(|gpu| Some((&gpu.model, gpu.hardware.as_ref()?))) {
            let spec = GpuSpec::measured(
                model,
                of.multiprocessors,
                of.flops_s,
                // A copy reads and writes.
                rate("within.byte", 2.0 / of.within.byte.value)?,
                Bytes(of.memory_bytes),
                Time::from_secs_f64(of.launch.value),
            );
            let slower = of.to_device.byte.value.max(of.to_host.byte.value);
            let direct = match of.direct.as_ref().filter(|_| are_near) {
                Some(of) => {
                    let bandwidth = rate("direct.copy", 1.0 / of.copy.value)?;
                    Some((Time::from_secs_f64(of.latency.value), bandwidth))
                }
                None => None,
            };
            let gpu = HostGpu {
                direct,
                spec: Arc::new(spec),
                latency: Time::from_secs_f64(of.to_device.latency.value),
                bandwidth: rate("to_device.byte", 1.0 / slower)?,
            };
            gpus.extend((0..of.count).map(|_| gpu.clone()));
            measured_on.push_str(&format!(", {} x {model}, {}", of.count, of.device));
        }
        Ok(Site {
            cluster: Cluster::one_host(cpu, latency, bandwidth, &gpus, source)?,
            costs: Arc::new(CostTable::new(profile)?.at_home()),
            profile: Some(profile.clone()),
            basis: format!("costs were measured on {} ({}), {}", profile.host, measured_on, profile.date),
        })
    }
}
