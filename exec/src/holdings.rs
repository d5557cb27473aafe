//! What a rank holds: its replica or its server's sums, and scratch; it outlives the rank's end of the wires.

use std::ops::Range;

use lockstep_models::memory::BufferPlaces;
use lockstep_models::{Area, Averaging, Buffer, Copy, Role, Stream};

use crate::arena::Arena;
use crate::device::cpu::Threads;
use crate::device::{Compute, Device, DeviceError, Null, Spot, Storage, Values};
use crate::error::ExecError;
use crate::init;
use crate::replica::{Making, Replica};
use crate::setup::{RunOptions, Setup};
use crate::snapshot::ORDER_ELEMENTS;
use crate::transport::RegionMut;
use crate::whole;

/// All that messages of a rank read and write; it outlives the rank's end of the wires.
pub(crate) struct Memory {
    /// `None` for ranks that only serve.
    pub replica: Option<Replica>,
    /// The device of a rank that only serves: memory without arithmetic, none where there is a replica.
    server: Null,
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
        let places = BufferPlaces::of_role(program, (role, rank), setup.options.arenas.reuse);
        let declared = (0..program.buffers.len()).map(|index| program.held_elements(&places, index, rank) as usize);
        let declared = declared.collect();
        let (replica, server) = if trains {
            (Some(replica_of(setup, role, rank, declared)?), Null::of_server(places, &[]))
        } else {
            (None, Null::of_server(places, &declared))
        };
        let orders = Arena::new(ORDER_ELEMENTS.to_vec());
        let mut memory = Memory { replica, server, scratch: Vec::new(), orders };
        if trains {
            memory.begin(setup, rank as usize)?;
        }
        Ok(memory)
    }

    /// Takes over the state that training resumes; in a new one, learners' average model is the model that all start with.
    fn begin(&mut self, setup: &Setup<'_>, rank: usize) -> Result<(), DeviceError> {
        let Some(replica) = &mut self.replica else { return Ok(()) };
        if let Some(state) = setup.options.start {
            let own = |values: &[f32]| match &setup.program.sharding {
                Some(sharding) => whole::part(setup.program, sharding, rank as u32, values),
                None => values.to_vec(),
            };
            replica.set_parameters(&own(state.weights_of(rank)))?;
            replica.set_statistics(&state.statistics_of(rank))?;
            if state.average.is_none() {
                replica.set_velocity(&own(&state.velocity))?;
            }
        }
        let reference = setup.program.reference_of(rank as u32);
        match setup.options.start.map(|state| &state.average) {
            _ if setup.program.averaging.is_none() => {}
            Some(Some((average, previous))) => {
                replica.set_values_of(Averaging::AVERAGE, average)?;
                if let Some((reference, state)) = reference.zip(setup.options.start) {
                    replica.set_values_of(Averaging::REFERENCE, state.reference_of(reference))?;
                }
                if let Some(previous) = previous {
                    replica.set_values_of(Averaging::PREVIOUS, previous)?;
                }
            }
            _ => {
                let device = replica.device();
                device.assign(Averaging::AVERAGE, Buffer::Parameters)?;
                if reference.is_some() {
                    device.assign(Averaging::REFERENCE, Buffer::Parameters)?;
                }
            }
        }
        Ok(())
    }

    /// So many elements on the host, kept for the rest of the run.
    pub(crate) fn scratch(&mut self, elements: usize) -> RegionMut {
        let arena = Arena::new(vec![0.0; elements]);
        let region = arena.region(0..elements);
        self.scratch.push(arena);
        region
    }

    /// The rank's device.
    pub(crate) fn device(&mut self) -> &mut dyn Device {
        match &mut self.replica {
            Some(replica) => replica.device(),
            None => &mut self.server,
        }
    }

    /// Where elements `range` of a buffer lie.
    pub(crate) fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.replica.as_ref().map_or_else(|| self.server.place(buffer, range), |replica| replica.place(buffer, range))
    }

    /// Does what a copy says; activations and gradients are those of the replica.
    pub(crate) fn copy(&mut self, of: &Copy) -> Result<(), DeviceError> {
        if of.rows.is_empty() && !of.clear {
            return Ok(());
        }
        match (&mut self.replica, of.from, of.to) {
            (Some(replica), ..) => replica.copy(of),
            (None, Area::Buffer(from), Area::Buffer(to)) => {
                self.server.copy(of, &Spot::Buffer(from), &Spot::Buffer(to))
            }
            _ => unreachable!("ranks that only serve have no activations"),
        }
    }

    /// The replica of a rank that trains.
    pub(crate) fn trained(&mut self) -> &mut Replica {
        self.replica.as_mut().expect("check: models are averaged, and moved, where there are some")
    }

    /// Begins again at the average model, the reference model too where there is one.
    pub(crate) fn restart(&mut self, consensus: Buffer) -> Result<(), DeviceError> {
        let device = self.device();
        device.assign(Buffer::Parameters, Averaging::AVERAGE)?;
        if consensus == Averaging::AVERAGE { Ok(()) } else { device.assign(consensus, Averaging::AVERAGE) }
    }

    /// Lets the replica be the average model, and gives the learner's own weights.
    pub(crate) fn be_average(&mut self) -> Result<Vec<f32>, DeviceError> {
        let own = self.trained().parameters()?;
        self.restart(Averaging::AVERAGE)?;
        Ok(own)
    }

    /// Lets the replica be the learner again.
    pub(crate) fn be_learner(&mut self, own: &[f32]) -> Result<(), DeviceError> {
        self.trained().set_parameters(own)
    }

    /// A model that learners share, between iterations.
    pub(crate) fn shared(&mut self, model: Buffer) -> Result<Vec<f32>, DeviceError> {
        match &mut self.replica {
            Some(replica) => replica.values_of(model),
            None => self.server.read(Values::Buffer(model)),
        }
    }

    /// The model that a run is about: the average model where learners have models of their own.
    pub(crate) fn model(&mut self, averages: bool) -> Result<Vec<f32>, DeviceError> {
        self.shared(if averages { Averaging::AVERAGE } else { Buffer::Parameters })
    }
}

/// The replica of a rank of `role`: of the whole model, or of its part of one.
fn replica_of(setup: &Setup<'_>, role: &Role, rank: u32, declared: Vec<usize>) -> Result<Replica, ExecError> {
    let program = setup.program;
    let threads = &Threads::new(setup.options.threads_per_rank)?;
    let RunOptions { devices, arenas, seed, .. } = setup.options;
    let seed = *seed;
    let making = Making { devices: &**devices, rank, arenas, declared, seed, threads };
    let Some(sharding) = &program.sharding else {
        let parameters = init::parameters(&program.model, seed);
        return Ok(Replica::with_parameters(program, role, parameters, making)?);
    };
    let parameters = whole::part(program, sharding, rank, &init::parameters(&sharding.whole, seed));
    let mut replica = Replica::with_parameters(program, role, parameters, making)?;
    let part = program.part(sharding, rank);
    replica.draw_as(|id| {
        let layer = &sharding.layers[id.index()];
        let features = program.model.node(id).output.elements();
        let first = if sharding.splits(id) { u64::from(part) * features } else { 0 };
        (layer.origin.0, first)
    });
    Ok(replica)
}
