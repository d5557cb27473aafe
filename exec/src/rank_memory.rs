//! Owns a rank's memory: its replica or its server's sums, and scratch. It outlives the rank's transport.

use std::borrow::Cow;
use std::ops::Range;

use lockstep_models::memory::BufferAddresses;
use lockstep_models::{Area, Buffer, Copy, Program, Role, SharedModels, Start, Stream};
use lockstep_topology::Dtype;

use crate::arena::Arena;
use crate::device::cpu::Threads;
use crate::device::{Compute, DeviceError, Null, RankDevice, Spot, Storage, Values, declared_arenas, zeros};
use crate::error::ExecError;
use crate::init;
use crate::replica::{Making, Replica};
use crate::setup::{RunOptions, Setup};
use crate::snapshot::ORDER_ELEMENTS;
use crate::transport::RegionMut;
use crate::whole;

/// All memory that messages of a rank read and write; it outlives the rank's transport.
pub(crate) struct RankMemory {
    /// `None` for dedicated servers.
    pub replica: Option<Replica>,
    /// The device of a dedicated server: memory without arithmetic; empty where there is a replica.
    server: Null,
    /// Scratch for sums in flight, one per exchange task.
    pub scratch: Vec<Arena>,
    /// The send buffer of rank 0's orders, and a receive buffer for one.
    pub orders: Arena,
}

impl RankMemory {
    /// The memory of `rank`; its scratch is added later.
    pub(crate) fn new(setup: &Setup<'_>, rank: u32) -> Result<RankMemory, ExecError> {
        let program = setup.program;
        let role = &program.roles[program.role_of(rank)];
        let trains = role.tasks.iter().any(|task| task.stream == Stream::Compute);
        let places = BufferAddresses::of_role(program, (role, rank), setup.options.arenas.reuse);
        let declared = (0..program.buffers.len()).map(|index| program.held_elements(&places, index, rank) as usize);
        let declared: Vec<usize> = declared.collect();
        let (replica, server) = if trains {
            (Some(replica_of(setup, role, rank, declared)?), Null::of_server(program, places, Vec::new()))
        } else {
            let dtype = |index| program.dtype(Buffer::Declared(index));
            let numbers = declared.into_iter().enumerate().map(|(index, elements)| (elements, dtype(index)));
            (None, Null::of_server(program, places, declared_arenas(numbers)))
        };
        let orders = Arena::new(ORDER_ELEMENTS.to_vec());
        let mut memory = RankMemory { replica, server, scratch: Vec::new(), orders };
        if trains {
            memory.begin(setup, rank as usize)?;
        }
        Ok(memory)
    }

    /// Loads the state from which training resumes. In a new training the learners' average model is the common initial
    /// model.
    fn begin(&mut self, setup: &Setup<'_>, rank: usize) -> Result<(), DeviceError> {
        let Some(replica) = &mut self.replica else { return Ok(()) };
        if let Some(state) = setup.options.start {
            let own = |values: &[f32]| whole::part(setup.program, rank as u32, values);
            replica.set_parameters(&own(state.weights_of(rank)))?;
            replica.set_statistics(&state.statistics_of(rank))?;
            if state.average.is_none() {
                replica.set_states(state.states.iter().map(|state| own(state)))?;
            }
        }
        let program = setup.program;
        self.begin_buffers(program, setup.options.start.map_or(&[], |state| &state.buffers))?;
        let Some((state, (average, previous))) =
            setup.options.start.and_then(|state| Some((state, state.average.as_ref()?)))
        else {
            let common = if program.averages() { self.trained().parameters()? } else { return Ok(()) };
            return self.follow(program, rank as u32, &common);
        };
        self.follow(program, rank as u32, average)?;
        let of_device = program.reference_of(rank as u32).map(|device| state.reference_of(device));
        let shared = program.shared_models(rank as u32);
        let holds = [shared.and_then(|shared| shared.reference), program.delivered()];
        for (buffer, reference) in holds.into_iter().filter_map(|buffer| buffer.zip(of_device)) {
            self.trained().set_values_of(buffer, reference)?;
        }
        let Some((shared, previous)) = shared.zip(previous.as_ref()) else { return Ok(()) };
        self.trained().set_values_of(shared.previous, previous)
    }

    /// Loads the buffers that `program` declares as state, from `saved` or, where there are none, as it says.
    fn begin_buffers(&mut self, program: &Program, saved: &[Vec<f32>]) -> Result<(), DeviceError> {
        for (number, (buffer, start)) in program.state_buffers().enumerate() {
            match (saved.get(number), start) {
                (Some(values), _) => self.trained().set_values_of(buffer, values)?,
                (None, Start::Parameters) => {
                    let parameters = self.trained().parameters()?;
                    self.trained().set_values_of(buffer, &parameters)?;
                }
                (None, Start::Zeros) => {}
            }
        }
        Ok(())
    }

    /// The buffers that `program` declares as state.
    pub(crate) fn state_buffers(&mut self, program: &Program) -> Result<Vec<Vec<f32>>, DeviceError> {
        program.state_buffers().map(|(buffer, _)| self.model(buffer)).collect()
    }

    /// Has each model that learners share, as far as `rank` has it, equal the average model.
    fn follow(&mut self, program: &Program, rank: u32, average: &[f32]) -> Result<(), DeviceError> {
        let shared = program.shared_models(rank);
        let own = shared.map(|shared| [Some(shared.average), shared.reference]).into_iter().flatten();
        let mut models = own.chain([program.delivered()]).flatten();
        models.try_for_each(|model| self.trained().set_values_of(model, average))
    }

    /// `elements` numbers of `dtype` in host memory, kept for the rest of the run.
    pub(crate) fn scratch(&mut self, elements: usize, dtype: Dtype) -> RegionMut {
        let arena = zeros(elements, dtype);
        let region = arena.region(0..elements);
        self.scratch.push(arena);
        region
    }

    /// The rank's device.
    pub(crate) fn device(&mut self) -> &mut dyn RankDevice {
        match &mut self.replica {
            Some(replica) => replica.device(),
            None => &mut self.server,
        }
    }

    /// The place of elements `range` of a buffer.
    pub(crate) fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.replica.as_ref().map_or_else(|| self.server.place(buffer, range), |replica| replica.place(buffer, range))
    }

    /// Performs a copy; activations and gradients are those of the replica.
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

    /// Restarts from the average model, which all models that learners share then equal.
    pub(crate) fn restart(&mut self, program: &Program, rank: u32, average: &[f32]) -> Result<(), DeviceError> {
        self.trained().set_parameters(average)?;
        self.follow(program, rank, average)
    }

    /// Loads the average model into the replica and returns the learner's own weights.
    pub(crate) fn be_average(&mut self, shared: SharedModels) -> Result<Vec<f32>, DeviceError> {
        let own = self.trained().parameters()?;
        self.device().assign(Buffer::Parameters, shared.average)?;
        Ok(own)
    }

    /// Restores the learner's own weights.
    pub(crate) fn be_learner(&mut self, own: &[f32]) -> Result<(), DeviceError> {
        self.trained().set_parameters(own)
    }

    /// A model of a rank between iterations: its own, or one that learners share.
    pub(crate) fn model(&mut self, model: Buffer) -> Result<Vec<f32>, DeviceError> {
        match &mut self.replica {
            Some(replica) => replica.values_of(model),
            None => self.server.read(Values::Buffer(model)),
        }
    }

    /// As [`RankMemory::model`], several at once; what host memory holds in order is borrowed from there.
    pub(crate) fn models(&mut self, of: &[Buffer]) -> Result<Vec<Cow<'_, [f32]>>, DeviceError> {
        let is_lent = |memory: &RankMemory, model: &Buffer| memory.lent(*model).is_some();
        let copy = |model: &Buffer| if is_lent(self, model) { Ok(None) } else { self.model(*model).map(Some) };
        let copies: Vec<Option<Vec<f32>>> = of.iter().map(copy).collect::<Result<_, _>>()?;
        let lent = |model: &Buffer| Cow::Borrowed(self.lent(*model).unwrap_or_default());
        Ok(of.iter().zip(copies).map(|(model, copy)| copy.map_or_else(|| lent(model), Cow::Owned)).collect())
    }

    /// A model of a rank that trains, where host memory holds it in order; nothing may be in flight.
    fn lent(&self, model: Buffer) -> Option<&[f32]> {
        self.replica.as_ref()?.lent_values_of(model)
    }
}

/// The replica of a rank of `role`: of the whole model, or of the rank's part.
fn replica_of(setup: &Setup<'_>, role: &Role, rank: u32, declared: Vec<usize>) -> Result<Replica, ExecError> {
    let program = setup.program;
    let threads = &Threads::new(setup.options.threads_per_rank)?;
    let RunOptions { devices, arenas, seed, .. } = setup.options;
    let seed = *seed;
    let making = Making { devices: &**devices, rank, arenas, declared, seed, threads, decoders: &setup.decoders };
    let parameters = whole::part(program, rank, &init::parameters(program.whole_model(), seed));
    let mut replica = Replica::with_parameters(program, role, parameters, making)?;
    replica.draw_as(|id| program.origin_of(rank, id));
    Ok(replica)
}
