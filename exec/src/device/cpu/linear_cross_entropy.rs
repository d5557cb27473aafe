//! Computes the output layer with its cross-entropy: losses and gradients in one pass.

use lockstep_models::{IGNORED_LABEL, LinearCrossEntropy as Layer};

use super::Loss;
use super::linear_scores::{LinearScores, Written};
use super::loss::counted;
use super::row_sums::{Row, RowGradient};
use super::threads::Threads;
use crate::workspace::Workspace;

/// The loss of each row's scores, for samples of a fixed number of rows.
pub struct LinearCrossEntropy {
    scores: LinearScores,
    classes: usize,
    /// Rows of a sample, whose loss is the mean over those that count.
    each: usize,
    labels: Vec<u32>,
    /// By sample.
    losses: Vec<f64>,
}

impl LinearCrossEntropy {
    /// The loss of `layer`, whose inputs have `features` at each of the `each` positions of a sample.
    pub fn new(layer: &Layer, features: usize, each: usize, threads: &Threads) -> LinearCrossEntropy {
        LinearCrossEntropy::of(LinearScores::new(layer, features, threads), layer, each)
    }

    /// The loss of a layer with these scores.
    pub(super) fn of(scores: LinearScores, layer: &Layer, each: usize) -> LinearCrossEntropy {
        let classes = layer.out_features as usize;
        LinearCrossEntropy { scores, classes, each, labels: Vec::new(), losses: Vec::new() }
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
                IGNORED_LABEL => RowGradient { shift: None, factor: 0.0, of_label: 0.0, label: None },
                label => RowGradient { shift: None, factor, of_label: -factor, label: Some(label as usize) },
            };
            labels.iter().map(of_row).collect::<Vec<_>>()
        };
        let asked: Vec<RowGradient> = self.labels.chunks_exact(self.each).flat_map(of_sample).collect();
        let written = Written { d_input, d_parameters };
        let found = self.scores.run(operands, self.classes, &asked, written, workspace);
        let samples = found.chunks_exact(self.each).zip(self.labels.chunks_exact(self.each));
        let loss = |row: &Row| row.of_label.map_or(0.0, |score| f64::from(row.most) + row.sum.ln() - f64::from(score));
        let mean = |(rows, labels): (&[Row], &[u32])| rows.iter().map(loss).sum::<f64>() / counted(labels) as f64;
        self.losses = samples.map(mean).collect();
        Loss { sum: self.losses.iter().sum(), correct: found.iter().filter(|row| row.is_best).count() }
    }

    /// Bytes of workspace needed for a batch of `samples`; `adds`: whether the parameters' gradient is added to what is there.
    pub fn workspace_bytes(&self, samples: usize, adds: bool) -> usize {
        self.scores.workspace_bytes(samples * self.each) + if adds { self.scores.added_bytes() } else { 0 }
    }
}
