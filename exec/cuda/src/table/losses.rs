//! Dropout and cross-entropies: `dropout.cu`, `losses.cu` and the totals of `statistics.cu`.

use lockstep_exec::device::Draw;

use super::{Call, Entry, Launch, instances, kernels, product, symbol};
use crate::{Activation, Argument, Bf16, Geometry, Parameter, Scalar, Source, Unit, View, ViewMut};

/// Which random numbers a dropout layer draws; in the kernels `struct Draws`. The places of the samples are a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    seed: u64,
    layer: u64,
    offset: u64,
}

impl Draws {
    /// As the CPU draws.
    pub fn of(draw: &Draw) -> Draws {
        Draws { seed: draw.seed, layer: draw.layer.into(), offset: draw.offset }
    }
}

impl Parameter for Draws {
    const TYPE: &'static str = "Draws";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let numbers = [self.seed, Draw::STREAM, self.layer, self.offset];
        Argument { name, value: numbers.map(u64::to_le_bytes).concat(), tensor: None }
    }
}

/// The sixteens of random numbers that a sample of `size` elements has a part of, if its first has number `offset`.
///
/// ```
/// use lockstep_cuda::table::blocks_of_draws;
///
/// assert_eq!(blocks_of_draws(0, 16), 1);
/// assert_eq!(blocks_of_draws(15, 2), 2); // numbers 15 and 16
/// ```
pub fn blocks_of_draws(offset: u64, size: u32) -> u64 {
    (offset + u64::from(size)).div_ceil(16) - offset / 16
}

kernels! {
    /// Random zeros, and a bit for each element of the sixteens that [`blocks_of_draws`] counts: 1 if it was kept.
    DropoutForward<A> = Dropout::dropout_forward on Geometry::threads(sixteens),
        all = product([samples, size]),
        sixteens = u64::from(samples) * blocks_of_draws(draws.offset, size); {
        x: View<A>[all],
        places: View<u64>[samples.into()],
        y: ViewMut<A>[all],
        kept: ViewMut<u16>[sixteens],
        samples: u32,
        size: u32,
        draws: Draws,
        below: u32,
        factor: f32,
    }

    /// The gradient of what was kept.
    DropoutBackward<A> = Dropout::dropout_backward on Geometry::threads(sixteens),
        all = product([samples, size]), sixteens = u64::from(samples) * blocks_of_draws(offset, size); {
        d_y: View<A>[all],
        kept: View<u16>[sixteens],
        d_x: ViewMut<A>[all],
        samples: u32,
        size: u32,
        offset: u64,
        factor: f32,
        accumulate: bool,
    }

    /// Probabilities, losses in nats and the labels' ranks of a softmax; each label is below `classes`.
    SoftmaxForward<A> = Losses::softmax_forward on Geometry::warps(samples), all = product([samples, classes]); {
        logits: View<A>[all],
        labels: View<u32>[samples.into()],
        probabilities: ViewMut<f32>[all],
        losses: ViewMut<f64>[samples.into()],
        ranks: ViewMut<u32>[samples.into()],
        samples: u32,
        classes: u32,
    }

    /// Probabilities, losses in nats and the labels' ranks of independent logistic units.
    LogisticForward<A> = Losses::logistic_forward on Geometry::warps(samples), all = product([samples, classes]); {
        logits: View<A>[all],
        labels: View<u32>[samples.into()],
        probabilities: ViewMut<f32>[all],
        losses: ViewMut<f64>[samples.into()],
        ranks: ViewMut<u32>[samples.into()],
        samples: u32,
        classes: u32,
    }

    /// The sum of the losses, and how many labels come first and among the first five.
    LossTotals = Statistics::loss_totals on Geometry::blocks(1); {
        losses: View<f64>[samples.into()],
        ranks: View<u32>[samples.into()],
        totals: ViewMut<f64>[1],
        counts: ViewMut<u32>[2],
        samples: u32,
    }

    /// The gradient towards the logits.
    LossBackward<A> = Losses::loss_backward on Geometry::groups(all), all = product([samples, classes]); {
        probabilities: View<f32>[all],
        labels: View<u32>[samples.into()],
        d_logits: ViewMut<A>[all],
        samples: u32,
        classes: u32,
        scale: f32,
        accumulate: bool,
    }
}
