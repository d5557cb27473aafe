//! What a rank holds: its replica or its server's sums, and scratch memory; it outlives the rank's end of the wires.

use lockstep_models::{Buffer, Stream};

use crate::arena::Arena;
use crate::device::cpu::Threads;
use crate::error::ExecError;
use crate::replica::Replica;
use crate::worker::Setup;

/// All that messages of a rank read and write; it outlives the rank's end of the wires.
pub(crate) struct Memory {
    /// `None` for ranks that only serve.
    pub replica: Option<Replica>,
    /// What a server sums into.
    server: Option<Arena>,
    /// For sums in flight, one per exchange task.
    pub scratch: Vec<Arena>,
}

impl Memory {
    /// The memory of `rank`, its scratch still to come.
    pub(crate) fn new(setup: &Setup<'_>, rank: u32) -> Result<Memory, ExecError> {
        let program = setup.program;
        let trains = program.roles[program.role_of(rank)].tasks.iter().any(|task| task.stream == Stream::Compute);
        let elements = program.model.parameter_elements() as usize;
        let (threads, samples) = (Threads::new(setup.threads)?, program.batch_per_rank as usize);
        Ok(Memory {
            replica: trains.then(|| Replica::new(&program.model, &program.chains, samples, setup.seed, &threads)),
            server: (!trains).then(|| Arena::new(vec![0.0; elements])),
            scratch: Vec::new(),
        })
    }

    /// The arena behind a buffer of the program.
    pub(crate) fn arena(&self, buffer: Buffer) -> &Arena {
        match (&self.replica, &self.server) {
            (Some(replica), _) => match buffer {
                Buffer::Gradients => &replica.gradients,
                Buffer::Parameters => &replica.parameters,
            },
            (None, Some(server)) => server,
            (None, None) => unreachable!("a rank trains or serves"),
        }
    }
}
