//! Computes the output layer with its cross-entropy. Forward passes keep the logarithm of each row's sum of exponentials.

use lockstep_models::{IGNORED_LABEL, LinearCrossEntropy as Layer};

use super::Loss;
use super::linear_scores::{LinearScores, RowGradient, Written};
use super::loss::counted;
use super::threads::Threads;
use crate::workspace::Workspace;

/// Scores of each row and their loss, for batches of up to a fixed number of samples.
pub struct LinearCrossEntropy {
    scores: LinearScores,
    classes: usize,
    /// Rows of a sample, whose loss is the mean over those that count.
    each: usize,
    labels: Vec<u32>,
    /// By row: the logarithm of the sum of the exponentials of its scores.
    sums: Vec<f32>,
    /// By sample.
    losses: Vec<f64>,
}

impl LinearCrossEntropy {
    /// The loss of `layer`, whose inputs have `features` at each of the `each` positions of a sample.
    pub fn new(layer: &Layer, features: usize, samples: usize, each: usize, threads: &Threads) -> LinearCrossEntropy {
        LinearCrossEntropy::of(LinearScores::new(layer, features, samples * each, threads), layer, each)
    }

    /// The loss of a layer with these scores.
    pub(super) fn of(scores: LinearScores, layer: &Layer, each: usize) -> LinearCrossEntropy {
        let classes = layer.out_features as usize;
        LinearCrossEntropy { scores, classes, each, labels: Vec::new(), sums: Vec::new(), losses: Vec::new() }
    }

    /// Computes the loss of the rows of `input`, `[samples, …, features]`, with a label for each: a class, or [`IGNORED_LABEL`].
    /// `parameters`: the weight, `[classes, features]`, then the bias if there is one.
    pub fn forward(&mut self, input: &[f32], parameters: &[f32], labels: &[u32], workspace: &mut Workspace) -> Loss {
        let wanted: Vec<Option<usize>> = labels.iter().map(|label| class(*label)).collect();
        let found = self.scores.forward((input, parameters), self.classes, &wanted, workspace);
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.sums.clear();
        self.sums.extend(found.iter().map(|row| (f64::from(row.most) + row.sum.ln()) as f32));
        self.losses.clear();
        let mut loss = Loss::default();
        for (found, labels) in found.chunks_exact(self.each).zip(labels.chunks_exact(self.each)) {
            let mut of_sample = 0.0;
            for (row, label) in found.iter().zip(labels) {
                let Some(label) = class(*label) else { continue };
                let of_label = row.of_label.unwrap_or(f32::NEG_INFINITY);
                of_sample += f64::from(row.most) + row.sum.ln() - f64::from(of_label);
                loss.correct += usize::from(row.best == label && of_label == row.most);
            }
            let of_sample = of_sample / counted(labels) as f64;
            loss.sum += of_sample;
            self.losses.push(of_sample);
        }
        loss
    }

    /// The losses of the last forward pass by sample, in nats.
    pub fn losses(&self) -> Vec<f64> {
        self.losses.clone()
    }

    /// Computes the gradients that are requested of `scale · Σ losses`, of the last forward pass on the same `input` and
    /// `parameters`; each is added to what is there if its flag says so. `scale` is 1 / (samples of the global batch).
    pub fn backward(
        &self,
        scale: f32,
        operands: (&[f32], &[f32]),
        d_input: Option<(&mut [f32], bool)>,
        d_parameters: Option<(&mut [f32], bool)>,
        workspace: &mut Workspace,
    ) {
        let samples = self.labels.chunks_exact(self.each).zip(self.sums.chunks_exact(self.each));
        let of_sample = |(labels, sums): (&[u32], &[f32])| {
            let factor = scale / counted(labels) as f32;
            let of_row = |(label, sum): (&u32, &f32)| match class(*label) {
                Some(label) => RowGradient { shift: *sum, factor, of_label: -factor, label: Some(label) },
                None => RowGradient::default(),
            };
            labels.iter().zip(sums).map(of_row).collect::<Vec<_>>()
        };
        let gradients: Vec<RowGradient> = samples.flat_map(of_sample).collect();
        let written = Written { d_input, d_parameters };
        self.scores.backward(operands, self.classes, &gradients, written, workspace);
    }

    /// Bytes of workspace needed for a batch of `samples`.
    pub fn workspace_bytes(&self, samples: usize) -> usize {
        self.scores.workspace_bytes(samples * self.each)
    }
}

/// The class of a label; `None` where it does not count.
fn class(label: u32) -> Option<usize> {
    (label != IGNORED_LABEL).then_some(label as usize)
}
