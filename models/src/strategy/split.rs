//! Builds the graph of a step in which some layers are split by features: gathers where a layer needs what all ranks
//! have, returns where gradients are partial sums, allreduces for the weights that all ranks hold, and, only along the
//! other axes, for a rank's own rows.

use std::fmt;
use std::sync::Arc;

use petgraph::graph::NodeIndex;

use lockstep_topology::{Algorithm, Collective, ErrorPlace, InputError, Library};

use super::buckets::{Cut, Ends, cuts_of, layers_by_chunk, update};
use super::zero::{self, Sharing};
use super::{Shard, ssgd};
use crate::graph::{NodeWork, Scope, Tensor};
use crate::model::{NODE_FIRST, shard};
use crate::{Axis, AxisSet, Gather, Graph, Job, LayerId, Layout, Mesh, Model, Pass, PassRanks, Piece, Sharding};

/// Which layers are split, along which axis, and which samples run through them.
pub(super) struct SplitLayers {
    /// The ranks.
    pub(super) mesh: Mesh,
    /// The axis along which layers are split.
    pub(super) axis: Axis,
    /// By layer: whether each rank has it whole.
    pub(super) front: Vec<bool>,
    /// The samples of each pass through the layers that are split.
    pub(super) passes: Vec<Vec<Piece>>,
    /// Whether split layers are updated after each pass (Krizhevsky 2014 §4.2).
    pub(super) variable_batch: bool,
    /// Whether a layer after one that is split by rows is split by columns (Shoeybi et al. 2019 §3).
    pub(super) pairs: bool,
    /// Whether ranks with the same rows shard their optimizer state.
    pub(super) shares_state: bool,
}

impl SplitLayers {
    /// Every layer with weights, along `tensor`.
    ///
    /// # Errors
    /// More ranks than a mesh may have.
    pub(super) fn all(job: &Job, (pairs, shares_state): (bool, bool)) -> Result<SplitLayers, InputError> {
        Ok(SplitLayers {
            mesh: job.mesh.clone().map_or_else(|| Mesh::new(&[(Axis::Tensor, job.workers)]), Ok)?,
            axis: Axis::Tensor,
            front: vec![false; job.model.layers().len()],
            // Without a mesh each rank contributes its own batch, and all take all of them.
            passes: vec![everything(if job.mesh.is_some() { 1 } else { job.workers }, job.batch_per_rank)],
            variable_batch: false,
            pairs,
            shares_state,
        })
    }

    /// The graph of one step, and the model of each rank.
    ///
    /// # Errors
    /// A model that cannot be split, several micro-batches, dedicated servers, MPI's allreduce.
    pub(super) fn graph(self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let SplitLayers { mesh, axis, front, passes, variable_batch, pairs, shares_state } = self;
        refuse(job, variable_batch)?;
        let ranks = mesh.size(axis);
        if ranks == 1 {
            // Each rank has every layer whole.
            return Ok((if shares_state { zero::graph(job) } else { ssgd::graph(job) }?, None));
        }
        let outside = mesh.axes().without(axis).without(Axis::Pipeline);
        let refused = |error: InputError| match error.place {
            ErrorPlace::Flag("ranks") if job.mesh.is_some() => error.at(ErrorPlace::Flag("mesh")),
            ErrorPlace::Flag("strategy") => InputError { value: job.strategy.to_string(), ..error },
            _ => error,
        };
        let front = |id: LayerId| front[id.index()];
        let several = passes.iter().any(|pass| pass.len() > 1);
        let (model, layers) = shard(&job.model, (axis, ranks), outside, &front, (pairs, several)).map_err(refused)?;
        let whole = Arc::clone(&job.model);
        let pass_ranks = PassRanks::All;
        let sharding = Sharding { whole, axis, ranks, layers, passes, pass_ranks, variable_batch };
        let sharing = if shares_state { Sharing::of(&mesh) } else { None };
        let graph = graph(job, &model, (&sharding, sharing), mesh)?;
        Ok((graph, Some((Arc::new(model), Arc::new(sharding)))))
    }
}

/// The setting of `name`, a strategy that splits layers along `tensor`, with which its ranks shard the optimizer state.
const SHARES_STATE: &str = "zero-1";

/// Reads the settings after such a name: whether its ranks do.
pub(super) fn parse(name: &str, settings: &str) -> Result<bool, String> {
    match settings {
        "" => Ok(false),
        SHARES_STATE => Ok(true),
        _ => Err(format!(
            "{name} has no setting {settings:?}; there is: {SHARES_STATE}, which shares the optimizer's state out along data"
        )),
    }
}

/// Writes the setting in the form that is read.
pub(super) fn write(f: &mut fmt::Formatter<'_>, name: &str, shares_state: bool) -> fmt::Result {
    if shares_state { write!(f, "{name}:{SHARES_STATE}") } else { f.write_str(name) }
}

/// The axes of such a strategy; the state is sharded along `device` where there is one.
pub(super) fn axes(shares_state: bool) -> AxisSet {
    let without = AxisSet::of(&[Axis::Pipeline, Axis::Data, Axis::Tensor]);
    if shares_state { without.or(zero::AXES) } else { without }
}

/// All samples of all ranks.
pub(super) fn everything(ranks: u32, samples: u32) -> Vec<Piece> {
    (0..ranks).map(|worker| Piece { worker, first: 0, count: samples }).collect()
}

/// Refuses settings that strategies with split layers do not take.
fn refuse(job: &Job, varies: bool) -> Result<(), InputError> {
    let strategy = &job.strategy;
    if job.accumulate > 1 && varies {
        let message = format!(
            "{strategy} updates split layers with each pass, and not once in several micro-batches: use 1 and a larger batch per rank"
        );
        return Err(InputError::flag("accumulate", job.accumulate.to_string(), message));
    }
    let unserved = |of: &&Algorithm| of.servers() > 0 || of.library() == Some(Library::Transport);
    if let Some(algorithm) = job.algorithms().find(unserved) {
        let message = format!("does not serve {strategy}, whose ranks all exchange activations meanwhile: use ring");
        return Err(job.of_axis(InputError::flag("algorithm", algorithm.to_string(), message)));
    }
    Ok(())
}

/// The graph of one step of a rank's `model` on the ranks of `mesh`.
///
/// # Errors
/// As [`Job::stages`].
pub(super) fn graph(
    job: &Job,
    model: &Model,
    (sharding, sharing): (&Sharding, Option<Sharing>),
    mesh: Mesh,
) -> Result<Graph, InputError> {
    let mut builder = Builder {
        model,
        sharding,
        graph: Graph::new(model, mesh),
        forward: Vec::new(),
        upstream: vec![Vec::new(); model.layers().len()],
        weight: vec![None; model.layers().len()],
        data: vec![None; model.layers().len()],
    };
    builder.forward_passes();
    for id in (1..model.layers().len() as u32).rev().map(LayerId) {
        builder.backward_passes(id);
    }
    builder.updates(job, sharing)?;
    Ok(builder.graph)
}

struct Builder<'a> {
    model: &'a Model,
    sharding: &'a Sharding,
    graph: Graph,
    /// By layer: the nodes that make its output, the gradient of its output, of its parameters, of its inputs.
    forward: Vec<NodeIndex>,
    upstream: Vec<Vec<NodeIndex>>,
    weight: Vec<Option<NodeIndex>>,
    data: Vec<Option<NodeIndex>>,
}

impl Builder<'_> {
    fn scope(&self, id: LayerId) -> Scope {
        if self.sharding.in_passes(id) { Scope::Pass } else { Scope::MicroBatch }
    }

    /// Along which axis gathers and returns change layouts.
    fn across(&self) -> AxisSet {
        AxisSet::of(&[self.sharding.axis])
    }

    fn output(&self, id: LayerId) -> Layout {
        self.sharding.layers[id.index()].output
    }

    /// An edge for each input's output.
    fn take_inputs(&mut self, id: LayerId, node: NodeIndex) {
        for input in &self.model.node(id).inputs {
            self.graph.edge(self.forward[input.index()], node, Tensor::Activation(*input), self.output(*input));
        }
    }

    /// Scatters a node's samples from its first rank, which has loaded them.
    fn hand_out(&mut self, load: NodeIndex) -> NodeIndex {
        let (layer, collective) = (LayerId(0), Some(Collective::Scatter { root: 0 }));
        let scatter = NodeWork::Relayout { layer, pass: Pass::Forward, collective, axes: self.across() };
        let scatter = self.graph.node(scatter, Scope::MicroBatch);
        self.graph.edge(load, scatter, Tensor::Activation(layer), NODE_FIRST);
        scatter
    }

    fn forward_passes(&mut self) {
        let load = self.graph.node(NodeWork::Load, Scope::MicroBatch);
        let input = match self.sharding.pass_ranks {
            PassRanks::All => load,
            PassRanks::FirstOfNode => self.hand_out(load),
        };
        self.forward.push(input);
        for id in (1..self.model.layers().len() as u32).map(LayerId) {
            let work = match self.sharding.layers[id.index()].gather {
                Some(gather) => self.relayout(id, Pass::Forward, gather),
                None => NodeWork::Layer(id, Pass::Forward),
            };
            let node = self.graph.node(work, self.scope(id));
            self.take_inputs(id, node);
            self.forward.push(node);
            if self.model.node(id).layer.is_loss() {
                // A loss is its own upstream.
                self.upstream[id.index()].push(node);
            }
        }
    }

    /// The change of layout of a gather's input (forward), or of its gradient.
    fn relayout(&self, layer: LayerId, pass: Pass, gather: Gather) -> NodeWork {
        let (forward, backward) = match gather {
            Gather::Samples | Gather::Features => (Some(Collective::AllGather), Some(Collective::ReduceScatter)),
            Gather::Scores => (Some(Collective::AllGather), None),
            Gather::Node => (Some(Collective::Gather { root: 0 }), Some(Collective::Scatter { root: 0 })),
            Gather::Sums => (Some(Collective::AllReduce), None),
            Gather::Returns => (None, Some(Collective::AllReduce)),
        };
        let collective = if pass == Pass::Forward { forward } else { backward };
        // Scores are cut where nothing is sent; whole tensors stay whole.
        let stays = collective.is_none() && gather != Gather::Scores;
        NodeWork::Relayout { layer, pass, collective, axes: if stays { AxisSet::default() } else { self.across() } }
    }

    fn backward_passes(&mut self, id: LayerId) {
        let (model, layer) = (self.model, &self.sharding.layers[id.index()]);
        let mut works = Vec::new();
        if !model.node(id).parameters.is_empty() {
            works.push(NodeWork::Layer(id, Pass::BackwardWeight));
        }
        if model.needs_input_gradient(id) {
            let pass = Pass::BackwardData;
            works.push(layer.gather.map_or(NodeWork::Layer(id, pass), |gather| self.relayout(id, pass, gather)));
        }
        for work in works {
            let is_weight = matches!(work, NodeWork::Layer(_, Pass::BackwardWeight));
            let returns = matches!(work, NodeWork::Relayout { .. });
            let node = self.graph.node(work, self.scope(id));
            for from in self.upstream[id.index()].clone() {
                self.graph.edge(from, node, Tensor::ActivationGradient(id), layer.gradient);
            }
            if !returns {
                self.take_inputs(id, node);
            }
            if is_weight {
                self.weight[id.index()] = Some(node);
            } else {
                self.data[id.index()] = Some(node);
                model.node(id).inputs.iter().for_each(|input| self.upstream[input.index()].push(node));
            }
        }
    }

    fn updates(&mut self, job: &Job, sharing: Option<Sharing>) -> Result<(), InputError> {
        let (model, sharding) = (self.model, self.sharding);
        let by_pass = sharding.variable_batch;
        // Ranks of another stage have other layers.
        let all = self.graph.mesh.axes().without(Axis::Pipeline);
        // Where no other axis splits the samples, the gradient of a rank's own rows is whole.
        let others = all.without(sharding.axis);
        let chunks = layers_by_chunk(job, model)?;
        for (in_passes, scope, axes) in
            [(true, if by_pass { Scope::Pass } else { Scope::Step }, others), (false, Scope::Step, all)]
        {
            let cuts = chunks.iter().rev().flat_map(|chunk| {
                let is_of = |id: &LayerId| sharding.in_passes(*id) == in_passes;
                let layers: Vec<LayerId> = chunk.iter().copied().filter(is_of).collect();
                cuts_of(model, job.bucket, &layers)
            });
            let buckets: Vec<Ends> = cuts.map(|cut| self.ends(&cut)).collect();
            match sharing {
                Some(sharing) => sharing.share_state(&mut self.graph, &buckets),
                None => buckets.iter().for_each(|bucket| update(&mut self.graph, bucket, scope, axes)),
            }
        }
        Ok(())
    }

    fn ends(&self, cut: &Cut) -> Ends {
        let weights = |id: &LayerId| Layout::new(self.across(), self.sharding.weights(*id));
        let maker = |id: &LayerId| Some((self.weight[id.index()]?, weights(id)));
        let readers = |id: &LayerId| {
            let passes = [Some(self.forward[id.index()]), self.data[id.index()]];
            passes.map(|node| node.map(|node| (node, weights(id)))).into_iter().flatten()
        };
        Ends {
            range: cut.range.clone(),
            makers: cut.layers.iter().filter_map(maker).collect(),
            readers: cut.layers.iter().flat_map(readers).collect(),
        }
    }
}
