//! Finds which figure of a GPU limits its kernels: by how much their time falls when the figure rises.

use std::sync::Arc;

use lockstep_models::{Op, Program, Task};
use lockstep_topology::Rank;
use lockstep_topology::cluster::{Device, DeviceId, DeviceKind, Figure};

use crate::jobs::cost;
use crate::platform::Platform;

/// The relative change of a figure, small beside the differences of layers.
const CHANGE: f64 = 1e-3;

/// What share of the time of a GPU's kernels follows its arithmetic, and what share its memory's bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KernelLimits {
    pub(super) arithmetic: f64,
    pub(super) memory: f64,
}

impl KernelLimits {
    /// Of the first rank on `device`; `None` for other devices, and where its kernels take no time.
    pub(super) fn of(program: &Program, platform: &Platform<'_>, device: DeviceId) -> Option<KernelLimits> {
        let device = &platform.cluster.devices()[device.0 as usize];
        let DeviceKind::Gpu(gpu) = &device.kind else { return None };
        let rank = (0..program.ranks()).find(|rank| platform.placement.device(Rank(*rank)) == device.id)?;
        let faster = |of: Figure| {
            let spec = gpu.scaled(&|figure| if figure == of { 1.0 + CHANGE } else { 1.0 });
            let mut faster = device.clone();
            faster.kind = DeviceKind::Gpu(Arc::new(spec));
            faster
        };
        let now = seconds(program, platform, device, rank);
        let share = |of| (1.0 - seconds(program, platform, &faster(of), rank) / now) / CHANGE;
        (now > 0.0).then(|| KernelLimits { arithmetic: share(Figure::GpuPeak), memory: share(Figure::GpuMemory) })
    }
}

/// The time of all kernels of a step of `rank` on `device`, one after the other.
fn seconds(program: &Program, platform: &Platform<'_>, device: &Device, rank: u32) -> f64 {
    let role = &program.roles[program.role_of(rank)];
    let each = |(id, task): (usize, &Task)| match task.op {
        Op::Compute { .. } | Op::Elementwise(_) | Op::Copy(_) => {
            let cost = cost(&task.op, program, platform, device, rank);
            cost.map_or(0.0, |cost| cost.seconds) * f64::from(role.runs_of(id))
        }
        _ => 0.0,
    };
    role.tasks.iter().enumerate().map(each).sum()
}
