//! Profiles of GPUs that come with lockstep, and where one of them fits.

use std::collections::BTreeSet;
use std::path::Path;

use lockstep_models::profile::{Profile, chain_key};
use lockstep_models::{Op, Phase, Program};
use lockstep_sim::{CostTable, Costs};
use lockstep_topology::cluster::{Device, DeviceKind};
use lockstep_topology::{Cluster, ErrorPlace, InputError};

/// The error of calibrated predictions, of ranks with cores of their own: the median of the matrix (docs/validation.md).
pub(crate) const CALIBRATED: f64 = 0.04;

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

/// A note on the shipped profile that has all figures of the program's layers on the GPUs of `cluster`, where there is one:
/// what the kernels of a micro-batch take with it, and with `costs`.
pub(crate) fn note(cluster: &Cluster, program: &Program, costs: &dyn Costs) -> Option<String> {
    let (device, gpu) = cluster.devices().iter().find_map(|device| match &device.kind {
        DeviceKind::Gpu(gpu) => Some((device, gpu)),
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
    })?;
    let numbers = format!("cuda:{}", program.precision);
    let of_these = SHIPPED.iter().filter(|shipped| gpu.is_model(shipped.gpu) && shipped.device == numbers);
    let (name, profile) = of_these
        .filter_map(|shipped| Some((shipped.name, Profile::parse(shipped.name, shipped.text).ok()?)))
        .find(|(_, profile)| covers(profile, program))?;
    let timed = kernels(device, program, &CostTable::new(&profile).ok()?);
    let priced = kernels(device, program, costs);
    let (flag, model) = (ErrorPlace::Flag("profile"), &gpu.model);
    Some(format!(
        "kernels of this model and batch were timed on a {model}, where those of a micro-batch take {:.1} ms, not {:.1} ms as from the \
         data sheet: {flag} {name} takes their times, with a typical error of ± {:.0} %",
        timed * 1e3,
        priced * 1e3,
        100.0 * CALIBRATED
    ))
}

/// The forward and backward passes of a micro-batch in the program's first role: chain, phase and samples.
fn passes(program: &Program) -> BTreeSet<(usize, Phase, u32)> {
    let tasks = program.roles.iter().take(1).flat_map(|role| &role.tasks);
    let passes = tasks.filter_map(|task| match &task.op {
        Op::Compute { chain, phase, samples: samples @ 1.., .. } => Some((*chain, *phase, *samples)),
        _ => None,
    });
    passes.collect()
}

/// Whether a profile has the times of all passes of the program.
fn covers(profile: &Profile, program: &Program) -> bool {
    let mut tasks = program.roles.iter().flat_map(|role| &role.tasks);
    let entries = || profile.gpus.iter().flat_map(|of| &of.compute);
    tasks.all(|task| match &task.op {
        Op::Compute { chain, phase, samples: samples @ 1.., .. } => {
            let key = chain_key(program, *chain);
            entries().any(|entry| entry.chain == key && entry.phase == phase.name() && entry.samples == *samples)
        }
        _ => true,
    })
}

/// Seconds of a micro-batch's passes, one after the other.
fn kernels(device: &Device, program: &Program, costs: &dyn Costs) -> f64 {
    passes(program)
        .into_iter()
        .map(|(chain, phase, samples)| costs.compute(device, program, chain, phase, samples).seconds)
        .sum()
}

#[cfg(test)]
mod tests {
    use lockstep_experiment::Experiment;
    use lockstep_sim::Roofline;

    use super::*;

    #[test]
    fn a_shipped_profile_is_named_where_it_has_all_figures() {
        let said = |cluster: &str, text: &str| {
            let text = format!("name = \"e\"\nmodel = \"resnet-50\"\n{text}\n");
            let experiment = Experiment::parse("e.toml", &text).unwrap();
            let program = experiment.configurations().unwrap()[0].program().unwrap();
            note(&Cluster::load(cluster).unwrap(), &program, &Roofline)
        };
        let fitting = said("dgx-h100", "batch_per_rank = 64\nprecision = \"bf16\"").unwrap();
        // One rank's step takes 14.2 ms with the profile and 12.2 ms from the data sheet, of which the rest are not passes.
        for part in ["--profile h100-resnet-50-bf16", "take 13.9 ms, not 12.0 ms", "± 4 %"] {
            assert!(fitting.contains(part), "{fitting}");
        }
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
