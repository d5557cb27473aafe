//! Finds the device whose memory is fullest: what its ranks need, and what it has.

use std::collections::BTreeMap;

use lockstep_models::Program;
use lockstep_models::memory::Memory;
use lockstep_topology::cluster::{DeviceId, DeviceKind};
use lockstep_topology::{Bytes, Cluster, InputError, Placement, Rank};

/// Peak memory of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceMemory {
    /// Its name.
    pub device: String,
    /// Ranks on it.
    pub ranks: u32,
    /// What all of them need together.
    pub memory: Memory,
    /// What it has; `None` where it is unknown.
    pub capacity: Option<Bytes>,
}

impl DeviceMemory {
    /// Whether it is enough; `None` where it is unknown.
    pub fn fits(&self) -> Option<bool> {
        self.capacity.map(|capacity| self.memory.total() <= capacity.0)
    }
}

/// The device with the largest share of its memory in use, or in bytes where capacities are unknown; the
/// first of equals.
///
/// # Errors
/// As [`Memory::of_role`].
pub fn fullest_device(
    program: &Program,
    cluster: &Cluster,
    placement: &Placement,
    optimizer_elements: u64,
) -> Result<DeviceMemory, InputError> {
    let mut devices: BTreeMap<DeviceId, (u32, Memory)> = BTreeMap::new();
    for (index, role) in program.roles.iter().enumerate() {
        let memory = Memory::of_role(program, index, optimizer_elements)?;
        for rank in role.ranks.iter() {
            let (ranks, sum) = devices.entry(placement.device(Rank(rank))).or_default();
            *ranks += 1;
            *sum = sum.plus(&memory);
        }
    }
    let full = |(id, (ranks, memory)): (DeviceId, (u32, Memory))| {
        let device = &cluster.devices()[id.0 as usize];
        let capacity = match &device.kind {
            DeviceKind::Cpu(cpu) => cpu.memory,
            DeviceKind::Gpu(gpu) => gpu.memory,
            DeviceKind::Switch(_) => Bytes(0),
        };
        let capacity = (capacity.0 > 0).then_some(capacity);
        DeviceMemory { device: device.name.clone(), ranks, memory, capacity }
    };
    let share = |device: &DeviceMemory| match device.capacity {
        Some(capacity) => device.memory.total() as f64 / capacity.0 as f64,
        None => device.memory.total() as f64,
    };
    let fullest = devices.into_iter().map(full).reduce(|a, b| if share(&b) > share(&a) { b } else { a });
    fullest.ok_or_else(|| InputError::flag("ranks", "0", "must be at least 1"))
}
