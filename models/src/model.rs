//! Defines the model: a DAG of layers, with every shape, parameter and consumer computed once, when it is built.
//!
//! Layers are stored in topological order (file order wherever that is one), so a loop over [`Model::layers`] is a
//! forward pass and the reverse a backward pass. Every `Model` is valid.

mod arbitrary;
mod blocks;
mod build;
mod initial_values;
mod inits;
mod multipliers;
mod node_first;
mod order;
mod shard;
mod sharding;
mod tie;
mod work;

use std::ops::Range;

use petgraph::graph::DiGraph;

use crate::layer::{Init, InitRules, Signature};
use crate::{Dimension, Layer, LayerId, SampleTensor, Shape};
pub use arbitrary::random_model;
pub use blocks::Block;
pub use build::Draft;
pub use initial_values::{InitialValues, NamedValues};
pub use multipliers::{Multiplied, Multipliers, multiplied_parts};
pub(crate) use node_first::NODE_FIRST;
pub use node_first::node_first;
pub use shard::ShardLayer;
pub(crate) use shard::{COLUMNS, Entry, FEATURES, Names, SAMPLES, Table, VOCABULARY, shard};
pub use sharding::{PassRanks, Piece, Sharding};
pub use tie::Tie;

/// A layer in its model.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Unique in the model; layers of a block are called `stage1.2.conv1`.
    pub name: String,
    /// What it computes.
    pub layer: Layer,
    /// Where its inputs come from, in the order in which the layer takes them; no layer twice.
    pub inputs: Vec<LayerId>,
    /// Shape of one sample of each input.
    pub input_shapes: Vec<Shape>,
    /// Shape of one sample of the output.
    pub output: Shape,
    /// The indices of its operands.
    pub signature: Signature,
    /// Learnable parameters: weight before bias, γ before β; none where it reads that of another layer.
    pub parameters: Vec<Parameter>,
    /// The layer whose first parameter it reads in the place of its own.
    pub tied_to: Option<LayerId>,
    /// Batch norm's running mean, then running variance: elements in the model's statistics arena.
    pub statistics: Option<Range<u64>>,
    /// The weight of a loss in the sum that training minimises, positive; 1 where the layer is none.
    pub loss_weight: f32,
}

/// One learnable tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The layer's name and the tensor's, e.g. `conv1.weight`.
    pub name: String,
    /// Its dimensions, e.g. `output`, `input`, `row`, `column` of a convolution's weight.
    pub shape: Shape,
    /// Its elements in the model's parameter arena; tensors follow each other in layer order without gaps.
    pub range: Range<u64>,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies: not to batch norm's γ and β (Goyal et al. 2017, §5.1), nor to a scale.
    pub decay: bool,
    /// Factors of its rate and its weight decay.
    pub multipliers: Multipliers,
}

impl Node {
    /// How many classes a loss tells apart.
    pub fn classes(&self) -> u32 {
        self.layer.rule().classes(self.input_shapes[0])
    }

    /// The labels of a sample that a loss compares with its scores; `None` where it needs none, and of other layers.
    pub fn labels(&self) -> Option<SampleTensor> {
        self.layer.rule().labels(self.input_shapes.first().copied()?)
    }
}

impl Parameter {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Which tensor of its layer it is: `weight`, `bias`, …
    pub fn tensor(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Inputs of one output: the product of all sizes but the first.
    pub fn fan_in(&self) -> u64 {
        self.shape.sizes().skip(1).map(u64::from).product()
    }

    /// Outputs that one input reaches: the product of all sizes but the second.
    pub fn fan_out(&self) -> u64 {
        let (first, rest) = (self.shape.sizes().take(1), self.shape.sizes().skip(2));
        first.chain(rest).map(u64::from).product()
    }
}

/// A DAG of layers from one input to one loss or several.
///
/// The last loss is reported, and its scores are the model's answer; the others, such as GoogLeNet's auxiliary ones,
/// only add their gradients, each times its [`Node::loss_weight`].
#[derive(Debug, Clone)]
pub struct Model {
    name: String,
    source: String,
    /// The `model_type` of transformers that it is, where its file states one.
    architecture: Option<&'static str>,
    /// What was left out of its file.
    notes: Vec<String>,
    nodes: Vec<Node>,
    consumers: Vec<Vec<LayerId>>,
    graph: DiGraph<LayerId, ()>,
    needs_input_gradient: Vec<bool>,
    parameter_elements: u64,
    statistics_elements: u64,
}

impl Model {
    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is from; empty if its file does not say.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The same, as a model of this `model_type` of transformers, by whose names its weights are stored.
    #[must_use]
    pub fn with_architecture(self, architecture: &'static str) -> Model {
        Model { architecture: Some(architecture), ..self }
    }

    /// The `model_type` of transformers that it is, where its file states one.
    pub fn architecture(&self) -> Option<&'static str> {
        self.architecture
    }

    /// The same, with notes about what was left out of its file because it does not affect the model.
    #[must_use]
    pub fn with_notes(self, notes: Vec<String>) -> Model {
        Model { notes, ..self }
    }

    /// What was left out of its file, for display.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All layers in topological order, the input first and the main loss last.
    pub fn layers(&self) -> &[Node] {
        &self.nodes
    }

    /// The layer `id`.
    pub fn node(&self, id: LayerId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All layers with their ids, in topological order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (LayerId, &Node)> {
        self.nodes.iter().enumerate().map(|(index, node)| (LayerId(index as u32), node))
    }

    /// The layers that take `id`'s output, in topological order, each once.
    pub fn consumers(&self, id: LayerId) -> &[LayerId] {
        &self.consumers[id.index()]
    }

    /// The DAG; the petgraph index of a node is its [`LayerId`], edges point from producer to consumer.
    pub fn graph(&self) -> &DiGraph<LayerId, ()> {
        &self.graph
    }

    /// Whether a gradient must flow out of `id` towards its inputs: some layer before it has parameters.
    pub fn needs_input_gradient(&self, id: LayerId) -> bool {
        self.needs_input_gradient[id.index()]
    }

    /// Elements of the parameter arena: all learnable numbers.
    pub fn parameter_elements(&self) -> u64 {
        self.parameter_elements
    }

    /// Elements of the statistics arena: batch norm's running means and variances.
    pub fn statistics_elements(&self) -> u64 {
        self.statistics_elements
    }

    /// Number of classes of each loss.
    pub fn classes(&self) -> u32 {
        self.nodes[self.nodes.len() - 1].classes()
    }

    /// Shape of one sample.
    pub fn input(&self) -> Shape {
        self.nodes[0].output
    }

    /// Shape and format of one sample.
    pub fn sample(&self) -> SampleTensor {
        self.nodes[0].layer.sample().unwrap_or(SampleTensor::values(self.input()))
    }

    /// The number of different tokens of its sequences; `None` where its samples are others.
    pub fn tokens(&self) -> Option<u32> {
        self.nodes[0].layer.tokens()
    }

    /// Tokens of one sample, its positions; `None` where its samples are others.
    pub fn positions(&self) -> Option<u32> {
        self.tokens().map(|_| self.input().size(Dimension::Position))
    }

    /// The labels of a sample, which all losses share; `None` where they need none.
    pub fn labels(&self) -> Option<SampleTensor> {
        self.nodes[self.nodes.len() - 1].labels()
    }
}
