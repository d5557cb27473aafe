//! Profiles of GPUs that come with lockstep, and where one of them fits.

use std::path::Path;

use lockstep_experiment::Configuration;
use lockstep_models::Op;
use lockstep_models::profile::{Profile, chain_key};
use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{Cluster, ErrorPlace, InputError};

/// A profile in the binary.
struct Shipped {
    name: &'static str,
    /// Its GPU and the numbers that it computes in, as the text has them: the text is read only where these fit.
    gpu: &'static str,
    device: &'static str,
    text: &'static str,
}

const H100: &str = "NVIDIA H100 80GB HBM3";

/// All of them; their sources are in `tests/gpu/results`.
const SHIPPED: [Shipped; 2] = [
    Shipped {
        name: "h100-resnet-50-bf16",
        gpu: H100,
        device: "cuda:bf16",
        text: include_str!("../profiles/h100-resnet-50-bf16.json"),
    },
    Shipped {
        name: "h100-lenet-tf32",
        gpu: H100,
        device: "cuda:tf32",
        text: include_str!("../profiles/h100-lenet-tf32.json"),
    },
];

/// The profile in the file at `path`, or the shipped one of that name.
///
/// # Errors
/// As [`Profile::load`], with the shipped names where there is no such file.
pub fn load_profile(path: &Path) -> Result<Profile, InputError> {
    if let Some(shipped) = SHIPPED.iter().find(|shipped| Path::new(shipped.name) == path) {
        return Profile::parse(shipped.name, shipped.text);
    }
    Profile::load(path).map_err(|error| {
        if error.place != ErrorPlace::Flag("profile") {
            return error;
        }
        let names = SHIPPED.each_ref().map(|shipped| shipped.name).join(" and ");
        InputError { message: format!("{}; {names} come with lockstep", error.message), ..error }
    })
}

/// A note on the shipped profile that has all figures of `configuration`'s layers on the GPUs of `cluster`, where there is
/// one.
pub(crate) fn note(cluster: &Cluster, configuration: &Configuration) -> Option<String> {
    let gpu = cluster.devices().iter().find_map(|device| match &device.kind {
        DeviceKind::Gpu(gpu) => Some(gpu),
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
    })?;
    let device = format!("cuda:{}", configuration.job.precision);
    let mut fitting = SHIPPED.iter().filter(|shipped| gpu.is_model(shipped.gpu) && shipped.device == device).peekable();
    fitting.peek()?;
    let program = configuration.program().ok()?;
    let covers = |profile: &Profile| {
        let mut tasks = program.roles.iter().flat_map(|role| &role.tasks);
        tasks.all(|task| match &task.op {
            Op::Compute { chain, phase, samples: samples @ 1.., .. } => {
                let key = chain_key(&program, *chain);
                profile
                    .gpus
                    .iter()
                    .flat_map(|of| &of.compute)
                    .any(|entry| entry.chain == key && entry.phase == phase.name() && entry.samples == *samples)
            }
            _ => true,
        })
    };
    let name =
        fitting.find(|shipped| Profile::parse(shipped.name, shipped.text).is_ok_and(|found| covers(&found)))?.name;
    let flag = ErrorPlace::Flag("profile");
    Some(format!("kernels of this model and batch were timed on a {}: {flag} {name} takes their times", gpu.model))
}

#[cfg(test)]
mod tests {
    use lockstep_experiment::Experiment;

    use super::*;

    #[test]
    fn a_shipped_profile_is_named_where_it_has_all_figures() {
        let said = |cluster: &str, text: &str| {
            let text = format!("name = \"e\"\nmodel = \"resnet-50\"\n{text}\n");
            let experiment = Experiment::parse("e.toml", &text).unwrap();
            note(&Cluster::load(cluster).unwrap(), &experiment.configurations().unwrap()[0])
        };
        let fitting = said("dgx-h100", "batch_per_rank = 64\nprecision = \"bf16\"").unwrap();
        assert!(fitting.contains("--profile h100-resnet-50-bf16"), "{fitting}");
        for (cluster, text) in [
            ("dgx-h100", "batch_per_rank = 64"),
            ("dgx-h100", "batch_per_rank = 48\nprecision = \"bf16\""),
            ("dgx-a100", "batch_per_rank = 64\nprecision = \"bf16\""),
        ] {
            assert_eq!(said(cluster, text), None, "{cluster}, {text}");
        }
        for shipped in &SHIPPED {
            let profile = load_profile(Path::new(shipped.name)).unwrap();
            let [gpu] = &profile.gpus[..] else { panic!("{}", shipped.name) };
            let device = gpu.hardware.as_ref().map(|hardware| hardware.device.as_str());
            assert_eq!((&*gpu.model, device), (shipped.gpu, Some(shipped.device)));
        }
        let missing = load_profile(Path::new("h100")).unwrap_err().to_string();
        assert!(missing.contains("h100-resnet-50-bf16"), "{missing}");
    }
}
