//! Reads what a rank that trains ends with: its statistics, the models that no other rank has, and fingerprints.

use std::ops::Range;

use lockstep_models::{Buffer, Periodic};

use super::Setup;
use crate::error::ExecError;
use crate::fingerprint::Fingerprint;
use crate::gather::Values;
use crate::periodic::collect;
use crate::process_outcome::AverageModel;
use crate::rank_memory::RankMemory;
use crate::replica::Replica;
use crate::transport::Transport;
use crate::whole::{assemble, one_rank, own_pieces, own_values};

/// What a rank ends with.
#[derive(Default)]
pub(super) struct Ending {
    /// What rank 0 collects from every rank.
    pub(super) of_rank: Values,
    /// On rank 0, where ranks hold parts of the model: the whole of it.
    pub(super) whole: Option<Replica>,
    /// Where learners share them: z and z_prev.
    pub(super) average: Option<AverageModel>,
    /// The buffers that the program declares as state, the same on all ranks.
    pub(super) buffers: Vec<Vec<f32>>,
}

impl Ending {
    /// Of a rank with a replica; `moves` says whether the average model has moved.
    ///
    /// # Errors
    /// Of devices and transports.
    pub(super) fn of(
        setup: &Setup<'_>,
        end: &mut dyn Transport,
        memory: &mut RankMemory,
        moves: bool,
    ) -> Result<Ending, ExecError> {
        let (program, rank) = (setup.program, end.rank().0);
        let mut ending = Ending::default();
        let shared = program.shared_models(rank);
        let common = match (shared, program.delivered()) {
            (Some(shared), _) => shared.average,
            (None, Some(delivered)) => delivered,
            (None, None) => Buffer::Parameters,
        };
        ending.buffers = memory.state_buffers(program)?;
        ending.print(setup, rank, &memory.models(&[common])?[0]);
        let replica = memory.trained();
        ending.of_rank.statistics = replica.statistics()?;
        if setup.periodic.collects_model().is_some() {
            // The whole model takes the place of what training alone needs: together they would be the run's peak. All
            // exchanges have ended, so no message refers to it.
            setup.options.arenas.pool.clear();
        }
        let (pieces, decoders) = (own_pieces(program, replica, rank, Periodic::Checkpoint)?, replica.decoders());
        let in_parts = memory.replica.take_if(|_| program.is_in_parts());
        let own = in_parts.filter(|_| rank == 0).map(|mut replica| own_values(&mut replica)).transpose()?;
        let others = match setup.periodic.collects_model() {
            Some(exchange) => {
                collect(end, (&setup.periodic.checkpoint, exchange, setup.periodic.number), pieces)?.parts
            }
            None => Vec::new(),
        };
        if let Some(own) = own {
            let (all, statistics) = (assemble(program, own, others), &ending.of_rank.statistics);
            ending.whole = Some(one_rank(program, all, statistics, (&decoders, setup.options.seed))?);
        }
        if let Some(shared) = shared {
            let model = memory.model(common)?;
            ending.of_rank.weights = memory.be_average(shared)?;
            let previous = if moves { Some(memory.model(shared.previous)?) } else { None };
            ending.average = Some((model, previous));
            if let Some(of_device) = shared.reference {
                ending.of_rank.reference = memory.model(of_device)?;
            }
        } else if program.averages() {
            ending.of_rank.weights = memory.trained().parameters()?;
        }
        Ok(ending)
    }

    /// Takes the fingerprints of `model` and of the buffers.
    fn print(&mut self, setup: &Setup<'_>, rank: u32, model: &[f32]) {
        let program = setup.program;
        let role = &program.roles[program.role_of(rank)];
        let print = |ranges: Vec<Range<u64>>| {
            let mut print = Fingerprint::new();
            ranges.into_iter().for_each(|range| print.add(&model[range.start as usize..range.end as usize]));
            self.buffers.iter().for_each(|buffer| print.add(buffer));
            print.words()
        };
        // A learner may have been given its device's reference model, which no other device has.
        let follows_reference = program.shared_models(rank).is_none() && program.reference_of(rank).is_some();
        self.of_rank.fingerprint = (!follows_reference).then(|| print(program.common_parameters(role)));
        // Without split layers the two fingerprints are the same.
        self.of_rank.part_fingerprint = program.cuts_model().then(|| print(program.parameters_of(role)));
    }
}
