//! Opens the devices of measured runs: CPU cores, GPUs, or the null device.

use std::sync::Arc;

use lockstep_cuda::Gpus;
use lockstep_exec::device::{Cpus, DeviceError, Devices, Nulls};
use lockstep_experiment::{DeviceChoice, Experiment};
use lockstep_topology::{ErrorPlace, InputError};

/// The devices of the runs of an experiment.
///
/// # Errors
/// An unsupported number format, a missing library, no GPU, or one that is too old.
pub fn devices(experiment: &Experiment) -> Result<Arc<dyn Devices>, InputError> {
    let device = experiment.computes_on()?;
    Ok(match gpus(device).map_err(|error| experiment.locate(error))? {
        Some(gpus) => Arc::new(gpus),
        None if device == DeviceChoice::Null => Arc::new(Nulls),
        None => Arc::new(Cpus),
    })
}

/// The GPUs of this machine, if ranks use them.
///
/// # Errors
/// As [`devices`].
pub fn gpus(device: DeviceChoice) -> Result<Option<Gpus>, InputError> {
    let DeviceChoice::Cuda(precision) = device else { return Ok(None) };
    let opened = Gpus::open(precision).map_err(|error| {
        let cure = match error {
            DeviceError::Unavailable(_) => {
                let device = ErrorPlace::Flag("device");
                format!(": lockstep exec devices says where it was looked for and what to install; {device} cpu needs none of it")
            }
            _ => String::new(),
        };
        InputError::flag("device", device.to_string(), format!("{error}{cure}"))
    });
    opened.map(Some)
}
