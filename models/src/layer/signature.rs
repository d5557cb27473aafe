//! `Signature`: the indices of a layer's operands, and what follows from them: whether ranks may split its features, the
//! layouts of all operands in each pass when one index is split, and its matrix products.
//!
//! Layers that are sums of products or work element by element are fully described; of the others it says which indices are
//! whole, and their files keep what the indices cannot say: work, and what is kept for the backward passes.

use super::linear::features_of_positions;
use super::{ImageShape, Pass, Shape};
use crate::{AxisLayout, Dimension};

/// How a layer uses an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexUse {
    /// A value of the output needs one value of it: ranks may each have a part.
    Free,
    /// The output is a sum over it: ranks that each have a part get summands.
    Contracted,
    /// The output has one value of it, which an input names: ranks that each have a part get zeros where it is another's.
    LookedUp,
    /// The output follows from numbers that ranks make of their parts of it, and that are merged otherwise than by adding:
    /// the largest score of a softmax and the sum of exponentials ([`LayerRule::in_parts`](super::LayerRule::in_parts)).
    Merged,
    /// A value of the output needs all of it: windows, filters, sets that are normalised or chosen from.
    Whole,
}

/// An index of a layer's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// How many values it has; 1 for the samples of a batch, whose number no shape states.
    pub size: u64,
    /// How the layer uses it.
    pub usage: IndexUse,
}

/// The place of an index among a signature's.
type IndexId = usize;

/// The indices of an operand, outermost first, each with the dimension of the operand that it is, or is a part of.
type Indices = Vec<(IndexId, Dimension)>;

/// The layouts of a pass's operands along an axis that splits one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassLayouts {
    /// Of the layer's parameters, by tensor.
    pub parameters: Vec<AxisLayout>,
    /// Of the inputs; backward they are read for the gradient.
    pub inputs: Vec<AxisLayout>,
    /// Of the output's gradient, backward.
    pub gradient: Option<AxisLayout>,
    /// Of what the pass makes: the output, the gradient of each input, or that of each parameter.
    pub made: Vec<AxisLayout>,
}

/// Where the features of a layer's output come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Features {
    /// From rows of its own weight, of which ranks may each keep a part.
    Rows,
    /// From rows of its weight within groups of the input's features.
    Groups,
    /// One by one from those of its inputs.
    Follow,
    /// Each from many, or all, of the inputs' features.
    Whole,
}

/// The matrix products of a layer: per group, `outputs` by `places` of all samples by `inputs · kernel`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixProduct {
    /// Rows of the weight in a group.
    pub outputs: f64,
    /// Channels, or features, that enter a group.
    pub inputs: f64,
    /// Places of the filter.
    pub kernel: f64,
    /// The number of independent products.
    pub groups: f64,
    /// Columns of a sample: places of an image, or positions.
    pub places: f64,
}

/// The indices of a layer's operands.
///
/// ```
/// # use lockstep_models::layer::{Features, Pass, Signature};
/// # use lockstep_models::{AxisLayout, Dense, Dimension, Layer, Shape};
/// let dense = Layer::Dense(Dense { out_features: 10, bias: false });
/// let signature = dense.signature(&[Shape::flat(4)]).unwrap();
/// assert_eq!((signature.output_shape(), signature.features()), (Shape::flat(10), Features::Rows));
/// // Split columns of the weight and their features of the input give one summand of the output each.
/// let input = signature.inputs[0][1].0;
/// let layouts = signature.layouts(Pass::Forward, input).unwrap();
/// assert_eq!(layouts.parameters, [AxisLayout::Split(Dimension::Input)]);
/// assert_eq!((layouts.inputs, layouts.made), (vec![AxisLayout::Split(Dimension::Feature)], vec![AxisLayout::Partial]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// All indices.
    pub indices: Vec<Index>,
    /// By input, the indices that it has.
    pub inputs: Vec<Indices>,
    /// By parameter, the indices that it has.
    pub parameters: Vec<Indices>,
    /// The indices of the output.
    pub output: Indices,
}

impl Signature {
    /// Samples alone, in every input and in the output.
    pub(super) fn of_samples(inputs: usize) -> Signature {
        let samples = vec![(0, Dimension::Sample)];
        let indices = vec![Index { size: 1, usage: IndexUse::Free }];
        Signature { indices, inputs: vec![samples.clone(); inputs], parameters: Vec::new(), output: samples }
    }

    /// Of a layer whose output has at each index what it makes of the inputs there. Where a size of an input is another
    /// than the output's, the layer needs the whole dimension of the input.
    pub(super) fn elementwise(inputs: &[Shape], output: Shape) -> Signature {
        let mut signature = Signature::of_samples(inputs.len());
        for (dimension, size) in output.dimensions() {
            let alike = inputs.iter().all(|shape| shape.size(*dimension) == *size);
            let usage = if alike { IndexUse::Free } else { IndexUse::Whole };
            let index = signature.index((*size).into(), usage);
            signature.output.push((index, *dimension));
            for (input, shape) in inputs.iter().enumerate().filter(|(_, shape)| shape.has(*dimension)) {
                let own = if alike { index } else { signature.index(shape.size(*dimension).into(), usage) };
                signature.inputs[input].push((own, *dimension));
            }
        }
        for (input, shape) in inputs.iter().enumerate() {
            for (dimension, size) in shape.dimensions().iter().filter(|(of, _)| !output.has(*of)) {
                let own = signature.index((*size).into(), IndexUse::Whole);
                signature.inputs[input].push((own, *dimension));
            }
        }
        signature
    }

    /// Samples and, in the one input and in the output, all other dimensions of the input but its features.
    pub(super) fn of_places(input: Shape, usage: IndexUse) -> Signature {
        let mut of = Signature::of_samples(1);
        for (dimension, size) in input.dimensions().iter().filter(|(of, _)| *of != Dimension::Feature) {
            let index = of.index((*size).into(), usage);
            of.inputs[0].push((index, *dimension));
            of.output.push((index, *dimension));
        }
        of
    }

    /// Of a layer that works on the features of each head at each position by themselves, with the index of the features of a
    /// head; the error says what does not fit. Heads are free.
    pub(super) fn of_heads(input: Shape, heads: u32) -> Result<(Signature, IndexId), String> {
        let features = features_of_positions(input, "give it sequences")?;
        if heads == 0 || !features.is_multiple_of(heads) {
            return Err(format!("divides {features} features among {heads} heads: use heads that divide them"));
        }
        let mut of = Signature::of_places(input, IndexUse::Free);
        let head = of.index(heads.into(), IndexUse::Free);
        of.output.push((head, Dimension::Feature));
        let width = of.index((features / heads).into(), IndexUse::Whole);
        of.output.push((width, Dimension::Feature));
        of.inputs[0] = of.output.clone();
        Ok((of, width))
    }

    /// Adds an index.
    pub(super) fn index(&mut self, size: u64, usage: IndexUse) -> IndexId {
        self.indices.push(Index { size, usage });
        self.indices.len() - 1
    }

    /// The same with `count` parameters that have a value for each feature.
    pub(super) fn with_each_feature(mut self, count: usize) -> Signature {
        let feature = self.output.iter().find(|(_, dimension)| *dimension == Dimension::Feature);
        let parameter: Indices = feature.map(|(index, _)| (*index, Dimension::Feature)).into_iter().collect();
        self.parameters = vec![parameter; count];
        self
    }

    /// The same with these dimensions whole.
    pub(super) fn with_whole(mut self, dimensions: &[Dimension]) -> Signature {
        let operands = self.inputs.iter().chain([&self.output]).flatten();
        for (index, _) in operands.filter(|(_, dimension)| dimensions.contains(dimension)) {
            self.indices[*index].usage = IndexUse::Whole;
        }
        self
    }

    /// Shape of one sample of the output.
    pub fn output_shape(&self) -> Shape {
        let shape = self.shape_of(&self.output[1..]);
        // An image of a single row and column is the vector of its channels.
        shape.as_image().map_or(shape, ImageShape::shape)
    }

    /// Shapes of the parameters.
    pub fn parameter_shapes(&self) -> impl Iterator<Item = Shape> {
        self.parameters.iter().map(|parameter| self.shape_of(parameter))
    }

    /// The dimensions of an operand, of which some have several indices.
    fn shape_of(&self, operand: &[(IndexId, Dimension)]) -> Shape {
        let mut dimensions: Vec<(Dimension, u32)> = Vec::with_capacity(operand.len());
        for (index, dimension) in operand {
            let size = u32::try_from(self.indices[*index].size).unwrap_or(u32::MAX);
            match dimensions.last_mut() {
                Some((last, all)) if last == dimension => *all = all.saturating_mul(size),
                _ => dimensions.push((*dimension, size)),
            }
        }
        Shape::new(&dimensions)
    }

    /// Where the features of the output come from.
    pub fn features(&self) -> Features {
        let of = |operand: &Indices, index: IndexId| operand.iter().any(|(own, _)| *own == index);
        // An input such as attention's documents, all of whose features are needed whole, is beside those that are split.
        let beside = |input: &Indices| {
            let mut features = input.iter().filter(|(_, of)| *of == Dimension::Feature).peekable();
            features.peek().is_some() && features.all(|(index, _)| self.indices[*index].usage == IndexUse::Whole)
        };
        let follows = |index| {
            let mut inputs = self.inputs.iter();
            inputs.clone().any(|input| of(input, index)) && inputs.all(|input| of(input, index) || beside(input))
        };
        let own: Vec<IndexId> =
            self.output.iter().filter(|(_, of)| *of == Dimension::Feature).map(|(index, _)| *index).collect();
        let [first, rest @ ..] = &own[..] else { return Features::Whole };
        if self.indices[*first].usage == IndexUse::Whole {
            Features::Whole
        } else if follows(*first) {
            if rest.iter().all(|index| follows(*index)) { Features::Follow } else { Features::Groups }
        } else if self.parameters.iter().any(|parameter| of(parameter, *first)) {
            Features::Rows
        } else {
            Features::Whole
        }
    }

    /// The layouts of a pass's operands where an axis splits `index`; `None` where the layer needs all of it. What has the
    /// index is split along it, what a pass makes without it is a summand, and what it only reads is the same on all ranks.
    pub fn layouts(&self, pass: Pass, index: IndexId) -> Option<PassLayouts> {
        if self.indices[index].usage == IndexUse::Whole {
            return None;
        }
        let layout = |operand: &Indices, without: AxisLayout| {
            let own = operand.iter().find(|(own, _)| *own == index);
            own.map_or(without, |(_, dimension)| AxisLayout::Split(*dimension))
        };
        let each = |operands: &[Indices], without| operands.iter().map(|of| layout(of, without)).collect::<Vec<_>>();
        Some(PassLayouts {
            parameters: each(&self.parameters, AxisLayout::Replicated),
            inputs: each(&self.inputs, AxisLayout::Replicated),
            gradient: (pass != Pass::Forward).then(|| layout(&self.output, AxisLayout::Replicated)),
            made: match pass {
                Pass::Forward => vec![layout(&self.output, AxisLayout::Partial)],
                Pass::BackwardData => each(&self.inputs, AxisLayout::Partial),
                Pass::BackwardWeight => each(&self.parameters, AxisLayout::Partial),
            },
        })
    }

    /// Its products with a matrix of weights, if it sums any.
    pub fn product(&self) -> Option<MatrixProduct> {
        let (input, weight) = (self.inputs.first()?, self.parameters.first()?);
        let has = |operand: &Indices, index: IndexId| operand.iter().any(|(own, _)| *own == index);
        let size = |wanted: &dyn Fn(IndexId, IndexUse) -> bool| {
            let sizes = weight.iter().map(|(index, _)| (*index, self.indices[*index]));
            sizes.filter(|(index, of)| wanted(*index, of.usage)).map(|(_, of)| of.size as f64).product::<f64>()
        };
        let contracts = weight.iter().any(|(index, _)| self.indices[*index].usage == IndexUse::Contracted);
        contracts.then(|| MatrixProduct {
            outputs: size(&|index, usage| usage == IndexUse::Free && !has(input, index)),
            inputs: size(&|_, usage| usage == IndexUse::Contracted),
            kernel: size(&|_, usage| usage == IndexUse::Whole),
            groups: size(&|index, usage| usage == IndexUse::Free && has(input, index)),
            places: self.output_shape().places() as f64,
        })
    }
}
