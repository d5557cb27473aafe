//! Finds the model of a file's GPUs: by their PCI device, or by their architecture where that is all it says.

use lockstep_topology::InputError;
use lockstep_topology::cluster::CatalogueGpu;

use super::Gpu;
use crate::gpu;
use crate::pci_ids::{AMD_VENDOR, NVIDIA_VENDOR, models};

/// The model of all GPUs: `named` where that is given, else the one that the file says.
///
/// # Errors
/// An unknown name; without one, a device that is not listed, GPUs of two kinds, or nothing that names them.
pub(super) fn of(gpus: &[Gpu<'_>], named: Option<&str>, notes: &mut Vec<String>) -> Result<CatalogueGpu, InputError> {
    if let Some(name) = named {
        let model = gpu::named(name)?;
        let device = gpus.iter().find_map(|gpu| {
            let (vendor, device) = identity(gpu)?;
            let known = models(vendor, device);
            (!known.is_empty() && !known.contains(&name)).then_some((device, known))
        });
        if let Some((device, known)) = device {
            let message = format!(
                "the file's PCI device {device:#06x} is {}, and {name} is taken for it, as asked",
                known.join(" or ")
            );
            notes.push(message);
        }
        return Ok(model);
    }
    let first = candidates(&gpus[0], gpus)?;
    for gpu in &gpus[1..] {
        let models = candidates(gpu, gpus)?;
        if models[0] != first[0] {
            let (key, value) = says(&gpus[0]);
            let message = format!(
                "has another {key} than {value}: a host has one kind of GPU; name the model of all by the setting gpu"
            );
            let place = if identity(gpu).is_some() { gpu.pci } else { gpu.element };
            return Err(place.error_in(key, message));
        }
    }
    if first.len() > 1 {
        let (key, value) = says(&gpus[0]);
        let others = first[1..].join(", ");
        notes.push(format!(
            "{key} {value} fits several GPUs, and {} is taken: the setting gpu names another ({others})",
            first[0]
        ));
    }
    gpu::named(first[0])
}

/// The vendor and device of a GPU; `None` where the file does not say them.
fn identity(gpu: &Gpu<'_>) -> Option<(u16, u16)> {
    let number = |key| u16::from_str_radix(gpu.pci.attribute(key)?.trim().strip_prefix("0x")?, 16).ok();
    let device = number("device").filter(|device| !matches!(device, 0 | 0xffff))?;
    let vendor = match number("vendor") {
        Some(vendor) if !matches!(vendor, 0 | 0xffff) => vendor,
        // Some files leave it out.
        _ if gpu.element.attribute("gcn").is_some() => AMD_VENDOR,
        _ => NVIDIA_VENDOR,
    };
    Some((vendor, device))
}

/// The attribute that names a GPU's kind, and its value.
fn says(gpu: &Gpu<'_>) -> (&'static str, String) {
    if let Some((_, device)) = identity(gpu) {
        return ("device", format!("{device:#06x}"));
    }
    let key = if gpu.element.attribute("gcn").is_some() { "gcn" } else { "sm" };
    (key, gpu.element.attribute(key).unwrap_or("").to_owned())
}

/// The models that a GPU may be, the one that is taken first.
fn candidates(gpu: &Gpu<'_>, gpus: &[Gpu<'_>]) -> Result<Vec<&'static str>, InputError> {
    let sm = if gpu.is_bare() { None } else { gpu.element.whole("sm", 1..=999)? };
    if let Some((vendor, device)) = identity(gpu) {
        let known = models(vendor, device);
        if known.is_empty() {
            let message = format!(
                "is no GPU that is known here (vendor {vendor:#06x}): name the model that comes nearest by the setting gpu; lockstep \
                 clusters gpus lists them, or describe your own in the cluster file"
            );
            return Err(gpu.pci.error_in("device", message));
        }
        // RCCL writes the number of compute units as sm.
        let has_units = |name: &&&str| vendor == AMD_VENDOR && units(name).is_some_and(|units| Some(units) == sm);
        return Ok(known.iter().find(has_units).map_or(known.to_vec(), |name| vec![*name]));
    }
    if let Some(gcn) = gpu.element.attribute("gcn") {
        return known(gpu::by_gcn(gcn, sm), gpu, "gcn");
    }
    let Some(sm) = sm else {
        let message = match gpu.is_bare() {
            true => "is a GPU of which the file says neither device nor model: name its model by the setting gpu",
            false => "has no sm, its compute capability: add sm=\"80\", or name the GPU's model by the setting gpu",
        };
        return Err(gpu.element.error(message));
    };
    let has_nvlink = gpus.iter().any(|gpu| gpu.element.children().any(|child| child.name() == "nvlink"));
    let mut above = gpu.element.node.ancestors();
    let is_arm = above.any(|node| matches!(node.attribute("arch"), Some("arm64" | "aarch64")));
    known(gpu::by_capability(sm as u32, has_nvlink, is_arm), gpu, "sm")
}

fn known(models: &'static [&'static str], gpu: &Gpu<'_>, key: &str) -> Result<Vec<&'static str>, InputError> {
    if models.is_empty() {
        let message = "is of no GPU in the catalogue: name the model that comes nearest by the setting gpu";
        return Err(gpu.element.error_in(key, message));
    }
    Ok(models.to_vec())
}

/// Compute units of a model.
fn units(name: &str) -> Option<u64> {
    gpu::named(name).ok().map(|gpu| gpu.spec.multiprocessors.into())
}
