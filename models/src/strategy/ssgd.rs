//! Synchronous data-parallel SGD: batch-split activations, replicated weights, partial-sum gradients, an allreduce per bucket.
//!
//! A bucket's allreduce depends only on the backward passes of its own layers, so it overlaps the rest of the backward pass
//! (Goyal et al. 2017 §4).

use std::ops::Range;

use petgraph::graph::NodeIndex;

use lockstep_topology::Collective;

use crate::graph::{Scope, Tensor, Work};
use crate::{Bucket, Graph, Job, Layer, LayerId, Layout, Model, Pass};

/// Layers of a bucket, in backward order, and their range of the gradient arena.
struct Cut {
    layers: Vec<LayerId>,
    range: Range<u64>,
}

/// Cuts the gradient arena from its end, as backward passes fill it.
fn cuts(model: &Model, bucket: Bucket) -> Vec<Cut> {
    let full = |cut: &Cut| match bucket {
        Bucket::Layer => true,
        Bucket::Whole => false,
        Bucket::Size(bytes) => (cut.range.end - cut.range.start) * 4 >= bytes.0,
    };
    let mut cuts: Vec<Cut> = Vec::new();
    for id in (0..model.layers().len() as u32).rev().map(LayerId) {
        let parameters = &model.node(id).parameters;
        let (Some(first), Some(last)) = (parameters.first(), parameters.last()) else { continue };
        match cuts.last_mut() {
            Some(cut) if !full(cut) => {
                cut.range.start = first.range.start;
                cut.layers.push(id);
            }
            _ => cuts.push(Cut { layers: vec![id], range: first.range.start..last.range.end }),
        }
    }
    cuts
}

/// The graph of one step.
pub(super) fn graph(job: &Job) -> Graph {
    let model = &job.model;
    let mut graph = Graph::default();
    let layers = model.layers().len();
    let all = || (0..layers as u32).map(LayerId);

    let load = graph.node(Work::Load, Scope::MicroBatch);
    let mut forward = vec![load; layers];
    for id in all().skip(1) {
        let node = graph.node(Work::Layer(id, Pass::Forward), Scope::MicroBatch);
        for input in &model.node(id).inputs {
            graph.edge(forward[input.0 as usize], node, Tensor::Activation(*input), Layout::BatchSplit);
        }
        forward[id.0 as usize] = node;
    }

    // A loss is its own upstream: its backward pass starts from its own forward pass.
    let mut upstream: Vec<Vec<NodeIndex>> = vec![Vec::new(); layers];
    let (mut weight, mut data): (Vec<Option<NodeIndex>>, Vec<Option<NodeIndex>>) =
        (vec![None; layers], vec![None; layers]);
    for id in all().filter(|id| model.node(*id).layer.is_loss()) {
        upstream[id.index()].push(forward[id.index()]);
    }
    for id in all().skip(1).collect::<Vec<_>>().into_iter().rev() {
        let i = id.0 as usize;
        let node = model.node(id);
        let mut passes = Vec::new();
        // Parameter gradients first: their exchange can start while the data gradient goes on.
        if !node.parameters.is_empty() {
            passes.push(Pass::BackwardWeight);
        }
        if model.needs_input_gradient(id) {
            passes.push(Pass::BackwardData);
        }
        for pass in passes {
            let this = graph.node(Work::Layer(id, pass), Scope::MicroBatch);
            for from in upstream[i].clone() {
                graph.edge(from, this, Tensor::ActivationGradient(id), Layout::BatchSplit);
            }
            for input in &node.inputs {
                graph.edge(forward[input.0 as usize], this, Tensor::Activation(*input), Layout::BatchSplit);
            }
            match pass {
                Pass::BackwardWeight => weight[i] = Some(this),
                _ => {
                    data[i] = Some(this);
                    node.inputs.iter().for_each(|input| upstream[input.0 as usize].push(this));
                }
            }
        }
        debug_assert!(!matches!(node.layer, Layer::Input(_)));
    }

    for cut in cuts(model, job.bucket) {
        let producers: Vec<NodeIndex> = cut.layers.iter().filter_map(|id| weight[id.0 as usize]).collect();
        let collective = Work::Collective { collective: Collective::AllReduce, range: cut.range.clone() };
        let reduce = graph.node(collective, Scope::Step);
        let update = graph.node(Work::Update { range: cut.range.clone() }, Scope::Step);
        for from in producers {
            graph.edge(from, reduce, Tensor::WeightGradient, Layout::PartialSum);
        }
        graph.edge(reduce, update, Tensor::WeightGradient, Layout::Replicated);
        for id in &cut.layers {
            graph.weights(update, forward[id.0 as usize], Layout::Replicated);
            if let Some(node) = data[id.0 as usize] {
                graph.weights(update, node, Layout::Replicated);
            }
        }
    }
    graph
}
