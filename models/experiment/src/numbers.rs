//! Combines `precision`, `gradients` and `device` into the number formats in which an experiment trains.

use lockstep_models::{Gradients, Precision};
use lockstep_topology::InputError;

use crate::device::DeviceChoice;
use crate::experiment::Experiment;

impl Experiment {
    /// The precision in which layers are trained: from `precision`, or from the `device` of a GPU.
    ///
    /// # Errors
    /// Both are given and differ.
    pub fn numbers(&self) -> Result<Precision, InputError> {
        match (self.device, self.precision) {
            (DeviceChoice::Cuda(of), None) => Ok(of),
            (DeviceChoice::Cuda(of), Some(precision)) if of != Precision::F32 && of != precision => {
                let message = format!("is not what device = \"{}\" computes in: leave one of the two out", self.device);
                Err(self.locate(InputError::flag("precision", precision.to_string(), message)))
            }
            (_, precision) => Ok(precision.unwrap_or_default()),
        }
    }

    /// The device of its measured runs, in the precision that `precision` asks for.
    ///
    /// # Errors
    /// A precision that no kernel of the device supports.
    pub fn computes_on(&self) -> Result<DeviceChoice, InputError> {
        let precision = self.numbers()?;
        let refused = |key, value: String, message: &str| Err(self.locate(InputError::flag(key, value, message)));
        let on_gpus = self.device.is_gpu();
        if self.gradients != Gradients::F32 && on_gpus {
            let message = "measured runs on GPUs keep and exchange gradients in fp32: leave it out, use device = \"cpu\" with bf16, or \
                           predict with lockstep sim predict";
            return refused("gradients", self.gradients.to_string(), message);
        }
        self.check_threads_of(self.device)?;
        match (self.device, precision) {
            (DeviceChoice::Cuda(_), Precision::F16 | Precision::F8) => {
                let message = "no kernel of measured runs computes in it: use fp32, tf32 or bf16, or predict with lockstep sim predict";
                refused("precision", precision.to_string(), message)
            }
            (DeviceChoice::Cuda(_), _) => Ok(DeviceChoice::Cuda(precision)),
            (device, Precision::F32 | Precision::Bf16) => Ok(device),
            (device, _) => {
                let message = format!(
                    "device = \"{device}\" computes in fp32 and stores fp32 or bf16: use one of these, device = \"cuda\" (tf32), or \
                     predict with lockstep sim predict"
                );
                refused("precision", precision.to_string(), &message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Either key sets the precision, or both agree.
    #[test]
    fn device_and_precision_agree() {
        let of = |device: &str, precision: Option<&str>| {
            let precision = precision.map(|text| text.parse().unwrap());
            Experiment { device: device.parse().unwrap(), precision, ..Experiment::default() }
        };
        for (device, precision, numbers, computes_on) in [
            ("cpu", None, "fp32", Ok("cpu")),
            ("cuda:tf32", None, "tf32", Ok("cuda:tf32")),
            ("cuda", Some("bf16"), "bf16", Ok("cuda:bf16")),
            ("cuda:bf16", Some("bf16"), "bf16", Ok("cuda:bf16")),
            ("cuda", Some("fp16"), "fp16", Err("no kernel of measured runs")),
            ("cpu", Some("bf16"), "bf16", Ok("cpu")),
            ("cpu", Some("fp8"), "fp8", Err("computes in fp32")),
            ("null", Some("tf32"), "tf32", Err("computes in fp32")),
        ] {
            let experiment = of(device, precision);
            assert_eq!(experiment.numbers().unwrap().name(), numbers);
            match (experiment.computes_on(), computes_on) {
                (Ok(device), wanted) => assert_eq!(Ok(device.to_string().as_str()), wanted),
                (Err(error), Err(wanted)) => assert!(error.message.contains(wanted), "{error}"),
                (Err(error), Ok(_)) => panic!("{error}"),
            }
        }
        let error = of("cuda:bf16", Some("tf32")).numbers().unwrap_err();
        assert!(error.to_string().starts_with("--precision: tf32: is not what device"), "{error}");
        let half = Experiment { gradients: Gradients::Half, ..of("cuda:bf16", None) };
        assert!(half.computes_on().unwrap_err().message.contains("gradients in fp32"));
        let half = Experiment { gradients: Gradients::Half, ..of("cpu", Some("bf16")) };
        assert_eq!(half.computes_on(), Ok(DeviceChoice::Cpu));
    }
}
