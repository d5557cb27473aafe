//! Cuts out the part of a model that one rank holds where a table splits its layers: the same layers with fewer rows or
//! columns, and changes of layout between them.
//!
//! A layer with weights keeps ⌈rows / ranks⌉ of them, so every rank has the same model; the last ranks' rows beyond the
//! end are zeros that stay zeros, and the slowest rank has as many rows anyway. A layer that keeps columns makes summands;
//! their sum follows, and then a layer for the bias. A change of layout is a layer that computes nothing: an exchange or a
//! copy fills its output. A loss whose classes ranks share is three layers: what a rank finds in its part, a change of layout by
//! which all ranks have what all found, and the loss of that.

mod place;
mod table;

use lockstep_topology::InputError;

use super::build::Draft;
use super::{LayerId, Model, Node};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Layer, Layout, PARTIAL_NUMBERS, Shape};
use place::{Need, Placement, place};
pub(crate) use table::{Entry, Names, Table};

pub(crate) const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
pub(crate) const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
pub(crate) const COLUMNS: AxisLayout = AxisLayout::Split(Dimension::Input);
pub(crate) const VOCABULARY: AxisLayout = AxisLayout::Split(Dimension::Vocabulary);
const WHOLE: AxisLayout = AxisLayout::Replicated;

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

/// The model of one of the `ranks` ranks along `axis` where the layers of `whole` lie as `table` states. On `outside`, other
/// axes of the mesh, samples are split. `several`: whether samples of several ranks' batches go through the split layers at
/// once. `sample_parts`: parts into which the rows of each sample are split where a rank has its own samples.
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
    sample_parts: u32,
) -> Result<(Model, Vec<ShardLayer>), InputError> {
    let placement = place(whole, table, (ranks, sample_parts))?;
    if whole.tie().is_some_and(|tie| !placement.serves(tie)) {
        whole.refuse_tie(("strategy", String::new(), "splits one of two layers"))?;
    }
    if several {
        check_statistics(whole, &placement)?;
    }
    let mut parts = Parts { outside, axis, sample_parts, drafts: Vec::new(), layers: Vec::new() };
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
        let in_parts = node.layer.is_loss() && made == AxisLayout::Partial;
        if let Some((part, merged)) = in_parts.then(|| rule.in_parts(node.input_shapes[0], ranks)).flatten() {
            at.push(parts.merge((id, node), (part, merged), inputs, ranks));
            continue;
        }
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
    let model = Model::build_part(whole.name().to_owned(), whole.source().to_owned(), &parts.drafts)?;
    Ok((model, parts.layers))
}

/// The layers of a rank's model, as far as they are listed.
struct Parts {
    outside: AxisSet,
    axis: Axis,
    sample_parts: u32,
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

    /// Adds a loss whose classes ranks share: what a rank finds in its part, all of it on every rank, and the loss of that.
    fn merge(
        &mut self,
        (id, node): (LayerId, &Node),
        (part, merged): (Layer, Layer),
        inputs: Vec<usize>,
        ranks: u32,
    ) -> usize {
        let part = draft(format!("{} part", node.name), part, inputs, 1.0);
        let at = self.push(part, (id, FEATURES, FEATURES), FEATURES);
        let all = node.input_shapes[0].with_features(PARTIAL_NUMBERS * ranks);
        let all = self.change((id, node, all), at, (WHOLE, WHOLE));
        let merged = draft(node.name.clone(), merged, vec![all], node.loss_weight);
        self.push(merged, (id, WHOLE, WHOLE), WHOLE)
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
        let parts = if output == SAMPLES { self.sample_parts } else { 1 };
        let shape = shape.part_of_rows(parts).expect("rows that the parts divide");
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
