//! Computes dropout (Srivastava et al. 2014): seeded zeros in training, nothing in evaluation.
//!
//! Each sample draws from a stream of its own, selected by seed, layer and the sample's place in the run, so the
//! dropped elements do not depend on the sample's rank or micro-batch, nor on threads.

use lockstep_data::random::{Purpose, stream_within};
use lockstep_models::Layer;
use rand_chacha::rand_core::Rng;

use super::threads::{Disjoint, Threads};
use super::{Draw, Forward, Gradients, Head, Mode, Wanted, only, size};
use crate::simd::put;
use crate::workspace::Workspace;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Dropout(layer) = of.layer else { return None };
    let (rate, size, threads) = (layer.rate, size(of.input()), of.threads.clone());
    let rows = of.input().rows() as usize;
    Some(Box::new(Dropout { rate, size, rows, threads, draw: Draw::default(), places: Vec::new(), kept: Vec::new() }))
}

/// The layer and what it kept in the last training pass.
struct Dropout {
    rate: f32,
    /// Elements of a sample.
    size: usize,
    /// Rows of a sample that have all of its features.
    rows: usize,
    threads: Threads,
    draw: Draw,
    /// Places of the samples, where they are not consecutive.
    places: Vec<u64>,
    /// Per element: 1 if it was kept.
    kept: Vec<u8>,
}

impl Dropout {
    /// The factor of kept elements.
    fn factor(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

impl Head for Dropout {
    /// Drops an element if its 32 random bits, as a number, are below rate · 2³².
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let Forward { mode, output, .. } = of;
        let input = of.inputs[0];
        if !matches!(mode, Mode::Train | Mode::Recompute) {
            if !input.is_empty() {
                output.copy_from_slice(input);
            }
            return;
        }
        let (size, factor, draw) = (self.size, self.factor(), self.draw);
        let row = if draw.row == 0 { size } else { size / self.rows };
        let below = (f64::from(self.rate) * 2f64.powi(32)) as u32;
        self.kept.resize(self.kept.len().max(output.len()), 1);
        let places = &self.places;
        let kept = Disjoint::new(&mut self.kept);
        self.threads.each_chunk(output, size, |_, range, output| {
            let sample = range.start / size;
            // SAFETY: one sample per chunk.
            let kept = unsafe { kept.part(range.clone()) };
            let place = places.get(sample).copied().unwrap_or(draw.first + sample as u64);
            let mut random = stream_within(draw.seed, Purpose::Dropout, place, draw.layer.into());
            if !input.is_empty() {
                output.copy_from_slice(&input[range]);
            }
            for (number, (row, kept)) in output.chunks_mut(row).zip(kept.chunks_mut(row)).enumerate() {
                random.set_word_pos((draw.offset + number as u64 * draw.row).into());
                for (y, kept) in row.iter_mut().zip(kept) {
                    *kept = u8::from(random.next_u32() >= below);
                    *y = if *kept == 1 { factor * *y } else { 0.0 };
                }
            }
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let (size, factor, kept) = (self.size, self.factor(), &self.kept);
        self.threads.each_chunk(d_input, size, |_, range, d_input| {
            let all = of.d_output[range.clone()].iter().zip(&kept[range]);
            put(d_input, accumulate, all.map(|(d, kept)| if *kept == 1 { factor * *d } else { 0.0 }));
        });
    }

    fn draw(&mut self, draw: Draw, places: &[u64]) {
        self.draw = draw;
        self.places.clear();
        self.places.extend_from_slice(places);
    }
}
