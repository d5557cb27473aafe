//! Profiles of GPUs that come with lockstep, and where one of them fits.

use std::path::Path;

use lockstep_experiment::Configuration;
use lockstep_models::Op;
use lockstep_models::profile::{Profile, chain_key};
use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{Cluster, ErrorPlace, InputError};

/// Name and text of each; the sources are in `tests/gpu/results`.
const SHIPPED: [(&str, &str); 2] = [
    ("h100-resnet-50-bf16", include_str!("../profiles/h100-resnet-50-bf16.json")),
    ("h100-lenet-tf32", include_str!("../profiles/h100-lenet-tf32.json")),
];

/// The profile in the file at `path`, or the shipped one of that name.
///
/// # Errors
/// As [`Profile::load`], with the shipped names where there is no such file.
pub fn load_profile(path: &Path) -> Result<Profile, InputError> {
    if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| Path::new(name) == path) {
        return Profile::parse(name, text);
    }
    Profile::load(path).map_err(|error| {
        if error.place != ErrorPlace::Flag("profile") {
            return error;
        }
        let names = SHIPPED.map(|(name, _)| name).join(" and ");
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
    let program = configuration.program().ok()?;
    let fits = |profile: &Profile| {
        profile.gpus.iter().filter(|of| gpu.is_model(&of.model)).any(|of| {
            let device = of.hardware.as_ref().map(|hardware| hardware.device.as_str());
            device == Some(&*format!("cuda:{}", program.precision))
                && program.roles.iter().flat_map(|role| &role.tasks).all(|task| match &task.op {
                    Op::Compute { chain, phase, samples: samples @ 1.., .. } => {
                        let key = chain_key(&program, *chain);
                        of.compute
                            .iter()
                            .any(|entry| entry.chain == key && entry.phase == phase.name() && entry.samples == *samples)
                    }
                    _ => true,
                })
        })
    };
    let known = |(name, text): &&(&str, &str)| Profile::parse(name, text).is_ok_and(|profile| fits(&profile));
    let (name, _) = SHIPPED.iter().find(known)?;
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
        assert!(SHIPPED.iter().all(|(name, _)| load_profile(Path::new(name)).is_ok()));
        let missing = load_profile(Path::new("h100")).unwrap_err().to_string();
        assert!(missing.contains("h100-resnet-50-bf16"), "{missing}");
    }
}
