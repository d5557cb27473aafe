//! Counts what a rank holds in its device's memory: parameters with their gradients and optimizer state, activations by
//! liveness, buffers in flight.
//!
//! It is counted from the program alone, before anything runs, so that a job that does not fit is known beforehand.
//! Kernels' own workspace and what a driver or a library keeps for itself are not counted.

mod activations;
mod arrange;
mod buffer_addresses;
mod element_addresses;
mod gradients;
mod held;
mod plan;
mod weights;

use lockstep_topology::{Dtype, InputError};

use crate::{Buffer, Op, Program, Role, TaskId};
pub use activations::{Content, PlannedTensor, Reads, activations};
pub use arrange::{Allocation, Arrangement, arrange, live_bytes};
pub use buffer_addresses::BufferAddresses;
pub use element_addresses::ElementAddresses;
pub use gradients::{GradientLife, lives};
pub use plan::{ActivationFormat, Activations, Flattening, Plan, Reuse, live_by_task};

/// Bytes of a cache line: activations begin on one.
const LINE_BYTES: u64 = 64;

/// The bytes of one rank by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Learnable parameters, and batch norm's running statistics.
    pub weights: u64,
    /// Their gradients as [`ElementAddresses::of_gradients`] lays them out; on a server the sums that it makes.
    pub gradients: u64,
    /// What the optimizer keeps for each parameter.
    pub optimizer: u64,
    /// The samples and labels of a micro-batch.
    pub input: u64,
    /// Activations and their gradients as [`Plan`] lays them out, and what kernels keep between their passes.
    pub activations: u64,
    /// The same without sharing memory between tensors.
    pub activations_unplanned: u64,
    /// The most that is live at once: a lower bound for every plan.
    pub activations_live: u64,
    /// Scratch of the sums in flight: a chunk for each lane of their windows.
    pub communication: u64,
    /// What it holds of buffers that the program declares, and the sum of squares of gradients that are clipped.
    pub buffers: u64,
}

impl Memory {
    /// The memory of each rank of a role; `optimizer_elements` are those that the optimizer keeps for each parameter: 1
    /// for momentum, 0 for plain SGD, 2 for the moments of Adam.
    ///
    /// # Errors
    /// An exchange's algorithm that does not fit its group.
    pub fn of_role(program: &Program, role: usize, optimizer_elements: u64) -> Result<Memory, InputError> {
        let role = &program.roles[role];
        let model = &program.model;
        let communication = in_flight(program, role)?;
        let places = BufferAddresses::of_role(program, (role, role.ranks.first()), Reuse::Full);
        let buffers = [Buffer::Parameters, Buffer::Weights, Buffer::Gradients, Buffer::State(0)];
        let [parameters, gathered, gradients, state] =
            buffers.map(|buffer| program.dtype(buffer).bytes(places.of(buffer).elements() as u64));
        let held = |index| {
            let elements = program.held_elements(&places, index, role.ranks.first());
            program.dtype(Buffer::Declared(index)).bytes(elements)
        };
        let norm = Dtype::F32.bytes(places.of(Buffer::Norm).elements() as u64);
        let buffers = norm + (0..program.buffers.len()).map(held).sum::<u64>();
        // Samples that are loaded into a buffer count there; the first layers read from their own memory.
        let samples = role.tasks.iter().filter_map(|task| match task.op {
            Op::Load { into: Some(_), .. } => Some(program.batch_per_rank),
            Op::Load { samples, .. } => Some(samples),
            _ => None,
        });
        // Only the first stage takes samples.
        let samples = samples.max().unwrap_or(0);
        if role.ranks.first() >= program.workers() {
            return Ok(Memory { gradients: gradients.max(parameters), communication, buffers, ..Memory::default() });
        }
        let labels = model.labels().map_or(0, |labels| labels.bytes());
        let activations = Activations::of_role(program, role);
        let in_flight = u64::from(role.micro_batches_in_flight());
        Ok(Memory {
            weights: parameters + gathered + Dtype::F32.bytes(model.statistics_elements()),
            gradients,
            optimizer: state * optimizer_elements,
            input: in_flight * u64::from(samples) * (model.sample().bytes() + labels),
            activations: in_flight * activations.planned,
            activations_unplanned: in_flight * activations.unplanned,
            activations_live: in_flight * activations.live,
            communication,
            buffers,
        })
    }

    /// The sum of both.
    pub fn plus(&self, other: &Memory) -> Memory {
        Memory {
            weights: self.weights + other.weights,
            gradients: self.gradients + other.gradients,
            optimizer: self.optimizer + other.optimizer,
            input: self.input + other.input,
            activations: self.activations + other.activations,
            activations_unplanned: self.activations_unplanned + other.activations_unplanned,
            activations_live: self.activations_live + other.activations_live,
            communication: self.communication + other.communication,
            buffers: self.buffers + other.buffers,
        }
    }

    /// All of it, activations as planned.
    pub fn total(&self) -> u64 {
        self.weights
            + self.gradients
            + self.optimizer
            + self.input
            + self.activations
            + self.communication
            + self.buffers
    }

    /// All of it, without sharing memory between activations.
    pub fn total_unplanned(&self) -> u64 {
        self.total() - self.activations + self.activations_unplanned
    }
}

/// Scratch of the exchanges that may be in flight at once: the largest of them.
fn in_flight(program: &Program, role: &Role) -> Result<u64, InputError> {
    let mut scratch = Vec::new();
    for (_, exchange) in role.exchanges() {
        let schedule = program.schedule(exchange, role.ranks.first())?;
        let elements = schedule.scratch_elements(Program::window(exchange, &schedule));
        scratch.push(program.dtype(exchange.buffer).bytes(elements));
    }
    scratch.sort_unstable_by(|a, b| b.cmp(a));
    // As many as an iteration starts while exchanges of the one before may still be in flight.
    let is_exchange = |task: TaskId| matches!(role.tasks[task].op, Op::Exchange(_));
    let waits = |task: TaskId, lag| role.tasks[task].after.iter().any(|a| a.lag == lag && is_exchange(a.task));
    let first = role.exchanges().filter(|(task, _)| waits(*task, 1)).count();
    let limit = if first == 0 { scratch.len() } else { first };
    Ok(scratch.iter().take(limit).sum())
}
