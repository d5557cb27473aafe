//! The whole model of ranks that each hold a part of it: cut for them at the start, put together on rank 0 at the end.

use std::sync::Arc;

use lockstep_models::{AxisSet, Job, Program, Sharding};
use lockstep_topology::Rank;

use crate::device::cpu::Threads;
use crate::device::{Cpus, DeviceError};
use crate::error::ExecError;
use crate::pool::Arenas;
use crate::replica::{Making, Replica};
use crate::transport::{Transport, control};

/// Kind of the messages that carry a rank's parameters and momentum.
const PART: u32 = 7;

/// The part of `rank` of values that the whole model's parameters have; zero where its rows are padding.
pub(crate) fn part(program: &Program, sharding: &Sharding, rank: u32, whole: &[f32]) -> Vec<f32> {
    let mut own = vec![0.0; program.model.parameter_elements() as usize];
    for (range, start) in sharding.parameters(&program.model, program.part(sharding, rank)) {
        let values = &whole[range.start as usize..range.end as usize];
        own[start as usize..start as usize + values.len()].copy_from_slice(values);
    }
    own
}

/// Puts a rank's part back into its place in the whole.
fn put(program: &Program, sharding: &Sharding, rank: u32, own: &[f32], whole: &mut [f32]) {
    for (range, start) in sharding.parameters(&program.model, program.part(sharding, rank)) {
        let length = (range.end - range.start) as usize;
        whole[range.start as usize..range.end as usize].copy_from_slice(&own[start as usize..start as usize + length]);
    }
}

/// Puts the whole model together on rank 0, from what every worker has; nothing on the others, and nothing where every rank
/// has the whole model itself. Statistics are rank 0's.
///
/// # Errors
/// When the job is over.
pub(crate) fn assemble(
    end: &mut dyn Transport,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
) -> Result<Option<Replica>, ExecError> {
    let Some(sharding) = &program.sharding else { return Ok(None) };
    let mut values = replica.parameters()?;
    let elements = values.len();
    values.extend_from_slice(&replica.velocity()?);
    // The ranks that have all parts between them; rank 0 has them all where weights are not split.
    let axes = if sharding.splits_weights() { AxisSet::of(&[sharding.axis]) } else { AxisSet::default() };
    let parts = program.mesh.group_of(axes, 0);
    if end.rank().0 != 0 {
        if parts.contains(end.rank().0) {
            control::send_elements(end, Rank(0), PART, values)?;
        }
        return Ok(None);
    }
    let all = sharding.whole.parameter_elements() as usize;
    let (mut parameters, mut velocity) = (vec![0.0; all], vec![0.0; all]);
    for rank in parts.iter() {
        if rank > 0 {
            values = control::receive_elements(end, Rank(rank), PART, 2 * elements)?;
        }
        let (own, own_velocity) = values.split_at(elements);
        put(program, sharding, rank, own, &mut parameters);
        put(program, sharding, rank, own_velocity, &mut velocity);
    }
    let alone = Job::new(Arc::clone(&sharding.whole), 1, program.batch_per_rank).program()?;
    let (arenas, threads) = (&Arenas::default(), &Threads::one());
    let making = Making { devices: &Cpus, rank: 0, arenas, declared: Vec::new(), seed, threads };
    let mut whole = Replica::with_parameters(&alone, &alone.roles[0], parameters, making)?;
    whole.set_velocity(&velocity)?;
    whole.set_statistics(&replica.statistics()?)?;
    Ok(Some(whole))
}

/// The parameters that every rank must have alike: those of the layers that are not split.
///
/// # Errors
/// The device's.
pub(crate) fn common(program: &Program, sharding: &Sharding, replica: &mut Replica) -> Result<Vec<f32>, DeviceError> {
    let values = replica.parameters()?;
    let kept = program.model.iter().filter(|(id, _)| !sharding.in_passes(*id));
    let ranges = kept.flat_map(|(_, node)| &node.parameters).map(|parameter| parameter.range.clone());
    Ok(ranges.flat_map(|range| values[range.start as usize..range.end as usize].to_vec()).collect())
}
