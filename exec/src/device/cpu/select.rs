//! Copies some channels of an image, in order or shuffled, and copies an image into a border of zeros.

use lockstep_models::{Border, Layer, Select, Shape};

use super::elementwise::merge;
use super::threads::Threads;
use super::{Forward, Gradients, Head, Wanted, only, size};
use crate::workspace::Workspace;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (input, output, threads) = (of.input(), of.output, of.threads.clone());
    let rows = match of.layer {
        Layer::Select(select) => Rows::Channels(select.clone()),
        Layer::Border(border) if !border.reflect => Rows::Inside(border.clone()),
        _ => return None,
    };
    Some(Box::new(Moved { input, output, rows, threads }))
}

/// What is copied.
enum Rows {
    /// Whole planes.
    Channels(Select),
    /// Rows of each plane, to the inside of the border.
    Inside(Border),
}

/// Pieces of the input, moved to their places in the output.
struct Moved {
    input: Shape,
    output: Shape,
    rows: Rows,
    threads: Threads,
}

impl Moved {
    /// Calls `work` with the place in the input, the place in the output and the length of every piece of a sample.
    fn each(&self, mut work: impl FnMut(usize, usize, usize)) {
        let input = self.input.image();
        let (height, width) = (input.height as usize, input.width as usize);
        match &self.rows {
            Rows::Channels(select) => {
                let plane = height * width;
                for channel in 0..select.channels {
                    work(select.source(channel) as usize * plane, channel as usize * plane, plane);
                }
            }
            Rows::Inside(border) => {
                let (down, along) = (border.before.0 as usize, border.before.1 as usize);
                let output = self.output.image();
                let (high, wide) = (output.height as usize, output.width as usize);
                for channel in 0..input.channels as usize {
                    for row in 0..height {
                        let to = (channel * high + down + row) * wide + along;
                        work((channel * height + row) * width, to, width);
                    }
                }
            }
        }
    }
}

impl Head for Moved {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (ins, outs) = (size(self.input), size(self.output));
        let input = of.inputs[0];
        self.threads.each_chunk(of.output, outs, |_, range, output| {
            let input = &input[range.start / outs * ins..][..ins];
            output.fill(0.0);
            self.each(|from, to, length| output[to..to + length].copy_from_slice(&input[from..from + length]));
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let (ins, outs) = (size(self.input), size(self.output));
        self.threads.each_chunk(d_input, ins, |_, range, d_input| {
            let d_output = &of.d_output[range.start / ins * outs..][..outs];
            if !accumulate {
                d_input.fill(0.0);
            }
            self.each(|from, to, length| {
                merge(&mut d_input[from..from + length], &d_output[to..to + length], accumulate);
            });
        });
    }
}
