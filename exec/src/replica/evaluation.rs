//! A replica judged on held-out data, and its batch norm's statistics computed anew.

use super::Replica;
use crate::data::{Dataset, Sampler};
use crate::device::{DeviceError, Mode};
use crate::error::ExecError;

/// How well a model does on held-out data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Samples looked at.
    pub samples: usize,
    /// Of them, those whose largest logit is the label's.
    pub correct: usize,
    /// Mean cross-entropy in nats.
    pub mean_loss: f64,
}

impl Evaluation {
    /// Share of correct samples, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }
}

impl Replica {
    /// Replaces the running statistics by their mean over an epoch of `data` in the micro-batches of this replica, with its
    /// parameters as they are (Goyal et al. 2017, §5.2, Fig. 4: "BN statistics are recomputed prior to evaluating").
    ///
    /// # Errors
    /// Fewer samples than a micro-batch, or the device's.
    pub fn recompute_statistics(&mut self, data: &Dataset) -> Result<(), ExecError> {
        if self.model.statistics_elements() == 0 {
            return Ok(());
        }
        let sampler = Sampler::new(data.len(), self.samples as u32, 1, &[1], self.seed)?;
        let mut indices = Vec::new();
        for batch in 0..sampler.batches_per_epoch() {
            let place = sampler.micro_batch(batch, 0, 0, &mut indices);
            self.load(data, &indices, place)?;
            for chain in 0..self.chains.len() - 1 {
                self.forward(chain, Mode::Statistics { batch: batch as u32 })?;
            }
        }
        self.device.release();
        Ok(())
    }

    /// Mean loss and number of correct samples over a whole data set, with the running statistics.
    ///
    /// # Errors
    /// The device's.
    pub fn evaluate(&mut self, data: &Dataset) -> Result<Evaluation, DeviceError> {
        let mut evaluation = Evaluation { samples: data.len(), correct: 0, mean_loss: 0.0 };
        let mut sum = 0.0;
        let mut next = 0;
        while next < data.len() {
            // The last batch is filled up with the first samples again, which are not counted.
            let count = self.samples.min(data.len() - next);
            let indices: Vec<u32> = (0..self.samples).map(|i| ((next + i) % data.len()) as u32).collect();
            self.load(data, &indices, 0)?;
            let last = self.chains.len() - 1;
            for chain in 0..last {
                self.forward(chain, Mode::Evaluate)?;
            }
            let logits = self.output(self.chains[last].inputs[0]);
            let found = self.device.judge(last, &logits, count)?;
            sum += found.sum;
            evaluation.correct += found.correct;
            next += count;
        }
        self.device.release();
        evaluation.mean_loss = sum / data.len() as f64;
        Ok(evaluation)
    }
}
