//! Computes how much of a GPU one kernel fills: its blocks of threads over the multiprocessors, wave by wave.
//!
//! A convolution or dense layer is a matrix product of m × n outputs, each a sum over k. It is cut into tiles, a
//! block each; each multiprocessor takes one block at a time, and the last wave is rarely full (NVIDIA, "Matrix
//! Multiplication Background User's Guide", tile and wave quantisation). Where tiles are fewer than
//! multiprocessors the sum
//! is cut as well (split-k). All other layers stream, with a fixed number of elements per block. A kernel that does not
//! fill the GPU is slower in proportion, and leaves the rest to the kernels of other ranks on it.
//!
//! Tiles are those of the GPU's generation; the fastest is taken; blocks of a stream are assumed.

use lockstep_models::{Node, Pass};

use super::generation::Kernels;

/// The shortest piece into which the sum is cut (assumed).
const SHORTEST_SUM: f64 = 256.0;
/// Elements of one block of a streaming kernel: 256 threads of four (assumed).
const STREAMED: f64 = 1024.0;

/// A kernel on a GPU, before its roofs are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fill {
    /// Mean share of the multiprocessors that have a block of it, from 0 to 1.
    pub(super) occupancy: f64,
    /// Useful share of the arithmetic that its blocks could do, from 0 to 1.
    pub(super) useful: f64,
}

impl Fill {
    /// A CPU's core, which works on one thing at a time.
    pub(super) const WHOLE: Fill = Fill { occupancy: 1.0, useful: 1.0 };
}

/// How `pass` of a layer over `samples` samples, which takes `flops`, fills a GPU with this many multiprocessors.
pub(super) fn fill(
    node: &Node,
    pass: Pass,
    samples: u32,
    flops: f64,
    (multiprocessors, kernels): (u32, &Kernels),
) -> Fill {
    let units = f64::from(multiprocessors);
    match product(node, pass, samples) {
        Some([rows, columns, batch]) if flops > 0.0 => {
            let sum = flops / (2.0 * rows * columns * batch);
            let whole = if kernels.all_places { longest_sum(node, pass).max(sum) } else { sum };
            let by = |tile: &[f64; 2]| {
                let tiles = [(rows / tile[0]).ceil(), (columns / tile[1]).ceil()];
                let useful = rows * columns / (tiles[0] * tile[0] * tiles[1] * tile[1]) * sum
                    / (whole + kernels.sum_overhead)
                    / (1.0 + kernels.small_tile * (tile[0].recip() + tile[1].recip()));
                let blocks = tiles[0] * tiles[1] * batch;
                let pieces = (units / blocks).min(whole / SHORTEST_SUM).floor().max(1.0);
                let blocks = blocks * pieces;
                Fill { occupancy: blocks / ((blocks / units).ceil() * units), useful }
            };
            // Of equals the first.
            let faster = |a: Fill, b: Fill| if b.useful * b.occupancy > a.useful * a.occupancy { b } else { a };
            kernels.tiles.iter().map(by).reduce(faster).unwrap_or(Fill::WHOLE)
        }
        _ => streaming(f64::from(samples) * node.output.elements() as f64, multiprocessors),
    }
}

/// How a kernel over `elements` elements fills a GPU. Several of its small blocks share a multiprocessor, so that waves
/// do not show.
pub(super) fn streaming(elements: f64, multiprocessors: u32) -> Fill {
    let blocks = (elements / STREAMED).ceil().max(1.0);
    Fill { occupancy: (blocks / f64::from(multiprocessors)).min(1.0), useful: 1.0 }
}

/// The sum of a gradient with respect to the input of a convolution over all places of its filter, whatever the
/// strides; 0 for others.
fn longest_sum(node: &Node, pass: Pass) -> f64 {
    match node.product() {
        Some(of) if of.places > 1.0 && pass == Pass::BackwardData => of.outputs * of.kernel,
        _ => 0.0,
    }
}

/// Rows, columns and number of a layer's matrix products; `None` where it has none.
fn product(node: &Node, pass: Pass, samples: u32) -> Option<[f64; 3]> {
    let samples = f64::from(samples);
    let places = |shape: &lockstep_models::Shape| samples * shape.places() as f64;
    let input = node.input_shapes.first()?;
    let of = node.product()?;
    Some(match pass {
        Pass::Forward => [samples * of.places, of.outputs, of.groups],
        Pass::BackwardData => [if of.places > 1.0 { places(input) } else { samples }, of.inputs, of.groups],
        Pass::BackwardWeight => [of.outputs, of.inputs * of.kernel, of.groups],
    })
}

#[cfg(test)]
mod tests {
    use lockstep_models::Node;

    use super::*;

    fn dense(inputs: u32, outputs: u32) -> Node {
        let text = format!(
            "name = \"m\"\nsource = \"a test\"\ninput = [{inputs}, 1, 1]\n[[layer]]\nname = \"fc\"\nkind = \"dense\"\n\
             out_features = {outputs}\n[[layer]]\nname = \"loss\"\nkind = \"softmax_cross_entropy\""
        );
        let model = lockstep_readers::parse_model("m.toml", &text).expect("a model");
        model.layers().iter().find(|node| node.is_product()).expect("it is there").clone()
    }

    /// Scores with their loss fill a GPU as scores alone do.
    #[test]
    fn an_output_layer_with_its_loss_fills_a_gpu() {
        let of = |layers: &str| {
            let text = format!(
                "name = \"m\"\ninput = {{ positions = 64, tokens = 512 }}\nlayer = [{{ kind = \"embedding\", entries = 512, \
                 out_features = 32 }}, {layers}]"
            );
            let model = lockstep_readers::parse_model("m.toml", &text).expect("a model");
            let is_scores = |node: &&Node| node.layer.kind().starts_with("linear");
            let node = model.layers().iter().find(is_scores).expect("it is there");
            fill(node, Pass::Forward, 2, node.work(Pass::Forward, 2).flops, (80, &Kernels::ASSUMED))
        };
        let apart = of("{ kind = \"linear\", out_features = 512 }, { kind = \"softmax_cross_entropy\" }");
        assert_eq!(of("{ kind = \"linear_cross_entropy\", out_features = 512 }"), apart);
    }

    #[test]
    fn waves_by_hand() {
        // 64 samples: one row of tiles. 80 columns of 32 outputs on 80 multiprocessors are one full wave.
        let at = |outputs: u32, samples: u32, units| {
            let node = dense(1024, outputs);
            let work = node.work(Pass::Forward, samples);
            fill(&node, Pass::Forward, samples, work.flops, (units, &Kernels::ASSUMED))
        };
        let full = 1024.0 / (1024.0 + 32.0);
        assert_eq!(at(32 * 80, 64, 80), Fill { occupancy: 1.0, useful: full });
        // One more is a second wave of 80 with one tile in it.
        assert_eq!(at(32 * 81, 64, 80), Fill { occupancy: 81.0 / 160.0, useful: full });
        // A single tile: the sum over 1,024 is cut into four.
        assert_eq!(at(32, 64, 80), Fill { occupancy: 4.0 / 80.0, useful: full });
        // Half of its rows and half of its columns are unused.
        assert_eq!(at(16, 32, 80).useful, full / 4.0);
        // A block of 1,024 elements on one of 80, then all of them.
        assert_eq!(streaming(1000.0, 80).occupancy, 1.0 / 80.0);
        assert_eq!(streaming(1e9, 80).occupancy, 1.0);
    }

    #[test]
    fn the_three_products_of_a_dense_layer_do_its_flops() {
        let node = dense(640, 320);
        for (pass, [rows, columns, sum]) in [
            (Pass::Forward, [128.0, 320.0, 640.0]),
            (Pass::BackwardData, [128.0, 640.0, 320.0]),
            (Pass::BackwardWeight, [320.0, 640.0, 128.0]),
        ] {
            assert_eq!(product(&node, pass, 128), Some([rows, columns, 1.0]));
            assert_eq!(node.work(pass, 128).flops, 2.0 * rows * columns * sum);
        }
    }
}
