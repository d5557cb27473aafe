//! Consumes gradients during the backward passes, so that their memory is free for others (Rajbhandari et al. 2020
//! §5.2).
//!
//! Updates and backward passes queue on one stream, so after an update a later bucket's gradients may use the memory of
//! the updated ones. With several micro-batches, ranks accumulate their parts of each one's gradients at the same
//! points, and update with the sums at the end. So they do where gradients are clipped.

use petgraph::graph::NodeIndex;

use super::buckets::{Cut, Ends, Flow, through};
use super::passes::Passes;
use super::zero::Sharing;
use crate::graph::{Scope, Tensor};
use crate::{AxisLayout, AxisSet, Buffer, Coefficient, Formula, Graph, Job, LayerId, Operand, Optimizer, fused_chains};

/// Adds `gradients` to the `sums` of the micro-batches before; the first one's replace them.
fn accumulate() -> Formula {
    let ([sums, gradients], sum) = ([Buffer::SUMS, Buffer::Gradients].map(Operand::Buffer), Operand::Local(0));
    let with_gradients = Formula::new("accumulate").scale(sum, Coefficient::ONE, gradients);
    with_gradients.add(sum, sum, Coefficient::Again, sums).scale(sums, Coefficient::ONE, sum)
}

/// The order of a graph's nodes: that in which passes were added, with others inserted.
pub(super) struct Order {
    passes: usize,
    /// Nodes, each with the position in the order of passes before which it comes.
    before: Vec<(usize, NodeIndex)>,
}

impl Order {
    /// The order of the passes of `graph`, which has no other nodes yet.
    pub(super) fn of_passes(graph: &Graph) -> Order {
        Order { passes: graph.dag.node_count(), before: Vec::new() }
    }

    /// After all passes, and all nodes inserted so far.
    pub(super) fn end(&self) -> usize {
        self.passes
    }

    /// Inserts nodes before the pass at a position, after those already inserted there.
    pub(super) fn insert(&mut self, at: usize, nodes: impl IntoIterator<Item = NodeIndex>) {
        self.before.extend(nodes.into_iter().map(|node| (at, node)));
    }

    /// The graph in this order.
    pub(super) fn applied_to(mut self, graph: &Graph) -> Graph {
        self.before.sort_by_key(|(at, _)| *at);
        let mut others = self.before.into_iter().peekable();
        let mut order = Vec::with_capacity(graph.dag.node_count());
        for place in 0..=self.passes {
            while let Some((_, node)) = others.next_if(|(at, _)| *at <= place) {
                order.push(node);
            }
            order.extend((place < self.passes).then(|| NodeIndex::new(place)));
        }
        graph.reordered(&order)
    }
}

/// The first of a bucket's passes in one direction, and the last, as positions in the order of all passes.
type Use = (usize, usize);

/// When buckets are in use. Layers that may be fused are in use together.
pub(super) struct Uses {
    pub(super) forward: Vec<Option<Use>>,
    pub(super) backward: Vec<Option<Use>>,
    /// The last pass that makes a bucket's gradients.
    made: Vec<usize>,
    /// The last backward pass of its layers.
    done: Vec<usize>,
}

impl Uses {
    pub(super) fn of(job: &Job, passes: &Passes, cuts: &[Cut]) -> Uses {
        let chains = if job.fuse { fused_chains(&job.model) } else { Vec::new() };
        let together = |id: LayerId| chains.iter().find(|chain| chain.contains(&id)).cloned().unwrap_or(vec![id]);
        let span = |nodes: &mut dyn Iterator<Item = NodeIndex>| -> Option<Use> {
            let places: Vec<usize> = nodes.map(NodeIndex::index).collect();
            Some((*places.iter().min()?, *places.iter().max()?))
        };
        let mut uses = Uses { forward: Vec::new(), backward: Vec::new(), made: Vec::new(), done: Vec::new() };
        for cut in cuts {
            let readers: Vec<LayerId> = cut.layers.iter().flat_map(|id| passes.sharers(*id)).collect();
            let layers: Vec<LayerId> = readers.iter().flat_map(|id| together(*id)).collect();
            let [data, weight] = [&passes.data, &passes.weight].map(|of| move |id: &LayerId| of[id.index()]);
            let own = readers.iter().any(|id| passes.backward_readers(*id).next().is_some());
            uses.forward.push(span(&mut layers.iter().map(|id| passes.forward[id.index()])));
            let read = &mut layers.iter().flat_map(|id| passes.backward_readers(*id));
            uses.backward.push(span(read).filter(|_| own));
            let last = |span: Option<Use>| span.map_or(0, |(_, last)| last);
            let done = last(span(&mut layers.iter().flat_map(|id| [data(id), weight(id)]).flatten()));
            uses.done.push(done);
            // Both passes of a chain are one task.
            uses.made.push(if job.fuse { done } else { last(span(&mut readers.iter().filter_map(weight))) });
        }
        uses
    }

    /// Sums the gradients of each bucket as soon as they are made, and consumes the sum after the backward passes this
    /// overlaps: for an update, or for the sums of all micro-batches. Returns what the updates make, by bucket.
    pub(super) fn update_early(
        &self,
        (graph, order): (&mut Graph, &mut Order),
        sharing: Sharing,
        job: &Job,
        buckets: &[Ends],
    ) -> Vec<Flow> {
        const STAYS: (AxisSet, AxisLayout) = (AxisSet::of(&[]), AxisLayout::Replicated);
        let greatest = |so_far: &mut usize, place: &usize| {
            *so_far = (*so_far).max(*place);
            Some(*so_far)
        };
        // Exchanges are in the order of buckets, and so are updates.
        let made: Vec<usize> = self.made.iter().scan(0, greatest).collect();
        let (each, at_once) = (sharing.exchanges(&graph.mesh), job.concurrent_exchanges as usize);
        let overlapped = |number: usize| ((number + 1) * each - 1 + at_once) / each;
        let behind = |number: usize| made[overlapped(number).min(made.len() - 1)].max(self.done[number]);
        let used_up: Vec<usize> = (0..buckets.len()).map(behind).collect();
        let mut used_up = used_up.iter().scan(0, greatest);
        let update = || Optimizer::update(1.0, false);
        // Where gradients are clipped, each rank keeps its part of the sums until their norm is known.
        let sums = job.accumulate > 1 || job.clips;
        let mut weights = Vec::new();
        for (bucket, made) in buckets.iter().zip(made) {
            let (scatters, sum) = sharing.scatter(graph, bucket, Scope::MicroBatch);
            order.insert(made + 1, scatters);
            let formula = if sums { accumulate() } else { update() };
            let user = graph.arithmetic(formula, bucket.range.clone(), Scope::MicroBatch);
            order.insert(used_up.next().map_or(order.end(), |last| last + 1), [user]);
            weights.push(through(graph, &sum, (user, Tensor::WeightGradient), STAYS));
        }
        if !sums {
            return weights;
        }
        let step = |(bucket, sum): (&Ends, Flow)| {
            let formula = update().replacing(Buffer::Gradients, Buffer::SUMS);
            let update = graph.arithmetic(formula, bucket.range.clone(), Scope::Step);
            order.insert(order.end(), [update]);
            through(graph, &sum, (update, Tensor::GradientSum), STAYS)
        };
        buckets.iter().zip(weights).map(step).collect()
    }
}
