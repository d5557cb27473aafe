//! Provides the devices of a run's ranks: the trait for a kind of device, and the two kinds that use host memory.

use std::fmt;

use lockstep_models::memory::ActivationFormat;
use lockstep_models::{Gradients, Moments, Precision, Program};
use lockstep_topology::{Dtype, ErrorPlace, InputError};

use super::cpu::{Cpu, Threads, workspace_bytes};
use super::{Blueprint, DeviceError, Null, RankDevice};
use crate::capacity;
use crate::error::ExecError;

/// The devices of a run, one for each rank.
pub trait Devices: fmt::Debug + Send + Sync {
    /// The device of `rank`; a CPU device uses `threads`.
    ///
    /// # Errors
    /// Device errors: its memory is too small for the blueprint.
    fn device(&self, rank: u32, of: Blueprint<'_>, threads: &Threads) -> Result<Box<dyn RankDevice>, DeviceError>;

    /// How they store activations of a program of this precision: as it says, with flattened images as views, unless they
    /// say otherwise.
    fn activations(&self, precision: Precision) -> ActivationFormat {
        ActivationFormat { dtype: precision.activation_dtype(), ..ActivationFormat::default() }
    }

    /// Refuses a precision in which they neither compute nor store activations; unless they say otherwise, all but fp32 and
    /// bf16.
    ///
    /// # Errors
    /// Such a precision, with the cure.
    fn check_precision(&self, precision: Precision) -> Result<(), InputError> {
        match precision {
            Precision::F32 | Precision::Bf16 => Ok(()),
            other => {
                let message = format!(
                    "is not computed on CPUs, which multiply in fp32 and store fp32 or bf16: use one of these, {} cuda (tf32), or \
                     predict with lockstep sim predict",
                    ErrorPlace::Flag("device")
                );
                Err(InputError::flag("precision", other.to_string(), message))
            }
        }
    }

    /// Refuses gradients of a format that they do not keep and add; unless they say otherwise, all but fp32 and bf16.
    ///
    /// # Errors
    /// Such a format, with the cure.
    fn check_gradients(&self, gradients: Gradients, precision: Precision) -> Result<(), InputError> {
        match gradients.dtype(precision) {
            Dtype::F32 | Dtype::Bf16 => Ok(()),
            other => Err(unkept(gradients, other)),
        }
    }

    /// Refuses moments of a format in which they do not keep them; unless they say otherwise, none.
    ///
    /// # Errors
    /// Such a format, with the cure.
    fn check_moments(&self, _: Moments) -> Result<(), InputError> {
        Ok(())
    }

    /// Refuses a program whose ranks `here`, those of this process, need more host memory than is left, before any of
    /// it is taken.
    ///
    /// # Errors
    /// Reports the estimate, what is left, and what would fit.
    fn check_memory(&self, program: &Program, here: &[u32], threads: usize) -> Result<(), InputError>;

    /// How many ranks of the first role fit in the memory that is left; as many as requested where that is unknown.
    ///
    /// # Errors
    /// An exchange's algorithm that does not support its group; device errors.
    fn most_ranks(&self, program: &Program, threads: usize) -> Result<u32, ExecError> {
        Ok(capacity::most_ranks(program, workspace_bytes(program, &Threads::planned(threads)))?)
    }

    /// Whether the ranks `here`, of this process, can reduce with the devices' own library.
    ///
    /// # Errors
    /// There is no such library, or it does not support these ranks.
    fn check_sums(&self, _here: &[u32]) -> Result<(), InputError> {
        let device = ErrorPlace::Flag("device");
        let message =
            format!("sums on NVIDIA's GPUs: add {device} cuda, or use an algorithm of lockstep's own, such as ring");
        Err(InputError::flag("algorithm", "library:nccl", message))
    }

    /// Whether ranks can sum the squares of their gradients, by whose norm these are clipped.
    ///
    /// # Errors
    /// They cannot.
    fn check_clipping(&self) -> Result<(), InputError> {
        Ok(())
    }

    /// Whether messages among `ranks`, all of this process, may go directly from one device's memory to another's.
    ///
    /// # Errors
    /// Device errors.
    fn reach(&self, _ranks: &mut dyn Iterator<Item = u32>) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Frees memory that no rank uses any more.
    fn clear(&self) {}
}

/// The refusal of gradients in `dtype`.
pub fn unkept(gradients: Gradients, dtype: Dtype) -> InputError {
    let message =
        format!("the devices of this run do not keep gradients in {dtype}, which is predicted only: leave it out");
    InputError::flag("gradients", gradients.to_string(), message)
}

/// The cores of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpus;

impl Devices for Cpus {
    fn device(&self, _: u32, of: Blueprint<'_>, threads: &Threads) -> Result<Box<dyn RankDevice>, DeviceError> {
        Ok(Box::new(Cpu::new(of, threads)))
    }

    fn check_memory(&self, program: &Program, here: &[u32], threads: usize) -> Result<(), InputError> {
        capacity::check_memory(program, here, Some(workspace_bytes(program, &Threads::planned(threads))))
    }
}

/// Devices that compute nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nulls;

impl Devices for Nulls {
    fn device(&self, _: u32, of: Blueprint<'_>, _: &Threads) -> Result<Box<dyn RankDevice>, DeviceError> {
        Ok(Box::new(Null::new(of)))
    }

    /// It holds parameters and gradients too.
    fn check_memory(&self, program: &Program, here: &[u32], _: usize) -> Result<(), InputError> {
        capacity::check_memory(program, here, None)
    }
}
