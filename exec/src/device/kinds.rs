//! Which devices a run computes on.

use lockstep_models::Program;
use lockstep_topology::{Algorithm, InputError, Library};

use super::cpu::{Cpu, Threads};
use super::cuda::{self, Gpus, Precision};
use super::{Blueprint, Device, DeviceError, Null};

/// The devices of a run, of which each rank gets one.
#[derive(Debug, Clone, Default)]
pub enum Devices {
    /// The cores of this machine.
    #[default]
    Cpu,
    /// Devices that compute nothing.
    Null,
    /// NVIDIA's.
    Cuda(Gpus),
}

impl Devices {
    /// The GPUs of this machine.
    ///
    /// # Errors
    /// A library that is missing, no GPU, one that is too old.
    pub fn cuda(precision: Precision) -> Result<Devices, DeviceError> {
        Ok(Devices::Cuda(Gpus::open(precision)?))
    }

    /// Whether the ranks `here`, of this process, can do the exchanges of a program.
    ///
    /// # Errors
    /// A library of GPUs is asked for on other devices, or is missing, or two ranks share a GPU.
    pub(crate) fn check(&self, program: &Program, here: &[u32]) -> Result<(), InputError> {
        let mut exchanges = program.roles.iter().flat_map(|role| role.exchanges().map(|(_, exchange)| exchange));
        if !exchanges.any(|exchange| exchange.algorithm == Algorithm::Library(Library::Nccl)) {
            return Ok(());
        }
        match self {
            Devices::Cuda(gpus) => gpus.check_nccl(here),
            Devices::Cpu | Devices::Null => {
                let message =
                    "adds up on NVIDIA's GPUs: add --device cuda, or take an algorithm of lockstep's own, such as ring";
                Err(InputError::new("--algorithm", "library:nccl", message))
            }
        }
    }

    /// Whether messages among `ranks`, all of this process, may go from one's memory to another's on the devices themselves.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn reach(&self, ranks: impl Iterator<Item = u32>) -> Result<bool, DeviceError> {
        if let Devices::Cuda(gpus) = self { gpus.reach(ranks) } else { Ok(false) }
    }

    /// Gives back the memory that no rank uses any more.
    pub(crate) fn clear(&self) {
        if let Devices::Cuda(gpus) = self {
            gpus.clear();
        }
    }

    /// The device of `rank`.
    ///
    /// # Errors
    /// The device's: its memory does not hold what the blueprint asks for.
    pub(crate) fn device(
        &self,
        rank: u32,
        of: Blueprint<'_>,
        threads: &Threads,
    ) -> Result<Box<dyn Device>, DeviceError> {
        Ok(match self {
            Devices::Cpu => Box::new(Cpu::new(of, threads)),
            Devices::Null => Box::new(Null::new(of)),
            Devices::Cuda(gpus) => cuda::device(gpus, rank, of)?,
        })
    }
}
