//! `Device`: selects what a measured run computes on, for `--device` and the key `device`.

use std::fmt;
use std::str::FromStr;

use lockstep_models::Precision;
use lockstep_topology::aliases::ours;

/// The device that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The cores of this machine.
    #[default]
    Cpu,
    /// None: samples are drawn and messages sent, and computing takes no time.
    Null,
    /// NVIDIA GPUs, with the precision of convolutions and products.
    Cuda(Precision),
}

impl DeviceChoice {
    /// Whether losses and weights are meaningful.
    pub fn learns(self) -> bool {
        self != DeviceChoice::Null
    }

    /// Whether ranks have GPUs.
    pub fn is_gpu(self) -> bool {
        matches!(self, DeviceChoice::Cuda(_))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceChoice::Cpu => "cpu",
            DeviceChoice::Null => "null",
            DeviceChoice::Cuda(Precision::F32) => "cuda",
            DeviceChoice::Cuda(precision) => return write!(f, "cuda:{precision}"),
        })
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    /// Reads `cpu`, `null`, `cuda` or `cuda:f32`, `cuda:fp32`, `cuda:tf32` and `cuda:bf16`.
    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let ours = ours("device", text, ["cpu", "null", "cuda"])?;
        let precision = ours.strip_prefix("cuda:").and_then(|precision| precision.parse().ok());
        match &*ours {
            "cpu" => Ok(DeviceChoice::Cpu),
            "null" => Ok(DeviceChoice::Null),
            "cuda" => Ok(DeviceChoice::Cuda(Precision::F32)),
            _ if precision.is_some_and(|of| [Precision::F32, Precision::Tf32, Precision::Bf16].contains(&of)) => {
                Ok(DeviceChoice::Cuda(precision.unwrap_or_default()))
            }
            _ => Err(format!("{text:?}: unknown device: write cpu, cuda, cuda:tf32, cuda:bf16 or null")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_round_trip() {
        for text in ["cpu", "null", "cuda", "cuda:tf32", "cuda:bf16"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda:f32".parse(), Ok(DeviceChoice::Cuda(Precision::F32)));
        assert_eq!("GPU:bfloat16".parse(), Ok(DeviceChoice::Cuda(Precision::Bf16)));
        assert!("tpu".parse::<DeviceChoice>().unwrap_err().contains("cuda:bf16"));
    }
}
