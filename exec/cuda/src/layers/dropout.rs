//! Lowers dropout: seeded zeros in training, nothing in evaluation. A bit per element is kept for the backward pass.

use lockstep_exec::device::{Draw, Mode};
use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients, own};
use super::script::{Script, count};
use crate::kernel::{KernelSource, kernels, product, source};
use crate::{Activation, Argument, Geometry, ToArgument, View, ViewMut};

const SOURCE: KernelSource = source!("dropout.cu");

impl ToArgument for Draw {
    const TYPE: &'static str = "Draws";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let numbers = [self.seed, Draw::STREAM, self.layer.into(), self.offset];
        Argument { name, value: numbers.map(u64::to_le_bytes).concat(), tensor: None }
    }
}

/// The number of blocks of sixteen random numbers that a sample of `size` elements overlaps, if its first has number
/// `offset`.
///
/// ```
/// use lockstep_cuda::layers::kernels::blocks_of_draws;
///
/// assert_eq!(blocks_of_draws(0, 16), 1);
/// assert_eq!(blocks_of_draws(15, 2), 2); // numbers 15 and 16
/// ```
pub fn blocks_of_draws(offset: u64, size: u32) -> u64 {
    (offset + u64::from(size)).div_ceil(16) - offset / 16
}

kernels! {
    /// Random zeros, and a bit for each element of the blocks that [`blocks_of_draws`] counts: 1 if it was kept.
    DropoutForward<A> = SOURCE::dropout_forward on Geometry::threads(sixteens),
        all = product([samples, size]),
        sixteens = u64::from(samples) * blocks_of_draws(draws.offset, size); {
        x: View<A>[all],
        places: View<u64>[samples.into()],
        y: ViewMut<A>[all],
        kept: ViewMut<u16>[sixteens],
        samples: u32,
        size: u32,
        draws: Draw,
        below: u32,
        factor: f32,
    }

    /// The gradient of kept elements.
    DropoutBackward<A> = SOURCE::dropout_backward on Geometry::threads(sixteens),
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
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Dropout(layer) = of.layer else { return None };
    let size = count(of.inputs[0].elements());
    // The most blocks that a sample can overlap, whatever its offset.
    let kept = own(of.space, u64::from(of.samples) * blocks_of_draws(15, size));
    Some(Box::new(Dropout { rate: layer.rate, size, kept, draw: Draw::default(), places: View::new(0, 0) }))
}

/// The layer, and the random numbers that it draws next.
struct Dropout {
    rate: f32,
    /// Elements of a sample.
    size: u32,
    kept: ViewMut<u16>,
    draw: Draw,
    places: View<u64>,
}

impl Dropout {
    /// The factor of kept elements.
    fn factor(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

impl<A: Activation> Head<A> for Dropout {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (x, y) = (of.inputs[0], of.output);
        if matches!(of.mode, Mode::Train | Mode::Recompute) {
            script.launch(&DropoutForward {
                x,
                places: self.places,
                y,
                kept: self.kept,
                samples,
                size: self.size,
                draws: self.draw,
                below: (f64::from(self.rate) * 2f64.powi(32)) as u32,
                factor: self.factor(),
            });
        } else if x != y.view() {
            script.merge(x, y, false);
        }
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        script.launch(&DropoutBackward {
            d_y: of.d_output,
            kept: self.kept.view(),
            d_x,
            samples,
            size: self.size,
            offset: self.draw.offset,
            factor: self.factor(),
            accumulate,
        });
    }

    /// Rows of sequences are not split on GPUs, which lack their layers.
    fn draw(&mut self, draw: Draw, places: View<u64>) {
        assert!(draw.row == 0, "features of positions are not drawn on GPUs");
        (self.draw, self.places) = (draw, places);
    }

    fn draws(&self) -> bool {
        true
    }
}
