//! Declares the kernels of cross-entropies: `losses.cu` and the totals of `statistics.cu`.

use super::{LOSSES, STATISTICS};
use crate::kernel::{kernels, product};
use crate::{Geometry, View, ViewMut};

kernels! {
    /// Probabilities, losses in nats and the labels' ranks of a softmax; each label is below `classes`.
    SoftmaxForward<A> = LOSSES::softmax_forward on Geometry::warps(samples), all = product([samples, classes]); {
        logits: View<A>[all],
        labels: View<u32>[samples.into()],
        probabilities: ViewMut<f32>[all],
        losses: ViewMut<f64>[samples.into()],
        ranks: ViewMut<u32>[samples.into()],
        samples: u32,
        classes: u32,
    }

    /// Probabilities, losses in nats and the labels' ranks of independent logistic units.
    LogisticForward<A> = LOSSES::logistic_forward on Geometry::warps(samples), all = product([samples, classes]); {
        logits: View<A>[all],
        labels: View<u32>[samples.into()],
        probabilities: ViewMut<f32>[all],
        losses: ViewMut<f64>[samples.into()],
        ranks: ViewMut<u32>[samples.into()],
        samples: u32,
        classes: u32,
    }

    /// The sum of the losses, and the number of labels with rank 0 and with rank below five.
    LossTotals = STATISTICS::loss_totals on Geometry::blocks(1); {
        losses: View<f64>[samples.into()],
        ranks: View<u32>[samples.into()],
        totals: ViewMut<f64>[1],
        counts: ViewMut<u32>[2],
        samples: u32,
    }

    /// The gradient of the logits.
    LossBackward<A> = LOSSES::loss_backward on Geometry::groups(all), all = product([samples, classes]); {
        probabilities: View<f32>[all],
        labels: View<u32>[samples.into()],
        d_logits: ViewMut<A>[all],
        samples: u32,
        classes: u32,
        scale: f32,
        accumulate: bool,
    }
}
