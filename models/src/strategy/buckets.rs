//! Cuts parameters into buckets, ranges that are exchanged together, as the backward pass fills them, and routes them
//! through a graph.

use std::ops::Range;

use lockstep_topology::{Collective, Dtype, InputError};
use petgraph::graph::NodeIndex;

use super::passes::Passes;
use crate::graph::{NodeWork, Scope, Tensor};
use crate::{Axis, AxisLayout, AxisSet, Bucket, Graph, Job, LayerId, Layout, Model};

/// Layers of a bucket, in backward order, and their range of the gradient arena.
pub(super) struct Cut {
    pub(super) layers: Vec<LayerId>,
    pub(super) range: Range<u64>,
    /// Whether it is a parameter of layers of two stages, which each make a summand of its gradient.
    pub(super) of_two_stages: bool,
}

/// A bucket between two nodes of a graph: the nodes that made its tensors, and their layouts.
pub(super) type Flow = Vec<(NodeIndex, Layout)>;

/// Routes a bucket's tensors to a node; returns the flow after it, with the layouts that they then have along `axes`.
pub(super) fn through(
    graph: &mut Graph,
    flow: &Flow,
    (node, tensor): (NodeIndex, Tensor),
    (axes, to): (AxisSet, AxisLayout),
) -> Flow {
    let mut behind = Flow::new();
    for (from, layout) in flow {
        graph.edge(*from, node, tensor, *layout);
        let made = (node, layout.with_each(axes, to));
        behind.extend((!behind.contains(&made)).then_some(made));
    }
    behind
}

/// A bucket: the passes that make its gradients and those that read its weights, with the layout of the weights where
/// they are read.
pub(super) struct Ends {
    pub(super) range: Range<u64>,
    /// Axes along which ranks make summands of its gradients.
    pub(super) partial: AxisSet,
    pub(super) makers: Flow,
    pub(super) readers: Flow,
    /// As of [`Cut::of_two_stages`].
    pub(super) of_two_stages: bool,
}

impl Ends {
    /// Those of a bucket of layers whose weights have these layouts, where ranks along `partial` have different samples.
    pub(super) fn of(cut: &Cut, passes: &Passes, partial: AxisSet, weights: impl Fn(LayerId) -> Layout) -> Ends {
        // Layers that share a parameter name what they split of it by what it is to them.
        let sharers: Vec<(LayerId, Layout)> =
            cut.layers.iter().flat_map(|id| passes.sharers(*id)).map(|id| (id, weights(id))).collect();
        let maker = |(id, layout): &(LayerId, Layout)| passes.weight[id.index()].map(|node| (node, *layout));
        let reader = |(id, layout): &(LayerId, Layout)| {
            let layout = *layout;
            passes.own_readers(*id).map(move |node| (node, layout))
        };
        Ends {
            range: cut.range.clone(),
            partial,
            makers: sharers.iter().filter_map(maker).collect(),
            readers: sharers.iter().flat_map(reader).collect(),
            of_two_stages: cut.of_two_stages,
        }
    }

    /// The bucket's gradients as backward passes make them.
    pub(super) fn made(&self) -> Flow {
        let stages = AxisSet::of(if self.of_two_stages { &[Axis::Pipeline] } else { &[] });
        let partial = |layout: Layout| layout.with_each(self.partial.or(stages), AxisLayout::Partial);
        self.makers.iter().map(|(node, layout)| (*node, partial(*layout))).collect()
    }

    /// Adds what the other stage has made, if there is one, to gradients that are summed along the other axes.
    pub(super) fn with_other_stage(&self, graph: &mut Graph, flow: Flow, scope: Scope) -> (Option<NodeIndex>, Flow) {
        if !self.of_two_stages {
            return (None, flow);
        }
        let (collective, axes) = (Collective::AllReduce, AxisSet::of(&[Axis::Pipeline]));
        let node = graph.node(NodeWork::Collective { collective, axes, range: self.range.clone() }, scope);
        let summed = through(graph, &flow, (node, Tensor::WeightGradient), (axes, AxisLayout::Replicated));
        (Some(node), summed)
    }

    /// Those of a bucket of whole layers.
    pub(super) fn of_whole(cut: &Cut, passes: &Passes, partial: AxisSet) -> Ends {
        Ends::of(cut, passes, partial, |_| Layout::REPLICATED)
    }
}

/// The update of a bucket, and before it the sum of its gradients, where ranks make summands.
pub(super) fn update(graph: &mut Graph, bucket: &Ends, scope: Scope) {
    let axes = bucket.partial;
    let mut flow = bucket.made();
    let summed = (axes, AxisLayout::Replicated);
    if !axes.is_empty() {
        let work = NodeWork::Collective { collective: Collective::AllReduce, axes, range: bucket.range.clone() };
        let reduce = graph.node(work, scope);
        flow = through(graph, &flow, (reduce, Tensor::WeightGradient), summed);
    }
    let (_, flow) = bucket.with_other_stage(graph, flow, scope);
    let update = graph.update(bucket.range.clone(), scope);
    through(graph, &flow, (update, Tensor::WeightGradient), summed);
    bucket.readers.iter().for_each(|(node, layout)| graph.weights(update, *node, *layout));
}

/// Cuts the gradient arena from its end, as backward passes fill it; no bucket holds layers of two chunks
/// of a pipeline.
///
/// # Errors
/// As [`Job::stages`].
pub(super) fn cuts(job: &Job) -> Result<Vec<Cut>, InputError> {
    let (layers, tied) = layers_by_chunk(job, &job.model)?;
    Ok(layers.iter().rev().flat_map(|layers| cuts_of((&job.model, tied), job.bucket, layers)).collect())
}

/// The layers of each chunk of a pipeline into which a rank's `model` is cut, all of them where it is not, and the layer whose
/// parameter another stage reads too.
///
/// # Errors
/// As [`Job::stages`].
pub(super) fn layers_by_chunk(job: &Job, model: &Model) -> Result<(Vec<Vec<LayerId>>, Option<LayerId>), InputError> {
    let all = 0..model.layers().len() as u32;
    let stages = job.stages_of(model)?;
    let tied = stages.as_ref().and_then(|stages| stages.between(model)).map(|(tie, _)| tie.owner);
    let chunks = stages.map_or(Vec::from([all]), |stages| stages.chunks().iter().map(|of| of.layers.clone()).collect());
    Ok((chunks.into_iter().map(|chunk| chunk.map(LayerId).collect()).collect(), tied))
}

/// The buckets of the gradients of `layers`; none spans parameters of others, nor has others beside the parameter of `tied`.
pub(super) fn cuts_of((model, tied): (&Model, Option<LayerId>), bucket: Bucket, layers: &[LayerId]) -> Vec<Cut> {
    let full = |cut: &Cut| match bucket {
        Bucket::Layer | Bucket::Tensor => true,
        Bucket::Whole => false,
        // Whatever the format of gradients, so that it does not change the buckets.
        Bucket::Size(bytes) => Dtype::F32.bytes(cut.range.end - cut.range.start) >= bytes.0,
    };
    let mut cuts: Vec<Cut> = Vec::new();
    for id in layers.iter().rev().copied() {
        let parameters = &model.node(id).parameters;
        let (Some(first), Some(last)) = (parameters.first(), parameters.last()) else { continue };
        if bucket == Bucket::Tensor {
            let tensors = parameters.iter().rev();
            let cut = |range| Cut { layers: vec![id], range, of_two_stages: tied == Some(id) };
            cuts.extend(tensors.map(|tensor| cut(tensor.range.clone())));
            continue;
        }
        match cuts.last_mut() {
            Some(cut) if !(full(cut) || cut.of_two_stages || tied == Some(id)) && cut.range.start == last.range.end => {
                cut.range.start = first.range.start;
                cut.layers.push(id);
            }
            _ => {
                let range = first.range.start..last.range.end;
                cuts.push(Cut { layers: vec![id], range, of_two_stages: tied == Some(id) });
            }
        }
    }
    cuts
}
