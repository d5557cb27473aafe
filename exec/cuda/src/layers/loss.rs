//! Lowers cross-entropies against labels, the end of every model.

use lockstep_models::Layer;

use super::pass::{Allocator, own};
use super::script::{Script, count};
use crate::table::{LogisticForward, LossBackward, LossTotals, SoftmaxForward};
use crate::{Activation, Command, View, ViewMut};

/// Cross-entropy over `classes`; keeps the probabilities for the backward pass, and its results until they are fetched.
pub struct CrossEntropyKernels {
    softmax: bool,
    classes: u32,
    probabilities: ViewMut<f32>,
    losses: ViewMut<f64>,
    ranks: ViewMut<u32>,
    totals: ViewMut<f64>,
    counts: ViewMut<u32>,
    /// Labels of the last forward pass.
    labels: View<u32>,
    /// Labels of a sample, over which its loss is the mean.
    each: u32,
}

impl CrossEntropyKernels {
    /// The loss of `layer`, for batches of up to `samples`.
    ///
    /// # Panics
    /// When the layer is not a loss.
    pub fn new(layer: &Layer, classes: u32, samples: u32, space: &mut dyn Allocator) -> CrossEntropyKernels {
        CrossEntropyKernels::of_labels(layer, classes, (samples, 1), space)
    }

    /// The same with `each` labels for each sample, whose loss is their mean.
    ///
    /// # Panics
    /// As there.
    pub fn of_labels(
        layer: &Layer,
        classes: u32,
        (samples, each): (u32, u32),
        space: &mut dyn Allocator,
    ) -> CrossEntropyKernels {
        let softmax = match layer {
            Layer::SoftmaxCrossEntropy => true,
            Layer::LogisticCrossEntropy => false,
            other => panic!("{} is not a loss", other.kind()),
        };
        let rows = u64::from(samples) * u64::from(each);
        CrossEntropyKernels {
            softmax,
            classes,
            probabilities: own(space, rows * u64::from(classes)),
            losses: own(space, rows),
            ranks: own(space, rows),
            totals: own(space, 1),
            counts: own(space, 2),
            labels: View::new(0, 0),
            each,
        }
    }

    /// `logits` is `[samples, …, classes]`, with a label for each row; each is below `classes`, and labels must stay in place until the
    /// backward pass has run.
    pub fn forward<A: Activation>(&mut self, logits: View<A>, labels: View<u32>, into: &mut Vec<Command>) {
        let &mut CrossEntropyKernels { classes, probabilities, losses, ranks, totals, counts, .. } = self;
        let samples = count(labels.elements());
        assert_eq!(logits.elements(), labels.elements() * u64::from(classes), "one label per row of scores");
        self.labels = labels;
        let mut script = Script::new(into, 0);
        if self.softmax {
            script.launch(&SoftmaxForward { logits, labels, probabilities, losses, ranks, samples, classes });
        } else {
            script.launch(&LogisticForward { logits, labels, probabilities, losses, ranks, samples, classes });
        }
        let (losses, ranks) = (losses.view(), ranks.view());
        script.launch(&LossTotals { losses, ranks, totals, counts, samples });
    }

    /// The gradient of `scale · Σ losses` of the last forward pass with respect to its logits; `scale` is 1 / (samples
    /// of the global batch). Adds to `d_logits` when `accumulate`.
    pub fn backward<A: Activation>(&self, scale: f32, d_logits: ViewMut<A>, accumulate: bool, into: &mut Vec<Command>) {
        let &CrossEntropyKernels { classes, labels, .. } = self;
        let (probabilities, samples) = (self.probabilities.view(), count(labels.elements()));
        assert_eq!(
            d_logits.elements(),
            labels.elements() * u64::from(classes),
            "the gradient of the last forward pass"
        );
        let scale = scale / self.each as f32;
        let launch = LossBackward { probabilities, labels, d_logits, samples, classes, scale, accumulate };
        Script::new(into, 0).launch(&launch);
    }

    /// Σ −ln p(label) over the labels of the last forward pass, in nats: one number.
    pub fn totals(&self) -> View<f64> {
        self.totals.view()
    }

    /// The numbers of these samples whose label has the largest logit (the first of equals counts), and one of the five
    /// largest.
    pub fn counts(&self) -> View<u32> {
        self.counts.view()
    }

    /// Labels of a sample.
    pub fn labels_each(&self) -> u32 {
        self.each
    }

    /// The losses by label, in nats.
    pub fn losses(&self) -> View<f64> {
        self.losses.view().part(0..self.labels.elements())
    }
}
