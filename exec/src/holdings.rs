//! What a rank holds: its replica or its server's sums, declared buffers, and scratch; it outlives the rank's end of the wires.

use std::ops::Range;

use lockstep_models::{Area, Averaging, Buffer, Copy, Layout, Role, Stream};

use crate::arena::Arena;
use crate::device::cpu::{Threads, add_into, copy};
use crate::error::ExecError;
use crate::init;
use crate::replica::Replica;
use crate::whole;
use crate::worker::{ORDER_ELEMENTS, Setup};

/// All that messages of a rank read and write; it outlives the rank's end of the wires.
pub(crate) struct Memory {
    /// `None` for ranks that only serve.
    pub replica: Option<Replica>,
    /// What a server sums into.
    server: Option<Arena>,
    /// Those that the program declares.
    buffers: Vec<Arena>,
    /// For sums in flight, one per exchange task.
    pub scratch: Vec<Arena>,
    /// What rank 0's orders are sent from, and a place for one that arrives.
    pub orders: Arena,
}

impl Memory {
    /// The memory of `rank`, its scratch still to come.
    pub(crate) fn new(setup: &Setup<'_>, rank: u32) -> Result<Memory, ExecError> {
        let program = setup.program;
        let role = &program.roles[program.role_of(rank)];
        let trains = role.tasks.iter().any(|task| task.stream == Stream::Compute);
        let threads = Threads::new(setup.threads)?;
        let zeros = |elements: u64| Arena::new(vec![0.0; elements as usize]);
        let part = |held: Range<u64>| zeros(held.end - held.start);
        let mut memory = Memory {
            replica: trains.then(|| replica(setup, role, &threads)),
            server: (!trains).then(|| zeros(program.model.parameter_elements())),
            buffers: (0..program.buffers.len()).map(|index| program.held(index, rank)).map(part).collect(),
            scratch: Vec::new(),
            orders: Arena::new(ORDER_ELEMENTS.to_vec()),
        };
        if trains {
            memory.begin(setup, rank as usize);
        }
        Ok(memory)
    }

    /// Takes over what training goes on from; where it begins, learners' average model is the model that all start with.
    fn begin(&mut self, setup: &Setup<'_>, rank: usize) {
        let fill = |memory: &Memory, buffer, values: &[f32]| {
            // SAFETY: nothing runs yet.
            unsafe { memory.arena(buffer).slice_mut(0..values.len()) }.copy_from_slice(values);
        };
        if let Some(state) = setup.start {
            let own = |values: &[f32]| match &setup.program.sharding {
                Some(sharding) => whole::part(setup.program, sharding, rank as u32, values),
                None => values.to_vec(),
            };
            fill(self, Buffer::Parameters, &own(state.weights_of(rank)));
            if let Some(replica) = &mut self.replica {
                replica.set_statistics(&state.statistics_of(rank));
                if state.average.is_none() {
                    replica.set_velocity(&own(&state.velocity));
                }
            }
        }
        let reference = setup.program.reference_of(rank as u32);
        match setup.start.map(|state| &state.average) {
            _ if setup.program.averaging.is_none() => {}
            Some(Some((average, previous))) => {
                fill(self, Averaging::AVERAGE, average);
                if let Some((reference, state)) = reference.zip(setup.start) {
                    fill(self, Averaging::REFERENCE, state.reference_of(reference));
                }
                previous.iter().for_each(|previous| fill(self, Averaging::PREVIOUS, previous));
            }
            _ => {
                fill(self, Averaging::AVERAGE, self.model(false));
                reference.iter().for_each(|_| fill(self, Averaging::REFERENCE, self.model(false)));
            }
        }
    }

    /// The arena behind a buffer of the program.
    pub(crate) fn arena(&self, buffer: Buffer) -> &Arena {
        match (buffer, &self.replica, &self.server) {
            (Buffer::Declared(index), ..) => &self.buffers[index],
            (Buffer::Gradients, Some(replica), _) => &replica.gradients,
            (Buffer::Parameters, Some(replica), _) => &replica.parameters,
            (_, None, Some(server)) => server,
            (_, None, None) => unreachable!("a rank trains or serves"),
        }
    }

    /// Does what a copy says; activations and gradients are those of the replica.
    pub(crate) fn copy(&mut self, of: &Copy) {
        if of.rows.is_empty() && !of.clear {
            return;
        }
        let (read, written) = of.extents();
        if let Area::Buffer(to) = of.to {
            // SAFETY: no message is in flight on what a copy writes, by the program's order, and it is another area than
            // the one read, as the program's check has seen to.
            let to = unsafe { self.arena(to).slice_mut(0..written as usize) };
            return move_rows(of, self.source(of.from, read), to);
        }
        let Some(replica) = &mut self.replica else { unreachable!("ranks that only serve have no activations") };
        match of.from {
            Area::Buffer(from) => {
                replica.receive(from, read as usize, &self.buffers, of.to, |from, to| move_rows(of, from, to));
            }
            from => replica.move_tensor(from, of.to, |from, to| move_rows(of, from, to)),
        }
    }

    /// The first `elements` of an area.
    fn source(&self, area: Area, elements: u64) -> &[f32] {
        match (area, &self.replica) {
            // SAFETY: nobody writes what a copy reads, by the program's order.
            (Area::Buffer(from), _) => unsafe { self.arena(from).slice(0..elements as usize) },
            (_, Some(replica)) => replica.tensor(area),
            (_, None) => unreachable!("ranks that only serve have no activations"),
        }
    }
}

/// The replica of a rank of `role`: of the whole model, or of its part of one.
fn replica(setup: &Setup<'_>, role: &Role, threads: &Threads) -> Replica {
    let program = setup.program;
    let Some(sharding) = &program.sharding else {
        return Replica::of_role(program, role, setup.arenas, setup.seed, threads);
    };
    let rank = role.ranks.first;
    let parameters = whole::part(program, sharding, rank, &init::parameters(&sharding.whole, setup.seed));
    let mut replica = Replica::with_parameters(program, role, setup.arenas, parameters, setup.seed, threads);
    replica.draw_as(|id| {
        let layer = &sharding.layers[id.index()];
        let features = program.model.node(id).output.elements();
        let first = if layer.output == Layout::FeatureSplit { u64::from(rank) * features } else { 0 };
        (layer.origin.0, first)
    });
    replica
}

/// Copies or adds row by row.
fn move_rows(of: &Copy, from: &[f32], to: &mut [f32]) {
    if of.clear {
        to.fill(0.0);
    }
    for rows in &of.rows {
        for index in 0..rows.count {
            let (read, written) = rows.at(index);
            let source = &from[read as usize..(read + rows.length) as usize];
            let target = &mut to[written as usize..(written + rows.length) as usize];
            if of.add { add_into(target, source) } else { copy(target, source) }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::Rows;

    use super::*;

    #[test]
    fn rows_are_packed_unpacked_and_added() {
        let area = |index| Area::Buffer(Buffer::Declared(index));
        // Columns 1 and 2 of a 2 × 3 matrix become a block, and go back to where they were.
        let rows = vec![Rows { count: 2, length: 2, from: (1, 3), to: (0, 2) }];
        let pack = Copy { from: area(0), to: area(1), rows, add: false, clear: false };
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut block = [0.0; 4];
        move_rows(&pack, &matrix, &mut block);
        assert_eq!(block, [2.0, 3.0, 5.0, 6.0]);
        let rows = vec![Rows { count: 2, length: 2, from: (0, 2), to: (1, 3) }];
        let mut sum = matrix;
        move_rows(&Copy { from: area(1), to: area(0), rows, add: true, clear: false }, &block, &mut sum);
        assert_eq!(sum, [1.0, 4.0, 6.0, 4.0, 10.0, 12.0]);
    }
}
