//! Cuts out the part of a model that one rank holds when layers are split by features: the same layers with fewer rows,
//! and gathers.
//!
//! A layer with weights keeps ⌈rows / ranks⌉ of them, so every rank has the same model; the last ranks' rows beyond the
//! end are zeros that stay zeros, and the slowest rank has as many rows anyway. A gather precedes each layer that needs
//! what all ranks have; it is filled by an exchange and computes nothing. Alternatively a layer keeps the columns for
//! the features that the layer before left on its rank: then a gather after it sums over the ranks, and a layer for the
//! bias follows.

mod cut;

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::InputError;

use super::build::Draft;
use super::{LayerId, Model, Node};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Layer, Layout, Parameter};
use cut::{Cut, gradients, outputs};

const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
const COLUMNS: AxisLayout = AxisLayout::Split(Dimension::Input);

/// What a gather collects, and what happens to the returned gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gather {
    /// Samples of some or all ranks. The gradients are partial sums, which return to the ranks of the samples.
    Samples,
    /// Features of all ranks, for layers whose rows are split: the gradients are partial sums, each rank gets
    /// its features'.
    Features,
    /// Features of all ranks, for layers that every rank runs in full: the gradient is whole everywhere, so each rank
    /// takes its own features of it and nothing is sent.
    Scores,
    /// Partial outputs of a layer whose columns are split, added up on every rank. The gradient is whole everywhere.
    Sums,
    /// What every rank has already, for layers whose rows are split: their partial gradients are added up
    /// on every rank.
    Returns,
    /// Scores of a node's ranks on its first one, which alone computes the loss; each rank gets its samples'
    /// gradients back.
    Node,
}

impl Gather {
    /// The suffix of its layer's name after that of the gathered layer.
    fn what(self) -> &'static str {
        match self {
            Gather::Scores => "scores",
            Gather::Sums => "summed",
            Gather::Returns => "shared",
            Gather::Samples | Gather::Features | Gather::Node => "gathered",
        }
    }
}

/// A layer of a rank's model.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardLayer {
    /// The layer of the whole model whose output this is, or a part of it.
    pub origin: LayerId,
    /// The layout of its output over the ranks.
    pub output: Layout,
    /// The layout of the gradient of its output.
    pub gradient: Layout,
    /// Whether it is a gather, and which.
    pub gather: Option<Gather>,
}

/// Samples of one worker's micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The worker.
    pub worker: u32,
    /// The first of them in its micro-batch.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Which ranks run a pass through the layers after the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassRanks {
    /// All ranks along the axis, each with its part of the layers; the passes follow one another.
    All,
    /// The first rank of a node alone: a pass has the samples of the node, and nodes run theirs side by side.
    FirstOfNode,
}

/// How ranks' models were cut out of a whole one, and on which samples the part after the cut works.
#[derive(Debug, Clone)]
pub struct Sharding {
    /// What all ranks train together.
    pub whole: Arc<Model>,
    /// The axis along which ranks hold different parts, or take their samples to the parts.
    pub axis: Axis,
    /// The number of ranks along it.
    pub ranks: u32,
    /// By layer of a rank's model.
    pub layers: Vec<ShardLayer>,
    /// The samples of each pass through the split layers, by worker in ascending order, at most one piece each.
    pub passes: Vec<Vec<Piece>>,
    /// Which ranks run each of them.
    pub pass_ranks: PassRanks,
    /// Whether split layers are updated after each pass rather than after all of them (Krizhevsky 2014 §4.2).
    pub variable_batch: bool,
}

impl Sharding {
    /// Whether a layer of a rank's model runs in passes, after the cut.
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

    /// `, pass 2` after the name of a task in a pass, where a rank runs several.
    pub(crate) fn pass_suffix(&self, pass: usize) -> String {
        match self.pass_ranks {
            PassRanks::All if self.passes.len() > 1 => format!(", pass {}", pass + 1),
            PassRanks::All | PassRanks::FirstOfNode => String::new(),
        }
    }

    /// Samples that `rank` takes in pass number `pass`; none of a pass that another rank runs.
    pub(crate) fn samples_on(&self, rank: u32, pass: usize) -> u32 {
        match self.pass_ranks {
            PassRanks::FirstOfNode if self.passes[pass][0].worker != rank => 0,
            PassRanks::All | PassRanks::FirstOfNode => self.samples_of(pass),
        }
    }

    /// How many workers' losses `rank` computes: its own, or those of its node.
    pub(crate) fn losses_of(&self, rank: u32) -> usize {
        match self.pass_ranks {
            PassRanks::All => 1,
            PassRanks::FirstOfNode => self.passes.iter().find(|pass| pass[0].worker == rank).map_or(0, Vec::len),
        }
    }

    /// The layout of a layer's weights along the axis: by rows, by columns, or whole on every rank.
    pub fn weights(&self, id: LayerId) -> AxisLayout {
        let layer = &self.layers[id.index()];
        match (layer.output.on(self.axis), layer.gather) {
            (FEATURES, _) => FEATURES,
            (AxisLayout::Partial, None) => COLUMNS,
            _ => AxisLayout::Replicated,
        }
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

    /// Elements of one sample of the split output of layer `id` of its `model` that `part` holds, without padding: as
    /// many as the layer gives, or fewer where its last rows are padding.
    pub fn features(&self, model: &Model, id: LayerId, part: u32) -> u64 {
        let (own, whole) = (model.node(id).output, self.whole.node(self.layers[id.index()].origin).output);
        let rows = rows_of(u64::from(whole.features()), u64::from(own.features()), part);
        (rows.end - rows.start) * own.places()
    }

    /// Which elements of the whole model's parameters `part` holds, each range with where it begins in
    /// `model`, the part's.
    pub fn parameters(&self, model: &Model, part: u32) -> Vec<(Range<u64>, u64)> {
        let mut pieces = Vec::new();
        for ((id, node), layer) in model.iter().zip(&self.layers) {
            let weights = self.weights(id);
            for own in &node.parameters {
                let same = |all: &&Parameter| all.tensor() == own.tensor();
                let all = self.whole.node(layer.origin).parameters.iter().find(same).expect("a part of a tensor");
                match weights {
                    COLUMNS => pieces.extend(slices(all, own, 1, part)),
                    FEATURES => pieces.extend(slices(all, own, 0, part)),
                    _ => pieces.extend(slices(all, own, 0, 0)),
                }
            }
        }
        pieces
    }

    /// Elements of the whole model's running statistics, each range with where it begins in `model`'s: those of which
    /// `part` has a share, or without a part those that all have.
    pub fn statistics(&self, model: &Model, part: Option<u32>) -> Vec<(Range<u64>, u64)> {
        let mut pieces = Vec::new();
        for ((_, node), layer) in
            model.iter().zip(&self.layers).filter(|((id, _), _)| self.splits(*id) == part.is_some())
        {
            let (Some(own), Some(all)) = (&node.statistics, &self.whole.node(layer.origin).statistics) else {
                continue;
            };
            // Means, then variances.
            let [each, channels] = [own, all].map(|range| (range.end - range.start) / 2);
            let rows = rows_of(channels, each, part.unwrap_or(0));
            for half in 0..2 {
                let start = all.start + half * channels;
                pieces.push((start + rows.start..start + rows.end, own.start + half * each));
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

/// The elements of `all` that part number `part` along its dimension number `along` has, each range with where it begins in
/// `own`, the part.
fn slices(all: &Parameter, own: &Parameter, along: usize, part: u32) -> impl Iterator<Item = (Range<u64>, u64)> {
    let [each, own_each]: [Vec<u64>; 2] = [all, own].map(|of| of.shape.sizes().map(u64::from).collect());
    let (outer, inner): (u64, u64) = (each[..along].iter().product(), each[along + 1..].iter().product());
    let rows = rows_of(each[along], own_each[along], part);
    let (all_start, own_start) = (all.range.start, own.range.start);
    let slice = move |index: u64| {
        let start = all_start + index * each[along] * inner;
        let own = own_start + index * own_each[along] * inner;
        (start + rows.start * inner..start + rows.end * inner, own)
    };
    (0..outer).map(slice).filter(|(range, _)| !range.is_empty())
}

/// Rows of `all` that `part` has when each part takes up to `each`.
fn rows_of(all: u64, each: u64, part: u32) -> Range<u64> {
    (u64::from(part) * each).min(all)..((u64::from(part) + 1) * each).min(all)
}

/// The model of one of the `ranks` ranks along `axis` where `whole` is split after the layers for which `front` holds:
/// those stay whole. Where the input itself is not in front, each of the ranks has all samples. On `outside`, other
/// axes of the mesh, samples are split. With `pairs`, a layer whose inputs are split keeps columns, if the ranks divide
/// its inputs' channels. `several`: whether samples of several ranks' batches go through the split layers at once.
///
/// # Errors
/// Layers that cannot be split: fewer rows than ranks, grouped convolutions, batch normalisation of several batches
/// (its statistics would be other ones), and layers that need both a whole and a partial gradient.
pub(crate) fn shard(
    whole: &Model,
    (axis, ranks): (Axis, u32),
    outside: AxisSet,
    front: &dyn Fn(LayerId) -> bool,
    (pairs, several): (bool, bool),
) -> Result<(Model, Vec<ShardLayer>), InputError> {
    let placed = |origin, output, gradient, gather| {
        let [output, gradient] = [output, gradient].map(|layout| Layout::new(outside, SAMPLES).with(axis, layout));
        ShardLayer { origin, output, gradient, gather }
    };
    if several {
        check_statistics(whole, front)?;
    }
    let (outputs, columns) = outputs(whole, ranks, front, pairs)?;
    let cut = Cut { whole, outputs: &outputs, columns: &columns, pairs };
    let gradients = gradients(&cut)?;
    let mut drafts: Vec<Draft> = Vec::new();
    let mut layers: Vec<ShardLayer> = Vec::new();
    let mut push = |draft: Draft, layer: ShardLayer| {
        drafts.push(draft);
        layers.push(layer);
        drafts.len() - 1
    };
    // By layer of the whole model: the positions of its output and of its gathers among the drafts.
    let mut place: Vec<usize> = Vec::new();
    let mut gathered: Vec<(LayerId, Gather, usize)> = Vec::new();
    for (id, node) in whole.iter() {
        let mut inputs = Vec::new();
        for input in &node.inputs {
            let Some(gather) = cut.gather(&gradients, *input, id) else {
                inputs.push(place[input.index()]);
                continue;
            };
            let known = gathered.iter().find(|(of, kind, _)| (*of, *kind) == (*input, gather)).map(|(.., at)| *at);
            inputs.push(known.unwrap_or_else(|| {
                let from = whole.node(*input);
                let (name, layer) = (format!("{} {}", from.name, gather.what()), Layer::gather(from.output));
                let gradient = if gather == Gather::Scores { AxisLayout::Replicated } else { AxisLayout::Partial };
                let gatherer = draft(name, layer, vec![place[input.index()]], 1.0);
                let at = push(gatherer, placed(*input, AxisLayout::Replicated, gradient, Some(gather)));
                gathered.push((*input, gather, at));
                at
            }));
        }
        let output = outputs[id.index()];
        if columns[id.index()] {
            const WHOLE: AxisLayout = AxisLayout::Replicated;
            let (part, bias) = node.layer.rule().without_bias().expect("a layer whose columns are split");
            let part = draft(node.name.clone(), part, inputs, node.loss_weight);
            let at = push(part, placed(id, AxisLayout::Partial, WHOLE, None));
            let sums =
                draft(format!("{} {}", node.name, Gather::Sums.what()), Layer::gather(node.output), vec![at], 1.0);
            let at = push(sums, placed(id, WHOLE, WHOLE, Some(Gather::Sums)));
            place.push(at);
            if bias {
                let bias = draft(format!("{} bias", node.name), Layer::Bias, vec![at], 1.0);
                place[id.index()] = push(bias, placed(id, WHOLE, WHOLE, None));
            }
            continue;
        }
        let share = node.layer.rule().share(ranks).filter(|_| output == FEATURES);
        let part = share.unwrap_or_else(|| node.layer.clone());
        let part = draft(node.name.clone(), part, inputs, node.loss_weight);
        place.push(push(part, placed(id, output, gradients[id.index()], None)));
    }
    let model = Model::build(whole.name().to_owned(), whole.source().to_owned(), drafts)?;
    Ok((model, layers))
}

/// Refuses batch normalisation in split layers: its statistics would be of several ranks' batches.
fn check_statistics(whole: &Model, front: &dyn Fn(LayerId) -> bool) -> Result<(), InputError> {
    let normalises = |(id, node): &(LayerId, &Node)| node.statistics.is_some() && !front(*id);
    let Some((_, node)) = whole.iter().find(normalises) else { return Ok(()) };
    let message = format!(
        "{} ({}) has statistics of one rank's batch, and would take those of several: give model-parallel or megatron a mesh, \
         e.g. data=2,tensor=4, or use ssgd",
        node.name,
        node.layer.kind()
    );
    Err(InputError::flag("strategy", "", message))
}

pub(super) fn draft(name: String, layer: Layer, inputs: Vec<usize>, loss_weight: f32) -> Draft {
    let (inits, multipliers) = Default::default();
    Draft { name, layer, inputs, inits, multipliers, loss_weight, place: "a rank's part of the model".into() }
}
