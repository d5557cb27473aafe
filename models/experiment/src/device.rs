//! `Device`: what a measured run computes on: `--device` and the key `device`.

use std::fmt;
use std::str::FromStr;

use lockstep_models::Precision;

/// The device that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The cores of this machine.
    #[default]
    Cpu,
    /// None: samples are drawn and messages sent, and computing takes no time.
    Null,
    /// NVIDIA GPUs, with the precision of convolutions and products.
    Cuda(Precision),
}

impl Device {
    /// Whether losses and weights are meaningful.
    pub fn learns(self) -> bool {
        self != Device::Null
    }

    /// Whether ranks have GPUs.
    pub fn is_gpu(self) -> bool {
        matches!(self, Device::Cuda(_))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Cpu => "cpu",
            Device::Null => "null",
            Device::Cuda(Precision::F32) => "cuda",
            Device::Cuda(precision) => return write!(f, "cuda:{precision}"),
        })
    }
}

impl FromStr for Device {
    type Err = String;

    /// Reads `cpu`, `null`, `cuda` or `cuda:f32`, `cuda:fp32`, `cuda:tf32` and `cuda:bf16`.
    fn from_str(text: &str) -> Result<Device, String> {
        match text {
            "cpu" => Ok(Device::Cpu),
            "null" => Ok(Device::Null),
            "cuda" | "cuda:f32" | "cuda:fp32" => Ok(Device::Cuda(Precision::F32)),
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
