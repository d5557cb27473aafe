//! Multiplies two inputs; sides of the second that are 1 are repeated. A thread processes a sample.

use lockstep_models::{ImageShape, Layer, Shape};

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted};
use crate::simd::{put, sum_pairs, wide};
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (Layer::Product, [first, second]) = (of.layer, of.inputs) else { return None };
    // Of sequences, which have one shape, each position is a row.
    let row = |shape: &Shape| ImageShape { channels: 1, height: 1, width: shape.features() };
    let [first, second] = [first, second].map(|shape| shape.as_image().unwrap_or_else(|| row(shape)));
    Some(Box::new(Product { first, second, threads: of.threads.clone() }))
}

/// `y = a · b`, b repeated.
struct Product {
    first: ImageShape,
    second: ImageShape,
    threads: Threads,
}

impl Product {
    /// Calls `work` with every row of the first factor in a sample, and the row, or the one element, of the second.
    #[inline(always)]
    fn each_row(&self, mut work: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>)) {
        let (first, second) = (self.first, self.second);
        let own = |at: u32, size: u32| if size == 1 { 0 } else { at as usize };
        let width = first.width as usize;
        for channel in 0..first.channels {
            for row in 0..first.height {
                let start = (channel as usize * first.height as usize + row as usize) * width;
                let line = own(channel, second.channels) * second.height as usize + own(row, second.height);
                let other = line * second.width as usize;
                work(start..start + width, other..other + second.width as usize);
            }
        }
    }
}

impl Head for Product {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (all, one) = (self.first.elements() as usize, self.second.elements() as usize);
        let (a, b) = (of.inputs[0], of.inputs[1]);
        self.threads.each_chunk(of.output, all, |_, range, output| {
            let (a, b) = (&a[range.clone()], &b[range.start / all * one..][..one]);
            wide!(self.each_row(|row, other| {
                let (output, a) = (&mut output[row.clone()], &a[row]);
                match &b[other] {
                    [b] => output.iter_mut().zip(a).for_each(|(y, a)| *y = a * b),
                    b => output.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a * b),
                }
            }));
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (all, one) = (self.first.elements() as usize, self.second.elements() as usize);
        let (a, b, d) = (of.inputs[0], of.inputs[1], of.d_output);
        let [d_first, d_second] = of.d_inputs else { return };
        if let Some((d_first, accumulate)) = d_first {
            self.threads.each_chunk(d_first, all, |_, range, d_first| {
                let (d, b) = (&d[range.clone()], &b[range.start / all * one..][..one]);
                wide!(self.each_row(|row, other| {
                    let (target, d) = (&mut d_first[row.clone()], &d[row]);
                    match &b[other] {
                        [b] => put(target, *accumulate, d.iter().map(|d| d * b)),
                        b => put(target, *accumulate, d.iter().zip(b).map(|(d, b)| d * b)),
                    }
                }));
            });
        }
        let Some((d_second, accumulate)) = d_second else { return };
        let [scratch] = workspace.parts([self.threads.count() * one]);
        let scratch = Disjoint::new(scratch);
        self.threads.each_chunk(d_second, one, |worker, range, d_second| {
            let sample = range.start / one;
            let (a, d) = (&a[sample * all..][..all], &d[sample * all..][..all]);
            // SAFETY: a worker's scratch is its own.
            let sums = unsafe { scratch.part(worker * one..(worker + 1) * one) };
            sums.fill(0.0);
            wide!(self.each_row(|row, other| {
                let (a, d) = (&a[row.clone()], &d[row]);
                match &mut sums[other] {
                    [sum] => *sum += sum_pairs(a, d, |a, d| a * d),
                    sums => sums.iter_mut().zip(a).zip(d).for_each(|((sum, a), d)| *sum += a * d),
                }
            }));
            merge(d_second, sums, *accumulate);
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * self.second.elements() as usize])
    }
}
