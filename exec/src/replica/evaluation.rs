//! Evaluates a replica on held-out data and recomputes its batch norm statistics.

use lockstep_data::{Dataset, Sampler};
use lockstep_topology::InputError;

use super::Replica;
use crate::device::{DeviceError, Loss, Mode};
use crate::error::ExecError;

/// Accuracy and loss of a model on held-out data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Answers judged: one for each sample, or for each position of one.
    pub samples: usize,
    /// Answers whose largest logit is the label's.
    pub correct: usize,
    /// Mean cross-entropy in nats.
    pub mean_loss: f64,
}

impl Evaluation {
    /// An empty evaluation, before the first sample of `data`.
    pub(crate) fn of(data: &Dataset) -> Evaluation {
        Evaluation { samples: data.len() * data.labels_each().max(1), correct: 0, mean_loss: 0.0 }
    }

    /// Fraction of correct answers, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }
}

impl Replica {
    /// Replaces the running statistics by their mean over an epoch of `data`, in this replica's micro-batches and with
    /// its current parameters (Goyal et al. 2017, §5.2, Fig. 4: "BN statistics are recomputed prior to evaluating").
    ///
    /// # Errors
    /// Fewer samples than a micro-batch, or a device error.
    pub fn recompute_statistics(&mut self, data: &Dataset) -> Result<(), ExecError> {
        if self.model.statistics_elements() == 0 {
            return Ok(());
        }
        let sampler = self.sampler_for_statistics(data)?;
        for batch in 0..sampler.batches_per_epoch() as u32 {
            self.load_for_statistics(data, &sampler, batch)?;
            for chain in 0..self.chains.len() - 1 {
                self.forward(chain, Mode::Statistics { batch })?;
            }
        }
        self.device.release();
        Ok(())
    }

    /// The order in which statistics are computed over `data`.
    ///
    /// # Errors
    /// Fewer samples than a micro-batch.
    pub(crate) fn sampler_for_statistics(&self, data: &Dataset) -> Result<Sampler, InputError> {
        Sampler::new(data.len(), self.samples as u32, 1, &[1], self.seed)
    }

    /// Loads a micro-batch of an epoch of `data` in the order of `sampler`.
    ///
    /// # Errors
    /// Device errors, and damaged samples.
    pub(crate) fn load_for_statistics(
        &mut self,
        data: &Dataset,
        sampler: &Sampler,
        batch: u32,
    ) -> Result<(), ExecError> {
        let mut indices = Vec::new();
        let place = sampler.micro_batch(u64::from(batch), 0, 0, &mut indices);
        self.load(data, &indices, place)
    }

    /// Mean loss and number of correct samples over a whole data set, with the running statistics.
    ///
    /// # Errors
    /// Device errors, and damaged samples.
    pub fn evaluate(&mut self, data: &Dataset) -> Result<Evaluation, ExecError> {
        let mut evaluation = Evaluation::of(data);
        for micro_batch in 0..data.len().div_ceil(self.samples) as u32 {
            self.load_held_out(data, micro_batch)?;
            for chain in 0..self.chains.len() {
                self.evaluate_batch(chain, data, micro_batch, &mut evaluation)?;
            }
        }
        self.device.release();
        Ok(evaluation)
    }

    /// Loads a micro-batch of held-out samples; the last one is padded with the first samples again, which are not
    /// counted.
    ///
    /// # Errors
    /// Device errors, and damaged samples.
    pub(crate) fn load_held_out(&mut self, data: &Dataset, micro_batch: u32) -> Result<(), ExecError> {
        let first = micro_batch as usize * self.samples;
        let indices: Vec<u32> = (first..first + self.samples).map(|index| (index % data.len()) as u32).collect();
        self.load(data, &indices, 0)
    }

    /// Runs a chain forward on held-out samples; the last chain of the model adds their losses to the evaluation.
    ///
    /// # Errors
    /// Device errors, and damaged samples.
    pub(crate) fn evaluate_batch(
        &mut self,
        chain: usize,
        data: &Dataset,
        micro_batch: u32,
        evaluation: &mut Evaluation,
    ) -> Result<(), ExecError> {
        if !self.is_last(chain) {
            self.forward(chain, Mode::Evaluate)?;
            return Ok(());
        }
        let left = data.len() - micro_batch as usize * self.samples;
        let found = self.judge(chain, self.samples.min(left))?;
        evaluation.correct += found.correct;
        // Losses are summed first and divided once.
        evaluation.mean_loss += found.sum;
        if left <= self.samples {
            evaluation.mean_loss /= data.len() as f64;
        }
        Ok(())
    }

    /// The loss that a loss chain finds of the first `samples` of the micro-batch, without a backward pass.
    pub(super) fn judge(&mut self, chain: usize, samples: usize) -> Result<Loss, DeviceError> {
        let input = self.output(self.chains[chain].inputs[0]);
        self.device.evaluate(chain, &input, samples)
    }
}
