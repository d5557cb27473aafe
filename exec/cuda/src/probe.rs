//! Probes this machine for CUDA: its libraries and devices, or every reason why they cannot be used.

use std::fmt;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUdevice_attribute as Attribute, cuDriverGetVersion};

use super::libraries::{LibraryFolders, LoadedLibrary, Missing, NvidiaLibrary, load};

/// The driver's version that the libraries require, as `cuDriverGetVersion` counts: CUDA 13.0.
const LEAST_DRIVER: i32 = 13_000;
/// The oldest devices that NVRTC 13 compiles for, as (major, minor).
const LEAST_CAPABILITY: (i32, i32) = (7, 5);

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its own name.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (i32, i32),
    /// Its memory, in bytes.
    pub memory: u64,
    /// Its multiprocessors.
    pub multiprocessors: u32,
}

/// The CUDA installation of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Libraries found.
    pub found: Vec<LoadedLibrary>,
    /// GPUs, at least one.
    pub gpus: Vec<Gpu>,
    /// NCCL, if it is missing: only several GPUs need it.
    pub missing: Vec<Missing>,
}

/// Why CUDA cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Libraries found.
    pub found: Vec<LoadedLibrary>,
    /// Libraries missing.
    pub missing: Vec<Missing>,
    /// What is wrong with the driver or the devices, if the driver's library was found.
    pub devices: Option<String>,
}

impl Unavailable {
    /// What is missing, without the places searched.
    pub fn in_short(&self) -> String {
        let file = |not: &Missing| format!("{} ({})", not.library.name(), not.library.file());
        let wanted = self.missing.iter().filter(|not| not.library != NvidiaLibrary::Nccl);
        let missing: Vec<String> = wanted.map(file).collect();
        let missing = (!missing.is_empty()).then(|| format!("no {}", missing.join(", no ")));
        missing.into_iter().chain(self.devices.clone()).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = self.missing.iter().map(Missing::to_string);
        let reasons: Vec<String> = self.devices.iter().cloned().chain(missing).collect();
        write!(f, "CUDA cannot be used: {}", reasons.join("; "))
    }
}

impl std::error::Error for Unavailable {}

/// Looks for every library and every device.
///
/// # Errors
/// A library that training needs is missing, the driver is too old, or the kernels cannot be compiled for any device.
pub fn probe(places: &LibraryFolders) -> Result<Machine, Unavailable> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for library in NvidiaLibrary::ALL {
        match load(library, places) {
            Ok(there) => found.push(there),
            Err(not) => missing.push(not),
        }
    }
    let has_driver = found.iter().any(|there| there.library == NvidiaLibrary::Driver);
    let gpus = if has_driver { gpus() } else { Ok(Vec::new()) };
    let complete = missing.iter().all(|not| not.library == NvidiaLibrary::Nccl);
    match gpus {
        Ok(gpus) if complete => Ok(Machine { found, gpus, missing }),
        gpus => Err(Unavailable { found, missing, devices: gpus.err() }),
    }
}

fn gpus() -> Result<Vec<Gpu>, String> {
    let reason = |error: DriverError| format!("the driver says {:?}", error.0);
    result::init().map_err(reason)?;
    let mut version = 0;
    // SAFETY: the driver's library is loaded and initialised; `version` outlives the call.
    unsafe { cuDriverGetVersion(&mut version) }.result().map_err(reason)?;
    if version < LEAST_DRIVER {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(format!(
            "the driver is for CUDA {major}.{minor}, the libraries want 13.0: install driver 580 or newer"
        ));
    }
    let count = result::device::get_count().map_err(reason)?;
    let gpus: Result<Vec<Gpu>, DriverError> = (0..count).map(gpu).collect();
    let gpus = gpus.map_err(reason)?;
    if gpus.is_empty() {
        return Err("the driver knows no device".to_owned());
    }
    match gpus.iter().find(|gpu| gpu.capability < LEAST_CAPABILITY) {
        Some(Gpu { name, capability: (major, minor), .. }) => {
            Err(format!("{name} has compute capability {major}.{minor}, CUDA 13 compiles for 7.5 and newer"))
        }
        None => Ok(gpus),
    }
}

fn gpu(ordinal: i32) -> Result<Gpu, DriverError> {
    let device = result::device::get(ordinal)?;
    // SAFETY: the driver has just returned the device.
    let attribute = |of: Attribute| unsafe { result::device::get_attribute(device, of) };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Gpu {
        name: result::device::get_name(device)?,
        capability: (major, minor),
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device) }? as u64,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On any machine the probe returns an answer; where it fails, it names every missing library.
    #[test]
    fn every_library_is_found_or_named() {
        match probe(&LibraryFolders::default()) {
            Ok(machine) => {
                assert_eq!(machine.found.len() + machine.missing.len(), NvidiaLibrary::ALL.len());
                assert!(!machine.gpus.is_empty());
            }
            Err(unavailable) => {
                let all = unavailable.found.iter().map(|there| there.library);
                let mut all: Vec<NvidiaLibrary> =
                    all.chain(unavailable.missing.iter().map(|not| not.library)).collect();
                all.sort();
                assert_eq!(all, NvidiaLibrary::ALL);
                let text = unavailable.to_string();
                for not in &unavailable.missing {
                    assert!(text.contains(not.library.file()) && text.contains(not.library.cure()), "{text}");
                    assert!(!not.tried.is_empty(), "{text}");
                }
                let no_driver = unavailable.missing.iter().any(|not| not.library == NvidiaLibrary::Driver);
                assert!(!no_driver || unavailable.devices.is_none(), "devices could not be listed: {text}");
            }
        }
    }
}
