//! Turns pairs of features of each head by angles that grow with the position. A thread takes some of the positions.

use lockstep_models::{Layer, Rotary as RotaryLayer, RotaryPairing};

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::wide;
use crate::workspace::{Workspace, bytes};

/// Positions that a thread takes at once.
const ROWS: usize = 16;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Rotary(layer) = of.layer else { return None };
    let width = of.input().features() / layer.heads;
    Some(Box::new(Rotary {
        features: of.channels(),
        width: width as usize,
        turned: layer.turned(width) as usize,
        positions: of.input().places() as usize,
        layer: layer.clone(),
        threads: of.threads.clone(),
        angles: Vec::new(),
    }))
}

/// The pair (a, b) becomes (a · cos − b · sin, b · cos + a · sin).
struct Rotary {
    features: usize,
    /// Features of a head, and how many of them are turned.
    width: usize,
    turned: usize,
    positions: usize,
    layer: RotaryLayer,
    threads: Threads,
    /// Of each position: the cosines of its pairs, then their sines; empty before the first pass.
    angles: Vec<f32>,
}

impl Rotary {
    /// Computes the angles in 64 bits: those of late positions have few digits left in 32.
    fn angles(&self) -> Vec<f32> {
        let (frequencies, magnitude) = (self.layer.frequencies(self.width as u32), self.layer.magnitude());
        let mut angles = Vec::with_capacity(self.positions * self.turned);
        for position in 0..self.positions {
            let of = |turn: fn(f64) -> f64| {
                frequencies.iter().map(move |frequency| (magnitude * turn(position as f64 * frequency)) as f32)
            };
            angles.extend(of(f64::cos).chain(of(f64::sin)));
        }
        angles
    }

    /// Turns a row of heads, or with −1 turns it back.
    #[inline(always)]
    fn turn(&self, row: &mut [f32], angles: &[f32], sign: f32) {
        let (cosines, sines) = angles.split_at(self.turned / 2);
        for head in row.chunks_exact_mut(self.width) {
            let head = &mut head[..self.turned];
            let turned = |a: f32, b: f32, cosine: f32, sine: f32| {
                (a * cosine - b * (sign * sine), b * cosine + a * (sign * sine))
            };
            match self.layer.pairing {
                RotaryPairing::Halves => {
                    let (first, second) = head.split_at_mut(self.turned / 2);
                    let pairs = first.iter_mut().zip(second).zip(cosines.iter().zip(sines));
                    pairs.for_each(|((a, b), (cosine, sine))| (*a, *b) = turned(*a, *b, *cosine, *sine));
                }
                RotaryPairing::Neighbours => {
                    let pairs = head.as_chunks_mut::<2>().0.iter_mut().zip(cosines.iter().zip(sines));
                    pairs.for_each(|([a, b], (cosine, sine))| (*a, *b) = turned(*a, *b, *cosine, *sine));
                }
            }
        }
    }

    fn angles_of(&self, row: usize) -> &[f32] {
        let position = row % self.positions;
        &self.angles[position * self.turned..(position + 1) * self.turned]
    }
}

impl Head for Rotary {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        if self.angles.is_empty() {
            self.angles = self.angles();
        }
        let (features, input, this) = (self.features, of.inputs[0], &*self);
        self.threads.each_chunk(of.output, ROWS * features, |_, range, output| {
            if !input.is_empty() {
                output.copy_from_slice(&input[range.clone()]);
            }
            let first = range.start / features;
            let rows = output.chunks_exact_mut(features).enumerate();
            wide!(rows.for_each(|(at, row)| this.turn(row, this.angles_of(first + at), 1.0)));
        });
    }

    /// Turns gradients back.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let (features, this) = (self.features, &*self);
        let [scratch] = workspace.parts([self.threads.count() * features]);
        let scratch = Disjoint::new(scratch);
        self.threads.each_chunk(d_input, ROWS * features, |worker, range, d_input| {
            // SAFETY: a worker's scratch is its own.
            let turned = unsafe { scratch.part(worker * features..(worker + 1) * features) };
            let first = range.start / features;
            let rows = d_input.chunks_exact_mut(features).zip(of.d_output[range].chunks_exact(features));
            for (at, (target, d)) in rows.enumerate() {
                turned.copy_from_slice(d);
                wide!(this.turn(turned, this.angles_of(first + at), -1.0));
                merge(target, turned, accumulate);
            }
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * self.features])
    }
}
