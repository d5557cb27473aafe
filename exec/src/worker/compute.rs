//! Runs a worker's compute tasks on its replica.

use std::time::{Duration, Instant};

use lockstep_models::{Buffer, Op, Phase, Piece, TaskId, Turns};
use lockstep_topology::Dtype;

use super::{Setup, Worker};
use crate::device::{Loss, Mode};
use crate::error::ExecError;
use crate::number::bytes_of_mut;

/// Shuffles due before a step precede its first task.
const SHUFFLED: &str = "the samples are those of the step";
/// What [`lockstep_models::Program::check`] has checked.
const TRAINS: &str = "check: ranks that only serve have no compute tasks";

impl Worker<'_> {
    /// Runs a task of the compute stream; `batch` is the number of the step since training began.
    pub(super) fn execute(&mut self, task: TaskId, repetition: u32, batch: u64) -> Result<(), ExecError> {
        match &self.role.tasks[task].op {
            Op::Elementwise(of) => return self.evaluate_formula(of, (self.iteration, repetition), batch),
            Op::Squares(of) => return self.sum_squares(of),
            Op::Copy(copies) => {
                let own = self.transport.rank().0;
                let copy = copies.at(&self.setup.program.mesh, own);
                return match copy.turns {
                    Turns::ONE => Ok(self.memory.copy(copy)?),
                    _ => {
                        let run = u64::from(self.iteration) * u64::from(self.needs[task].1) + u64::from(repetition);
                        Ok(self.memory.copy(&copy.of_run(run))?)
                    }
                };
            }
            Op::Host { calls, each } => return self.occupy(Duration::from_secs_f64(each.as_secs_f64()) * *calls),
            Op::Compute { samples: 0, .. } | Op::Load { samples: 0, .. } => return Ok(()),
            Op::Labels { pass, .. } => return self.take_labels(batch, *pass),
            _ => {}
        }
        if let Op::Compute { phase: Phase::Forward, pass, .. } = self.role.tasks[task].op
            && self.turned != Some((batch, pass, self.micro_batch))
        {
            self.take_labels(batch, pass)?;
        }
        match &self.role.tasks[task].op {
            Op::Load { pass: Some(pass), into, .. } => self.load_pass(batch, *pass, *into),
            Op::Load { .. } => self.load_micro_batch(batch),
            Op::Compute { chain, phase: Phase::Forward, pass, .. } => self.run_forward(*chain, pass.is_some(), batch),
            Op::Compute { chain, phase: Phase::Recompute, .. } => {
                // The context of the micro-batch still has its labels and places.
                self.memory.replica.as_mut().expect(TRAINS).forward(*chain, Mode::Recompute)?;
                Ok(())
            }
            Op::Compute { chain, phase, pass, .. } => {
                let scale = 1.0 / self.setup.program.gradient_samples() as f32;
                let adds = self.adds[task][usize::from(repetition > 0)];
                let replica = self.memory.replica.as_mut().expect(TRAINS);
                let found = replica.backward(*chain, *phase, scale, adds)?;
                found.map_or(Ok(()), |loss| self.count(loss, (*chain, pass.is_some()), (self.iteration, batch)))
            }
            _ => unreachable!("not a task of the compute stream"),
        }
    }

    /// Loads the samples of a pass, the micro-batches of several workers one after the other, as the input of the first
    /// layers or into a declared buffer.
    fn load_pass(&mut self, batch: u64, pass: u32, into: Option<usize>) -> Result<(), ExecError> {
        let own = self.transport.rank().0;
        let (mut indices, places) = samples_of(self.setup, batch, Some(pass), (own, self.micro_batch));
        let mut data = self.setup.data;
        if let Some(store) = &self.store {
            let pieces = self.setup.program.pieces(Some(pass), own, 0);
            (indices, data) = (store.drawn_for(batch, &pieces, 0).expect(SHUFFLED), store.data());
        }
        let replica = self.memory.replica.as_mut().expect(TRAINS);
        let Some(buffer) = into else {
            replica.load(data, &indices, places[0])?;
            self.samples += indices.len() as f64 / self.ranks_of_loss(true);
            return Ok(());
        };
        let bytes = indices.len() as u64 * data.sample().bytes();
        // Words, which are aligned for numbers of any format.
        let mut samples = vec![0.0f32; bytes.div_ceil(Dtype::F32.bytes(1)) as usize];
        let samples = &mut bytes_of_mut(&mut samples)[..bytes as usize];
        let mut labels = vec![0; indices.len() * data.labels_each()];
        replica.draw(data, &indices, places[0], samples, &mut labels)?;
        replica.device().write_bytes(Buffer::Declared(buffer), samples)?;
        self.samples += indices.len() as f64;
        self.setup.options.observer.loaded(own);
        Ok(())
    }

    /// Loads the rank's own micro-batch.
    fn load_micro_batch(&mut self, batch: u64) -> Result<(), ExecError> {
        let mut indices = Vec::new();
        let each = self.setup.program.accumulate;
        let (worker, repetition) = (self.micro_batch / each, self.micro_batch % each);
        let place = self.setup.sampler.micro_batch(batch, worker, repetition, &mut indices);
        let data = match &self.store {
            Some(store) => {
                let own = Piece { worker, first: 0, count: self.setup.program.batch_per_rank };
                indices = store.drawn_for(batch, &[own], repetition).expect(SHUFFLED);
                store.data()
            }
            None => self.setup.data,
        };
        self.memory.replica.as_mut().expect(TRAINS).load(data, &indices, place)?;
        self.turned = Some((batch, None, self.micro_batch));
        self.samples += indices.len() as f64;
        self.setup.options.observer.loaded(self.transport.rank().0);
        Ok(())
    }

    /// Runs the forward pass of a chain, and counts the loss if it has one.
    fn run_forward(&mut self, chain: usize, in_pass: bool, batch: u64) -> Result<(), ExecError> {
        let replica = self.memory.replica.as_mut().expect(TRAINS);
        let found = replica.forward(chain, Mode::Train)?;
        if replica.is_asynchronous() && replica.is_last(chain) {
            self.deferred.expect_loss(chain, in_pass);
        }
        found.map_or(Ok(()), |loss| self.count(loss, (chain, in_pass), (self.iteration, batch)))
    }

    /// Keeps the host busy for `time`, during which messages and an asynchronous device make progress.
    fn occupy(&mut self, time: Duration) -> Result<(), ExecError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.progress()?;
        }
        Ok(())
    }

    /// Takes the labels of the current micro-batch or pass, and the samples' places among all. Every rank has the data
    /// set, so labels need no message.
    fn take_labels(&mut self, batch: u64, pass: Option<u32>) -> Result<(), ExecError> {
        let own = self.transport.rank().0;
        let (mut indices, places) = samples_of(self.setup, batch, pass, (own, self.micro_batch));
        if let Some(store) = &self.store {
            let pieces = self.setup.program.pieces(pass, own, self.micro_batch);
            indices = store.numbers_of(batch, &pieces, 0).unwrap_or(indices);
        }
        let data = self.setup.data;
        let labels = data.labels_of(&indices);
        self.memory.device().turn_to(&labels, &places)?;
        if !self.role.tasks.iter().any(|task| matches!(task.op, Op::Load { .. })) {
            self.samples += indices.len() as f64 / self.ranks_of_loss(pass.is_some());
        }
        self.turned = Some((batch, pass, self.micro_batch));
        Ok(())
    }

    /// Adds the loss of a chain to an iteration, which is step `batch` since training began. The loss is over the
    /// rank's own samples or those of a pass that all ranks share.
    pub(super) fn count(
        &mut self,
        loss: Loss,
        (chain, in_pass): (usize, bool),
        (iteration, batch): (u32, u64),
    ) -> Result<(), ExecError> {
        if !loss.sum.is_finite() {
            return Err(self.diverged(chain, batch, loss.sum));
        }
        let program = self.setup.program;
        let first = iteration as usize * program.losses_of(self.transport.rank().0);
        if let (true, Some(replica)) = (program.takes_losses_by_node(), &mut self.memory.replica) {
            let of_worker = program.batch_per_rank as usize;
            let sum = |losses: &[f64]| losses.iter().fold(0.0, |sum, loss| sum + loss);
            let all = replica.losses(chain)?;
            self.losses[first..].iter_mut().zip(all.chunks(of_worker)).for_each(|(loss, own)| *loss = sum(own));
        } else {
            // All ranks that share layers process the samples of a pass, and their sums are added up in the end.
            self.losses[first] += loss.sum / self.ranks_of_loss(in_pass);
        }
        Ok(())
    }

    /// The ranks that compute a loss together, in a pass that they share or each for itself.
    fn ranks_of_loss(&self, in_pass: bool) -> f64 {
        if in_pass { f64::from(self.setup.program.ranks_of_pass()) } else { 1.0 }
    }

    /// The error for a loss that is not finite, found in the loss chain.
    fn diverged(&mut self, loss_chain: usize, step: u64, loss: f64) -> ExecError {
        let found = self.memory.replica.as_mut().map_or(Ok(None), |replica| replica.first_not_finite());
        let found = match found {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        let spoilt = found.is_none() && self.is_asynchronous();
        let name = || self.setup.program.chain_name(found.unwrap_or(loss_chain));
        let layers = (!spoilt).then(name);
        ExecError::Diverged { rank: self.transport.rank().0, step, loss, layers }
    }
}

/// The samples of a pass of `rank` in global batch `batch`, or those of `micro_batch`, and their places among all since
/// training began.
pub(super) fn samples_of(
    setup: &Setup<'_>,
    batch: u64,
    pass: Option<u32>,
    (rank, micro_batch): (u32, u32),
) -> (Vec<u32>, Vec<u64>) {
    let Setup { program, sampler, .. } = setup;
    let (mut indices, mut places, mut of_worker) = (Vec::new(), Vec::new(), Vec::new());
    for piece in program.pieces(pass, rank, micro_batch / program.accumulate) {
        let place = sampler.micro_batch(batch, piece.worker, micro_batch % program.accumulate, &mut of_worker)
            + u64::from(piece.first);
        let range = piece.first as usize..(piece.first + piece.count) as usize;
        indices.extend_from_slice(&of_worker[range]);
        places.extend((place..).take(piece.count as usize));
    }
    (indices, places)
}
