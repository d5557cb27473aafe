//! Finds the device whose memory is fullest: what its ranks need, and what it has.

use std::collections::BTreeMap;

use lockstep_models::Program;
use lockstep_models::memory::Memory;
use lockstep_topology::cluster::{Device, DeviceId, DeviceKind};
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

/// The memory of a device; `None` where it is unknown.
pub fn device_capacity(device: &Device) -> Option<Bytes> {
    let capacity = match &device.kind {
        DeviceKind::Cpu(cpu) => cpu.memory,
        DeviceKind::Gpu(gpu) => gpu.memory,
        DeviceKind::Switch(_) => Bytes(0),
    };
    (capacity.0 > 0).then_some(capacity)
}

/// The device with the largest share of its memory in use, or in bytes if no capacity is known; the first of equals.
/// Switches that add keep nothing.
///
/// # Errors
/// As [`Memory::of_role`].
pub fn fullest_device(
    program: &Program,
    cluster: &Cluster,
    placement: &Placement,
    optimizer_elements: u64,
) -> Result<DeviceMemory, InputError> {
    let is_switch =
        |rank: Rank| matches!(cluster.devices()[placement.device(rank).0 as usize].kind, DeviceKind::Switch(_));
    let mut devices: BTreeMap<DeviceId, (u32, Memory)> = BTreeMap::new();
    for (index, role) in program.roles.iter().enumerate() {
        let memory = Memory::of_role(program, index, optimizer_elements)?;
        for rank in role.ranks.iter().map(Rank).filter(|rank| !is_switch(*rank)) {
            let (ranks, sum) = devices.entry(placement.device(rank)).or_default();
            *ranks += 1;
            *sum = sum.plus(&memory);
        }
    }
    let full = |(id, (ranks, memory)): (DeviceId, (u32, Memory))| {
        let device = &cluster.devices()[id.0 as usize];
        DeviceMemory { device: device.name.clone(), ranks, memory, capacity: device_capacity(device) }
    };
    // A known capacity counts before an unknown one.
    let share = |device: &DeviceMemory| match device.capacity {
        Some(capacity) => (true, device.memory.total() as f64 / capacity.0 as f64),
        None => (false, device.memory.total() as f64),
    };
    let fullest = devices.into_iter().map(full).reduce(|a, b| if share(&b) > share(&a) { b } else { a });
    fullest.ok_or_else(|| InputError::flag("ranks", "0", "must be at least 1"))
}
