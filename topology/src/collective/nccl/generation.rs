//! Names the generations of NVIDIA's GPUs that NCCL has figures for.

use crate::cluster::GpuSpec;

/// A generation, by its NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// V100, NVLink 2.
    Volta,
    /// A100, NVLink 3.
    Ampere,
    /// H100 and H200, NVLink 4.
    Hopper,
    /// B200, GB200 and GB300, NVLink 5.
    Blackwell,
}

crate::named!(Generation, "generation of GPUs": Volta = "volta", Ampere = "ampere", Hopper = "hopper", Blackwell = "blackwell");

impl Generation {
    /// The generation of a GPU; `None` where it has no NVLink, or one for which NCCL's figures are not known here.
    pub fn of(gpu: &GpuSpec) -> Option<Generation> {
        match gpu.nvlink?.generation {
            2 => Some(Generation::Volta),
            3 => Some(Generation::Ampere),
            4 => Some(Generation::Hopper),
            5 => Some(Generation::Blackwell),
            _ => None,
        }
    }
}
