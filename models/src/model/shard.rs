//! Cuts out the part of a model that one rank holds where a table splits its layers: the same layers with fewer rows or
//! columns, and changes of layout between them.
//!
//! A layer with weights keeps ⌈rows / ranks⌉ of them, so every rank has the same model; the last ranks' rows beyond the
//! end are zeros that stay zeros, and the slowest rank has as many rows anyway. A layer that keeps columns makes summands;
//! their sum follows, and then a layer for the bias. A change of layout is a layer that computes nothing: an exchange or a
//! copy fills its output.

mod place;
mod table;

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::InputError;

use super::build::Draft;
use super::{LayerId, Model, Node};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Layer, Layout, Parameter, Pass, Shape};
use place::{Need, Placement, place};
pub(crate) use table::{Entry, Names, Table};

pub(crate) const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
pub(crate) const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
pub(crate) const COLUMNS: AxisLayout = AxisLayout::Split(Dimension::Input);
pub(crate) const VOCABULARY: AxisLayout = AxisLayout::Split(Dimension::Vocabulary);

/// A layer of a rank's model.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardLayer {
    /// The layer of the whole model whose output this is, or a part of it.
    pub origin: LayerId,
    /// The layout of its output over the ranks.
    pub output: Layout,
    /// The layout of the gradient of its output.
    pub gradient: Layout,
    /// The layout of its weights along the axis: by rows, by columns, by entries of a table, or whole on every rank.
    pub weights: AxisLayout,
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
    /// Whether a layer of a rank's model runs in passes: after the cut, or all layers where each rank takes all samples.
    pub fn in_passes(&self, id: LayerId) -> bool {
        (self.in_all_passes() || !self.splits_samples(id)) && id.0 > 0
    }

    /// Whether all layers run in passes, so that each rank takes the samples of all of them.
    pub fn in_all_passes(&self) -> bool {
        self.layers[0].output.on(self.axis) == AxisLayout::Replicated
    }

    /// Whether ranks compute different samples of a layer's output.
    pub fn splits_samples(&self, id: LayerId) -> bool {
        self.layers[id.index()].output.on(self.axis) == SAMPLES
    }

    /// Whether ranks along the axis make summands of the gradient of parameters that they all hold: from their own samples, or
    /// their own heads.
    pub(crate) fn sums_gradient(&self, id: LayerId) -> bool {
        self.splits_samples(id) || self.splits(id) && self.weights(id) == AxisLayout::Replicated
    }

    /// Whether there are layers whose samples ranks split.
    pub(crate) fn any_splits_samples(&self) -> bool {
        self.layers.iter().any(|layer| layer.output.on(self.axis) == SAMPLES)
    }

    /// The layouts between which a layer of `model`, a rank's, changes its input's output, or the gradient of its own output;
    /// `None` of layers that compute.
    pub fn change(&self, model: &Model, id: LayerId, pass: Pass) -> Option<(AxisLayout, AxisLayout)> {
        let node = model.node(id);
        let (own, of_input) = (&self.layers[id.index()], &self.layers[node.inputs.first()?.index()]);
        let (from, to) =
            if pass == Pass::Forward { (of_input.output, own.output) } else { (own.gradient, of_input.gradient) };
        node.layer.is_relayout().then(|| (from.on(self.axis), to.on(self.axis)))
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

    /// Samples that `rank` takes in pass number `pass` through a layer, or of the input; none of a pass that another rank runs.
    pub(crate) fn samples_on(&self, rank: u32, layer: Option<LayerId>, pass: usize) -> u32 {
        match (self.pass_ranks, layer) {
            (PassRanks::FirstOfNode, _) if self.passes[pass][0].worker != rank => 0,
            (PassRanks::All, Some(id)) if self.in_all_passes() && self.splits_samples(id) => {
                self.samples_of(pass) / self.ranks
            }
            (PassRanks::All | PassRanks::FirstOfNode, _) => self.samples_of(pass),
        }
    }

    /// How many workers' losses `rank` computes: its own, or those of its node.
    pub(crate) fn losses_of(&self, rank: u32) -> usize {
        match self.pass_ranks {
            PassRanks::All => 1,
            PassRanks::FirstOfNode => self.passes.iter().find(|pass| pass[0].worker == rank).map_or(0, Vec::len),
        }
    }

    /// The layout of a layer's weights along the axis.
    pub fn weights(&self, id: LayerId) -> AxisLayout {
        self.layers[id.index()].weights
    }

    /// Whether ranks hold parts of the weights.
    pub fn splits_weights(&self) -> bool {
        self.layers.iter().any(|layer| layer.weights != AxisLayout::Replicated)
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
                match along(&own.shape, weights) {
                    Some(along) => pieces.extend(slices(all, own, along, part)),
                    None => pieces.extend(slices(all, own, 0, 0)),
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

/// The position of the dimension of a parameter of `shape` that weights in this layout are split along; `None` where ranks have
/// the parameter whole. Rows of a weight are its output's features.
fn along(shape: &Shape, weights: AxisLayout) -> Option<usize> {
    let AxisLayout::Split(split) = weights else { return None };
    let is_it = |own: Dimension| own == split || split == Dimension::Feature && own == Dimension::Output;
    shape.dimensions().iter().position(|(own, _)| is_it(*own))
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

/// The model of one of the `ranks` ranks along `axis` where the layers of `whole` lie as `table` states. On `outside`, other
/// axes of the mesh, samples are split. `several`: whether samples of several ranks' batches go through the split layers at
/// once.
///
/// # Errors
/// Layers that the table cannot place: fewer rows than ranks, grouped convolutions, batch normalisation of several batches
/// (its statistics would be other ones).
pub(crate) fn shard(
    whole: &Model,
    (axis, ranks): (Axis, u32),
    outside: AxisSet,
    table: &Table,
    several: bool,
) -> Result<(Model, Vec<ShardLayer>), InputError> {
    whole.refuse_tie(("strategy", String::new(), "splits layers, each by its own rows"))?;
    let placement = place(whole, table, ranks)?;
    if several {
        check_statistics(whole, &placement)?;
    }
    let mut parts = Parts { outside, axis, drafts: Vec::new(), layers: Vec::new() };
    // By layer of the whole model: where its output is among the drafts, and what it was changed to.
    let mut at: Vec<usize> = Vec::new();
    let mut changed: Vec<Vec<(Need, usize)>> = vec![Vec::new(); whole.layers().len()];
    for (id, node) in whole.iter() {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (number, input) in node.inputs.iter().enumerate() {
            let (from, source) = (whole.node(*input), at[input.index()]);
            inputs.push(match placement.change(id, number) {
                None => source,
                Some(need) => {
                    let known = changed[input.index()].iter().find(|(other, _)| *other == need).map(|(_, at)| *at);
                    known.unwrap_or_else(|| {
                        let shape = if need.input == FEATURES { part_of(from.output, ranks) } else { from.output };
                        let change = parts.change((*input, from, shape), source, (need.input, need.gradient));
                        changed[input.index()].push((need, change));
                        change
                    })
                }
            });
        }
        let (made, output) = placement.outputs(id);
        let (rule, weights) = (node.layer.rule(), placement.weights(id));
        let (part, bias) = match weights {
            COLUMNS => rule.without_bias().expect("a layer whose columns are split"),
            AxisLayout::Split(along) => (rule.share(along, ranks).unwrap_or_else(|| node.layer.clone()), false),
            // Heads that share weights.
            _ if made == FEATURES => {
                (rule.share(Dimension::Feature, ranks).unwrap_or_else(|| node.layer.clone()), false)
            }
            _ => (node.layer.clone(), false),
        };
        let part = draft(node.name.clone(), part, inputs, node.loss_weight);
        let gradient = if made == output { placement.gradient(id) } else { AxisLayout::Replicated };
        at.push(parts.push(part, (id, made, gradient), weights));
        if made != output {
            at[id.index()] = parts.change((id, node, node.output), at[id.index()], (output, placement.gradient(id)));
        }
        if bias {
            let bias = draft(format!("{} bias", node.name), Layer::Bias, vec![at[id.index()]], 1.0);
            at[id.index()] = parts.push(bias, (id, output, placement.gradient(id)), AxisLayout::Replicated);
        }
    }
    let model = Model::build(whole.name().to_owned(), whole.source().to_owned(), parts.drafts)?;
    Ok((model, parts.layers))
}

/// The layers of a rank's model, as far as they are listed.
struct Parts {
    outside: AxisSet,
    axis: Axis,
    drafts: Vec<Draft>,
    layers: Vec<ShardLayer>,
}

impl Parts {
    /// Adds a layer with its origin, the layouts of its output and of the gradient of its output, and that of its weights.
    fn push(
        &mut self,
        draft: Draft,
        (origin, output, gradient): (LayerId, AxisLayout, AxisLayout),
        weights: AxisLayout,
    ) -> usize {
        let [output, gradient] =
            [output, gradient].map(|layout| Layout::new(self.outside, SAMPLES).with(self.axis, layout));
        self.layers.push(ShardLayer { origin, output, gradient, weights });
        self.drafts.push(draft);
        self.drafts.len() - 1
    }

    /// Adds a change of the layout of a layer's output, which draft number `source` makes.
    fn change(
        &mut self,
        (origin, from, shape): (LayerId, &Node, Shape),
        source: usize,
        (output, gradient): (AxisLayout, AxisLayout),
    ) -> usize {
        let given = self.layers[source].output.on(self.axis);
        let name = format!("{} {}", from.name, change_name((given, output), gradient));
        let change = draft(name, Layer::relayout(shape), vec![source], 1.0);
        self.push(change, (origin, output, gradient), AxisLayout::Replicated)
    }
}

/// The suffix of the name of a change after that of the layer whose output it changes.
fn change_name((from, to): (AxisLayout, AxisLayout), gradient: AxisLayout) -> &'static str {
    match (from, to) {
        (AxisLayout::Partial, _) => "summed",
        (AxisLayout::Replicated, AxisLayout::Replicated) => "shared",
        (FEATURES, AxisLayout::Replicated) if gradient == AxisLayout::Replicated => "scores",
        (_, AxisLayout::Replicated) => "gathered",
        (AxisLayout::Replicated, _) => "divided",
        _ => "exchanged",
    }
}

/// Shape of a rank's part of the features of an output, the last one padded.
fn part_of(shape: Shape, ranks: u32) -> Shape {
    shape.with_features(shape.features().div_ceil(ranks))
}

/// Refuses batch normalisation in split layers: its statistics would be of several ranks' batches.
fn check_statistics(whole: &Model, placement: &Placement<'_>) -> Result<(), InputError> {
    let normalises = |(id, node): &(LayerId, &Node)| node.statistics.is_some() && placement.outputs(*id).1 != SAMPLES;
    let Some((_, node)) = whole.iter().find(normalises) else { return Ok(()) };
    let message = format!(
        "{} ({}) has statistics of one rank's batch, and would take those of several: give the strategy a mesh, e.g. \
         data=2,tensor=4, or use ssgd",
        node.name,
        node.layer.kind()
    );
    Err(InputError::flag("strategy", "", message))
}

pub(super) fn draft(name: String, layer: Layer, inputs: Vec<usize>, loss_weight: f32) -> Draft {
    let (inits, multipliers) = Default::default();
    Draft { name, layer, inputs, inits, multipliers, loss_weight, place: "a rank's part of the model".into() }
}
