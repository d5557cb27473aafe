//! Dropout: seeded zeros in training, nothing in evaluation. A bit for each element is kept for the backward pass.

use lockstep_exec::device::{Draw, Mode};

use super::head::Head;
use super::script::Script;
use super::{Forward, Gradients, Space, own};
use crate::table::{Draws, DropoutBackward, DropoutForward, blocks_of_draws};
use crate::{Activation, View, ViewMut};

/// The layer, and which random numbers it draws next.
pub(super) struct Dropout {
    rate: f32,
    /// Elements of a sample.
    size: u32,
    kept: ViewMut<u16>,
    draw: Draw,
    places: View<u64>,
}

impl Dropout {
    pub(super) fn new(rate: f32, size: u32, samples: u32, space: &mut dyn Space) -> Dropout {
        // As many sixteens as a sample can have a part of, wherever its numbers begin.
        let kept = own(space, u64::from(samples) * blocks_of_draws(15, size));
        Dropout { rate, size, kept, draw: Draw::default(), places: View::new(0, 0) }
    }

    /// What a kept element is multiplied with.
    fn factor(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

impl<A: Activation> Head<A> for Dropout {
    fn forward(&self, of: &Forward<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (x, y) = (of.inputs[0], of.output);
        if of.mode == Mode::Train {
            script.launch(&DropoutForward {
                x,
                places: self.places,
                y,
                kept: self.kept,
                samples,
                size: self.size,
                draws: Draws::of(&self.draw),
                below: (f64::from(self.rate) * 2f64.powi(32)) as u32,
                factor: self.factor(),
            });
        } else if x != y.view() {
            script.merge(x, y, false);
        }
    }

    fn backward(&self, of: &Gradients<'_, A>, samples: u32, script: &mut Script<'_>) {
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

    fn draw(&mut self, draw: Draw, places: View<u64>) {
        (self.draw, self.places) = (draw, places);
    }

    fn draws(&self) -> bool {
        true
    }
}
