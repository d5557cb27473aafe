//! The part of a model that one rank holds when layers are split by features: the same layers with fewer rows, and gathers.
//!
//! A layer with weights keeps ⌈rows / ranks⌉ of them, so every rank has the same model; the last ranks' rows beyond the end
//! are zeros that stay zeros, and the slowest rank has as many rows anyway. A gather stands before each layer that needs
//! what all ranks have; it is filled by an exchange and computes nothing.

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::InputError;

use super::build::Draft;
use super::{LayerId, Model, Node};
use crate::layer::FeatureRule;
use crate::{Axis, AxisLayout, AxisSet, Dimension, Layer, Layout};

const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);

/// What a gather brings together, and what becomes of the gradient that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gather {
    /// Samples of some or all ranks. The gradients are partial sums, which go back to where the samples are from.
    Samples,
    /// Features of all ranks, for layers whose rows are split: the gradients are partial sums, each rank gets its features'.
    Features,
    /// Features of all ranks, for layers that every rank runs in full: the gradient is whole everywhere, so each rank takes
    /// its own features of it and nothing is sent.
    Scores,
    /// Scores of a node's ranks on its first one, which alone takes the loss; each rank gets its samples' gradients back.
    Node,
}

/// A layer of a rank's model.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardLayer {
    /// The layer of the whole model whose output this is, or a part of it.
    pub origin: LayerId,
    /// How its output lies over the ranks.
    pub output: Layout,
    /// How the gradient of its output lies.
    pub gradient: Layout,
    /// Whether it brings together what ranks have.
    pub gather: Option<Gather>,
}

/// Samples of one worker's micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Whose.
    pub worker: u32,
    /// The first of them in its micro-batch.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// How ranks' models were cut out of a whole one, and on which samples the part behind the cut works.
#[derive(Debug, Clone)]
pub struct Sharding {
    /// What all ranks train together.
    pub whole: Arc<Model>,
    /// The axis along which ranks hold different parts, or take their samples to the parts.
    pub axis: Axis,
    /// How many ranks there are along it.
    pub ranks: u32,
    /// By layer of a rank's model.
    pub layers: Vec<ShardLayer>,
    /// The samples of each pass through the split layers, by worker in ascending order, at most one piece each.
    pub passes: Vec<Vec<Piece>>,
    /// Whether split layers are updated after each pass rather than after all of them (Krizhevsky 2014 §4.2).
    pub variable_batch: bool,
}

impl Sharding {
    /// Whether a layer of a rank's model runs in passes, behind the cut.
    pub fn in_passes(&self, id: LayerId) -> bool {
        self.layers[id.index()].output.on(self.axis) != SAMPLES && id.0 > 0
    }

    /// Whether all layers run in passes, so that each rank takes the samples of all of them.
    pub fn in_all_passes(&self) -> bool {
        self.layers[0].output.on(self.axis) == AxisLayout::Replicated
    }

    /// Whether ranks hold different rows of a layer's output and weights.
    pub fn splits(&self, id: LayerId) -> bool {
        self.layers[id.index()].output.on(self.axis) == FEATURES
    }

    /// Whether a pass is a node's, run by its first rank alone.
    pub fn by_node(&self) -> bool {
        self.layers.iter().any(|layer| layer.gather == Some(Gather::Node))
    }

    /// Whether ranks hold parts of the weights.
    pub fn splits_weights(&self) -> bool {
        self.layers.iter().any(|layer| layer.output.on(self.axis) == FEATURES)
    }

    /// Samples of one pass; all have as many, unless they are nodes'.
    pub fn pass_samples(&self) -> u32 {
        self.samples_of(0)
    }

    /// Samples of pass number `pass`.
    pub fn samples_of(&self, pass: usize) -> u32 {
        self.passes[pass].iter().map(|piece| piece.count).sum()
    }

    /// Elements of one sample that `part` really has of the split output of layer `id` of its `model`: as many as the layer
    /// gives, or fewer where its last rows are padding.
    pub fn features(&self, model: &Model, id: LayerId, part: u32) -> u64 {
        let (own, whole) = (model.node(id).output, self.whole.node(self.layers[id.index()].origin).output);
        let rows = rows_of(u64::from(whole.channels), u64::from(own.channels), part);
        (rows.end - rows.start) * u64::from(own.height) * u64::from(own.width)
    }

    /// Which elements of the whole model's parameters `part` holds, each range with where it begins in `model`, the part's.
    pub fn parameters(&self, model: &Model, part: u32) -> Vec<(Range<u64>, u64)> {
        let mut pieces = Vec::new();
        for (node, layer) in model.layers().iter().zip(&self.layers) {
            let part = if layer.output.on(self.axis) == FEATURES { part } else { 0 };
            for (own, all) in node.parameters.iter().zip(&self.whole.node(layer.origin).parameters) {
                let rows = rows_of(u64::from(all.dims[0]), u64::from(own.dims[0]), part);
                let row = all.elements() / u64::from(all.dims[0]);
                let range = all.range.start + rows.start * row..all.range.start + rows.end * row;
                if !range.is_empty() {
                    pieces.push((range, own.range.start));
                }
            }
        }
        pieces
    }

    /// Samples over which the gradient of parameters from `start` on is a mean when they are updated.
    pub fn update_batch(&self, model: &Model, start: u64, global_batch: u64) -> u64 {
        let holds = |node: &Node| node.parameters.iter().any(|p| p.range.contains(&start));
        let split = model.iter().any(|(id, node)| holds(node) && self.in_passes(id));
        if self.variable_batch && split { u64::from(self.pass_samples()) } else { global_batch }
    }
}

/// Rows of `all` that `part` has when each part takes up to `each`.
fn rows_of(all: u64, each: u64, part: u32) -> Range<u64> {
    (u64::from(part) * each).min(all)..((u64::from(part) + 1) * each).min(all)
}

/// The model of one of the `ranks` ranks along `axis` where `whole` is split behind the layers for which `front` holds: those
/// stay as they are. Where the input itself is not in front, each of the ranks has all samples. On `outside`, other axes of the
/// mesh, samples are split.
///
/// # Errors
/// Layers that cannot be split: fewer rows than ranks, grouped convolutions, batch normalisation (its statistics would be
/// other ones), and layers that need both a whole and a partial gradient.
pub(crate) fn shard(
    whole: &Model,
    (axis, ranks): (Axis, u32),
    outside: AxisSet,
    front: &dyn Fn(LayerId) -> bool,
) -> Result<(Model, Vec<ShardLayer>), InputError> {
    let placed = |origin, output, gradient, gather| {
        let [output, gradient] = [output, gradient].map(|layout| Layout::new(outside, SAMPLES).with(axis, layout));
        ShardLayer { origin, output, gradient, gather }
    };
    let outputs = outputs(whole, ranks, front)?;
    let gradients = gradients(whole, &outputs)?;
    let mut drafts: Vec<Draft> = Vec::new();
    let mut layers: Vec<ShardLayer> = Vec::new();
    // By layer of the whole model: where its output and where its gathers stand among the drafts.
    let mut place: Vec<usize> = Vec::new();
    let mut gathered: Vec<(LayerId, Gather, usize)> = Vec::new();
    for (id, node) in whole.iter() {
        let mut inputs = Vec::new();
        for input in &node.inputs {
            let Some(gather) = gather(whole, &outputs, &gradients, *input, id) else {
                inputs.push(place[input.index()]);
                continue;
            };
            let known = gathered.iter().find(|(of, kind, _)| (*of, *kind) == (*input, gather)).map(|(.., at)| *at);
            inputs.push(known.unwrap_or_else(|| {
                let from = whole.node(*input);
                let what = if gather == Gather::Scores { "scores" } else { "gathered" };
                let (name, layer) = (format!("{} {what}", from.name), Layer::gather(from.output));
                drafts.push(draft(name, layer, vec![place[input.index()]], 1.0));
                let gradient = if gather == Gather::Scores { AxisLayout::Replicated } else { AxisLayout::Partial };
                layers.push(placed(*input, AxisLayout::Replicated, gradient, Some(gather)));
                gathered.push((*input, gather, drafts.len() - 1));
                drafts.len() - 1
            }));
        }
        place.push(drafts.len());
        let output = outputs[id.index()];
        let share = node.layer.rule().share(ranks).filter(|_| output == FEATURES);
        let part = share.unwrap_or_else(|| node.layer.clone());
        drafts.push(draft(node.name.clone(), part, inputs, node.loss_weight));
        layers.push(placed(id, output, gradients[id.index()], None));
    }
    let model = Model::build(whole.name().to_owned(), whole.source().to_owned(), drafts)?;
    Ok((model, layers))
}

pub(super) fn draft(name: String, layer: Layer, inputs: Vec<usize>, loss_weight: f32) -> Draft {
    Draft { name, layer, inputs, inits: Default::default(), loss_weight, place: "a rank's part of the model".into() }
}

/// How each layer's output lies.
fn outputs(whole: &Model, ranks: u32, front: &dyn Fn(LayerId) -> bool) -> Result<Vec<AxisLayout>, InputError> {
    let mut layouts: Vec<AxisLayout> = Vec::new();
    for (id, node) in whole.iter() {
        let split_inputs = node.inputs.iter().all(|input| layouts[input.index()] == FEATURES);
        let before_vector = whole.consumers(id).iter().all(|id| whole.node(*id).layer.rule().kind().flattens);
        layouts.push(if front(id) {
            SAMPLES
        } else {
            match node.layer.rule().features(split_inputs, before_vector).map_err(|why| refusal(node, why))? {
                FeatureRule::Rows if node.output.channels < ranks => return Err(too_few_rows(node, ranks)),
                FeatureRule::Rows => FEATURES,
                FeatureRule::Follows if split_inputs => FEATURES,
                FeatureRule::Follows | FeatureRule::Whole => AxisLayout::Replicated,
            }
        });
    }
    Ok(layouts)
}

fn too_few_rows(node: &Node, ranks: u32) -> InputError {
    let rows = node.output.channels;
    let message = format!("{} has {rows} rows, too few for {ranks} ranks: take at most {rows}", node.name);
    InputError::flag("ranks", ranks.to_string(), message)
}

fn refusal(node: &Node, why: &str) -> InputError {
    let message = format!(
        "{} ({}) {why}, so that it cannot be split by features: take another model, or ssgd",
        node.name,
        node.layer.kind()
    );
    InputError::flag("strategy", "model-parallel layers", message)
}

/// How the gradient of each layer's output lies: where a rank computes it with its own rows only, as a partial sum. It stays
/// one through layers without weights, whose backward passes are linear in it.
fn gradients(whole: &Model, outputs: &[AxisLayout]) -> Result<Vec<AxisLayout>, InputError> {
    let mut layouts = outputs.to_vec();
    for (id, node) in whole.iter().rev() {
        if outputs[id.index()] != AxisLayout::Replicated || node.layer.is_loss() {
            continue;
        }
        let partial = |consumer: &LayerId| given_by(whole, outputs, &layouts, *consumer) == AxisLayout::Partial;
        let count = whole.consumers(id).iter().filter(|consumer| partial(consumer)).count();
        if count > 0 && count < whole.consumers(id).len() {
            return Err(refusal(node, "feeds layers that are split and a loss that is not"));
        }
        layouts[id.index()] = if count > 0 { AxisLayout::Partial } else { AxisLayout::Replicated };
    }
    Ok(layouts)
}

/// What `consumer` gives as gradient of an input of which all ranks have everything.
fn given_by(whole: &Model, outputs: &[AxisLayout], gradients: &[AxisLayout], consumer: LayerId) -> AxisLayout {
    let split = outputs[consumer.index()] == FEATURES;
    match whole.node(consumer).layer.is_loss() {
        true => AxisLayout::Replicated,
        false if split => AxisLayout::Partial,
        false => gradients[consumer.index()],
    }
}

/// The gather that must stand between `input` and its consumer.
fn gather(
    whole: &Model,
    outputs: &[AxisLayout],
    gradients: &[AxisLayout],
    input: LayerId,
    consumer: LayerId,
) -> Option<Gather> {
    let weighs = whole.node(consumer).is_product();
    match (outputs[input.index()], outputs[consumer.index()]) {
        (SAMPLES, AxisLayout::Replicated | FEATURES) => Some(Gather::Samples),
        (FEATURES, FEATURES) if weighs => Some(Gather::Features),
        (FEATURES, AxisLayout::Replicated) => {
            let partial = given_by(whole, outputs, gradients, consumer) == AxisLayout::Partial;
            Some(if partial { Gather::Features } else { Gather::Scores })
        }
        _ => None,
    }
}
