//! Computes the output layer with its cross-entropy: losses and gradients in one pass.

use lockstep_models::{IGNORED_LABEL, LinearCrossEntropy as Layer};

use super::Loss;
use super::linear_one_pass::LinearOnePass;
use super::linear_scores::Written;
use super::loss::counted;
use super::row_sums::{RowLabel, RowLoss};
use super::threads::Threads;
use crate::workspace::Workspace;

/// The loss of each row's scores, for samples of a fixed number of rows.
pub struct LinearCrossEntropy {
    scores: LinearOnePass,
    /// Rows of a sample, whose loss is the mean over those that count.
    each: usize,
    labels: Vec<u32>,
    /// By sample.
    losses: Vec<f64>,
}

impl LinearCrossEntropy {
    /// The loss of `layer`, whose inputs have `features` at each of the `each` positions of a sample.
    pub fn new(layer: &Layer, features: usize, each: usize, threads: &Threads) -> LinearCrossEntropy {
        LinearCrossEntropy::of(LinearOnePass::new(layer, features, threads), each)
    }

    /// The loss of a layer with these scores.
    pub(super) fn of(scores: LinearOnePass, each: usize) -> LinearCrossEntropy {
        LinearCrossEntropy { scores, each, labels: Vec::new(), losses: Vec::new() }
    }

    /// Takes the labels of the next [`LinearCrossEntropy::backward`], one for each row: a class, or [`IGNORED_LABEL`].
    pub fn take_labels(&mut self, labels: &[u32]) {
        self.labels.clear();
        self.labels.extend_from_slice(labels);
    }

    /// Computes the loss of the rows of `input`, `[samples, …, features]`, with a label for each.
    /// `parameters`: the weight, `[classes, features]`, then the bias if there is one.
    pub fn loss(&mut self, input: &[f32], parameters: &[f32], labels: &[u32], workspace: &mut Workspace) -> Loss {
        self.take_labels(labels);
        self.backward(0.0, (input, parameters), None, None, workspace)
    }

    /// The losses of the last pass by sample, in nats.
    pub fn losses(&self) -> Vec<f64> {
        self.losses.clone()
    }

    /// Computes the loss of the rows of `input`, and the gradients that are requested of `scale · Σ losses`; each is added to what is
    /// there if its flag says so. `scale` is 1 / (samples of the global batch). Labels are those that were taken.
    pub fn backward(
        &mut self,
        scale: f32,
        operands: (&[f32], &[f32]),
        d_input: Option<(&mut [f32], bool)>,
        d_parameters: Option<(&mut [f32], bool)>,
        workspace: &mut Workspace,
    ) -> Loss {
        let of_sample = |labels: &[u32]| {
            let factor = scale / counted(labels) as f32;
            let of_row = |label: &u32| match *label {
                IGNORED_LABEL => RowLabel::default(),
                label => RowLabel { label: Some(label as usize), factor },
            };
            labels.iter().map(of_row).collect::<Vec<_>>()
        };
        let labels: Vec<RowLabel> = self.labels.chunks_exact(self.each).flat_map(of_sample).collect();
        let written = Written { d_input, d_parameters };
        let found = self.scores.run(operands, &labels, written, workspace);
        let samples = found.chunks_exact(self.each).zip(self.labels.chunks_exact(self.each));
        let mean = |(rows, labels): (&[RowLoss], &[u32])| {
            rows.iter().map(|row| row.loss).sum::<f64>() / counted(labels) as f64
        };
        self.losses = samples.map(mean).collect();
        Loss { sum: self.losses.iter().sum(), correct: found.iter().filter(|row| row.correct).count() }
    }

    /// Bytes of workspace needed for a batch of `samples`; `adds`: whether the parameters' gradient is added to what is there.
    pub fn workspace_bytes(&self, samples: usize, adds: bool) -> usize {
        self.scores.workspace_bytes(samples * self.each, adds)
    }
}
