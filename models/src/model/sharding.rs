//! `Sharding`: how ranks' models were cut out of a whole one, what each has of its parameters, and on which samples it works.

use std::ops::Range;
use std::sync::Arc;

use super::shard::{FEATURES, SAMPLES};
use super::{LayerId, Model, Node, ShardLayer};
use crate::{Axis, AxisLayout, Dimension, Parameter, Pass, Shape};

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
    /// Parts into which the rows of each sample are split, where there are fewer samples than ranks that share them; else 1.
    pub sample_parts: u32,
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
                self.samples_of(pass) * self.sample_parts / self.ranks
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
        let (own, origin) = (model.node(id).output, self.whole.node(self.layers[id.index()].origin));
        if origin.layer.is_loss() {
            // Numbers of a part, as many on every rank.
            return own.elements();
        }
        let whole = origin.output;
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
