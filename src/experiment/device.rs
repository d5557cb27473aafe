//! What a measured run computes on: `--device` and the key `device`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_cuda::{Gpus, Precision};
use lockstep_exec::device::{Cpus, DeviceError, Devices, Nulls};
use lockstep_topology::InputError;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The cores of this machine.
    #[default]
    Cpu,
    /// Nothing: samples are drawn and messages sent, and computing takes no time.
    Null,
    /// NVIDIA GPUs, whose convolutions and products multiply numbers so.
    Cuda(Precision),
}

impl Device {
    /// Whether losses and weights mean something.
    pub fn learns(self) -> bool {
        self != Device::Null
    }

    /// Whether ranks have GPUs.
    pub fn is_gpu(self) -> bool {
        matches!(self, Device::Cuda(_))
    }

    /// The devices themselves.
    ///
    /// # Errors
    /// A library that is missing, no GPU, one that is too old.
    pub fn open(self) -> Result<Arc<dyn Devices>, InputError> {
        Ok(match (self, self.gpus()?) {
            (_, Some(gpus)) => Arc::new(gpus),
            (Device::Null, None) => Arc::new(Nulls),
            (_, None) => Arc::new(Cpus),
        })
    }

    /// The GPUs of this machine, where ranks have some.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn gpus(self) -> Result<Option<Gpus>, InputError> {
        let Device::Cuda(precision) = self else { return Ok(None) };
        let opened = Gpus::open(precision).map_err(|error| {
            let cure = match error {
                DeviceError::Unavailable(_) => {
                    ": lockstep exec devices says where it was looked for and what to install; --device cpu needs none of it"
                }
                _ => "",
            };
            InputError::flag("device", self.to_string(), format!("{error}{cure}"))
        });
        opened.map(Some)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Cpu => "cpu",
            Device::Null => "null",
            Device::Cuda(Precision::F32) => "cuda",
            Device::Cuda(Precision::Tf32) => "cuda:tf32",
            Device::Cuda(Precision::Bf16) => "cuda:bf16",
        })
    }
}

impl FromStr for Device {
    type Err = String;

    /// Reads `cpu`, `null`, `cuda` or `cuda:f32`, `cuda:tf32` and `cuda:bf16`.
    fn from_str(text: &str) -> Result<Device, String> {
        match text {
            "cpu" => Ok(Device::Cpu),
            "null" => Ok(Device::Null),
            "cuda" | "cuda:f32" => Ok(Device::Cuda(Precision::F32)),
            "cuda:tf32" => Ok(Device::Cuda(Precision::Tf32)),
            "cuda:bf16" => Ok(Device::Cuda(Precision::Bf16)),
            _ => Err(format!("{text:?}: unknown device: write cpu, cuda, cuda:tf32, cuda:bf16 or null")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for text in ["cpu", "null", "cuda", "cuda:tf32", "cuda:bf16"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda:f32".parse(), Ok(Device::Cuda(Precision::F32)));
        assert!("gpu".parse::<Device>().unwrap_err().contains("cuda:bf16"));
    }
}
