//! Generates random small models for property tests, here and in the crates that execute or simulate them.
//!
//! A public function instead of a test helper because integration tests of other crates need the same models; a few
//! lines of splitmix64 instead of a dependency because a seed must mean the same model for ever.

use super::Model;
use super::build::Draft;
use crate::{
    Affine, BatchNorm, BlurPool, Border, Conv2d, Dense, Dropout, GroupNorm, Layer, LayerNorm, LeakyRelu,
    LocalResponseNorm, Pool2d, PoolKind, Reshape, Resize, ResponseNorm, Scale, Select, Shape, Softmax,
};

/// A valid model that depends on `seed` alone: an input of at most 3×6×6, 3 to 8 random layers that branch and join,
/// all open ends flattened and joined, then a dense layer of 2 to 5 classes and the loss.
///
/// Batch norm occurs only if `with_batch_norm`; every other kind of layer occurs for some seeds.
///
/// ```
/// # use lockstep_models::random_model;
/// assert_eq!(random_model(7, true).layers(), random_model(7, true).layers());
/// ```
pub fn random_model(seed: u64, with_batch_norm: bool) -> Model {
    let (random, manners) = (SplitMix(seed), SplitMix(!seed));
    let mut sketch = Sketch { random, manners, drafts: Vec::new(), shapes: Vec::new(), used: Vec::new() };
    let input = sketch.random_shape();
    sketch.push(Layer::input(input), Vec::new());
    for _ in 0..sketch.random.between(3, 8) {
        sketch.grow(with_batch_norm);
    }
    sketch.close();
    match Model::build(format!("random-{seed}"), "random".to_owned(), sketch.drafts) {
        Ok(model) => model,
        Err(error) => unreachable!("each random layer was checked when it was added: {error}"),
    }
}

/// Sebastiano Vigna's splitmix64.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, both included.
    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + (self.next() % u64::from(most - least + 1)) as u32
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn pair(&mut self, least: u32, most: u32) -> (u32, u32) {
        (self.between(least, most), self.between(least, most))
    }
}

/// A model under construction.
struct Sketch {
    random: SplitMix,
    /// Chooses between layers that change no shape; a new kind of them then leaves every seed's shapes unchanged.
    manners: SplitMix,
    drafts: Vec<Draft>,
    shapes: Vec<Shape>,
    used: Vec<bool>,
}

impl Sketch {
    fn random_shape(&mut self) -> Shape {
        let (channels, (height, width)) = (self.random.between(1, 3), self.random.pair(4, 6));
        Shape::of_image(channels, height, width)
    }

    /// Adds a layer if its inputs suit it, and says whether they did.
    fn push(&mut self, layer: Layer, inputs: Vec<usize>) -> bool {
        let shapes: Vec<Shape> = inputs.iter().map(|input| self.shapes[*input]).collect();
        let Ok(output) = layer.output_shape(&shapes) else { return false };
        inputs.iter().for_each(|input| self.used[*input] = true);
        let index = self.drafts.len();
        let name = if index == 0 { "input".to_owned() } else { format!("{}{index}", layer.kind()) };
        let place = format!("random layer {index}").into();
        let (inits, multipliers) = Default::default();
        self.drafts.push(Draft { name, layer, inputs, inits, multipliers, loss_weight: 1.0, place });
        self.shapes.push(output);
        self.used.push(false);
        true
    }

    /// Adds one random layer after a random layer, the latest more often than others.
    fn grow(&mut self, with_batch_norm: bool) {
        let count = self.drafts.len();
        let from = if self.random.coin() { count - 1 } else { self.random.between(0, count as u32 - 1) as usize };
        let channels = self.shapes[from].features();
        let (layer, inputs) = match self.random.between(0, 11) {
            0..=2 => (self.random_conv(channels), vec![from]),
            3 | 4 if with_batch_norm => (Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 }), vec![from]),
            5 => (self.random_pool(), vec![from]),
            6 => {
                let (out_features, bias) = (self.random.between(1, 6), self.random.coin());
                (Layer::Dense(Dense { out_features, bias }), vec![from])
            }
            7 => match (self.random.coin(), self.manners.between(0, 3)) {
                (true, draw) if draw == 0 || self.shapes[from].places() == 1 => (self.random_size(from), vec![from]),
                (true, _) => (Layer::GlobalPool, vec![from]),
                (false, _) => (Layer::Flatten, vec![from]),
            },
            8 | 9 => {
                let partners = self.partners(from, |one, other| one == other);
                let multiplies = partners.len() == 2 && self.manners.between(0, 3) == 0;
                (if multiplies { Layer::Product } else { Layer::Add }, partners)
            }
            10 => {
                let sides = |shape: Shape| shape.with_features(1);
                (Layer::Concat, self.partners(from, |one, other| sides(one) == sides(other)))
            }
            _ => (self.random_manner(channels), vec![from]),
        };
        if !self.push(layer, inputs) {
            let manner = self.random_manner(channels);
            self.push(manner, vec![from]);
        }
    }

    /// A layer that makes one place of an image, as a global pooling does, or a vector of a vector.
    fn random_size(&mut self, from: usize) -> Layer {
        let (channels, places) = (self.shapes[from].features(), self.shapes[from].places());
        if places == 1 {
            return Layer::Reshape(Reshape { shape: Shape::of_image(1, 1, channels) });
        }
        Layer::Resize(Resize { height: 1, width: 1 })
    }

    /// A random layer that takes any shape and keeps it.
    fn random_manner(&mut self, channels: u32) -> Layer {
        match self.manners.between(0, 14) {
            0 => Layer::Sigmoid,
            1 => Layer::Tanh,
            2 => match self.manners.between(0, 3) {
                0 => Layer::Bias,
                draw => Layer::Scale(Scale { bias: draw % 2 == 1 }),
            },
            3 => {
                let (size, beta) = (2 * self.manners.between(0, 2) + 1, if self.manners.coin() { 0.75 } else { 0.5 });
                Layer::LocalResponseNorm(LocalResponseNorm { size, alpha: 0.25, beta, k: 1.0 })
            }
            6 => Layer::Gelu,
            7 => Layer::Silu,
            8..=13 => match self.manners.between(0, 13) {
                0 => Layer::ExactGelu,
                1 => Layer::Relu6,
                2 => Layer::LeakyRelu(LeakyRelu { slope: 0.25 }),
                3 => Layer::HardSigmoid,
                4 => Layer::HardSwish,
                5 => Layer::Affine(Affine { factor: 0.5, shift: 0.25 }),
                6 => Layer::LayerNorm(LayerNorm { epsilon: 1e-5 }),
                7 => Layer::Border(Border { before: (0, 0), after: (0, 0), reflect: self.manners.coin() }),
                8 => Layer::BlurPool(BlurPool { kernel: 1, stride: (1, 1), padding: (0, 0) }),
                9 => Layer::GroupNorm(GroupNorm { groups: 1, epsilon: 1e-5 }),
                10 => Layer::ResponseNorm(ResponseNorm { epsilon: 1e-6 }),
                12 => Layer::Square,
                11 => Layer::Softmax(Softmax { parts: if channels.is_multiple_of(2) { 2 } else { 1 } }),
                _ => {
                    let groups = if channels.is_multiple_of(2) { 2 } else { 1 };
                    Layer::Select(Select { first: 0, channels, groups })
                }
            },
            4 | 5 => Layer::Dropout(Dropout { rate: self.manners.between(0, 3) as f32 / 4.0 }),
            _ => Layer::Relu,
        }
    }

    /// `from` and at most two other layers whose shapes suit it.
    fn partners(&mut self, from: usize, suits: impl Fn(Shape, Shape) -> bool) -> Vec<usize> {
        let wanted = self.random.between(1, 2) as usize;
        let others = (0..self.drafts.len()).rev().filter(|other| *other != from);
        let suiting = others.filter(|other| suits(self.shapes[*other], self.shapes[from]));
        std::iter::once(from).chain(suiting.take(wanted)).collect()
    }

    fn random_conv(&mut self, channels: u32) -> Layer {
        let groups = if self.random.between(0, 3) == 0 { channels } else { 1 };
        Layer::Conv2d(Conv2d {
            out_channels: groups * self.random.between(1, 4u32.div_ceil(groups)),
            kernel: self.random.pair(1, 3),
            stride: self.random.pair(1, 2),
            padding: self.random.pair(0, 1),
            dilation: self.random.pair(1, 2),
            groups,
            bias: self.random.coin(),
        })
    }

    fn random_pool(&mut self) -> Layer {
        Layer::Pool2d(Pool2d {
            kind: if self.random.coin() { PoolKind::Max } else { PoolKind::Average },
            kernel: self.random.pair(2, 3),
            stride: self.random.pair(1, 2),
            padding: self.random.pair(0, 1),
            ceil: self.random.coin(),
            count_padding: false,
        })
    }

    /// Joins all open ends, then classifies.
    fn close(&mut self) {
        let open: Vec<usize> = (0..self.drafts.len()).filter(|index| !self.used[*index]).collect();
        let mut flat = Vec::with_capacity(open.len());
        for index in open {
            let is_flat = self.shapes[index].places() == 1;
            flat.push(if is_flat { index } else { self.drafts.len() });
            if !is_flat {
                self.push(Layer::Flatten, vec![index]);
            }
        }
        if flat.len() > 1 {
            self.push(Layer::Concat, flat);
            flat = vec![self.drafts.len() - 1];
        }
        let classes = self.random.between(2, 5);
        let bias = self.random.coin();
        self.push(Layer::Dense(Dense { out_features: classes, bias }), flat);
        let loss =
            if self.manners.between(0, 3) == 0 { Layer::LogisticCrossEntropy } else { Layer::SoftmaxCrossEntropy };
        self.push(loss, vec![self.drafts.len() - 1]);
    }
}
