//! ZeRO, stage 3, or fully sharded data parallelism: each rank keeps a part of the parameters, too (Rajbhandari et al. 2020 §5.3).
//!
//! A bucket is gathered before the layers that read it, and its memory is free behind them; backward passes gather it again. Gradients are
//! reduce-scattered and used up as in stage 2. Zhao et al. 2023 ("PyTorch FSDP", §3.3) gather `prefetch` buckets ahead of the one in use.

use std::fmt;

use lockstep_topology::InputError;
use petgraph::graph::NodeIndex;

use super::buckets::{Cut, cuts};
use super::data_parallel::{Passes, passes};
use super::zero::{Ends, Sharing};
use super::{Plan, Shard, ssgd, zero, zero_2};
use crate::graph::{Scope, Tensor, Work};
use crate::{
    AxisSet, Buffer, Coefficient, Elementwise, Formula, Graph, Job, LayerId, Layout, Mesh, Model, Operand, Stream,
    fused_chains,
};

/// Stage 3: each rank keeps a part of parameters, gradients and the optimizer's state: `zero-3`, `zero-3:prefetch=2:no-reshard`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zero3 {
    /// Buckets that are gathered ahead of the one in use.
    pub prefetch: u32,
    /// Whether the gathered parameters are freed behind forward passes, and gathered again for backward passes.
    pub reshard: bool,
}

/// The word that keeps gathered parameters from forward to backward passes.
const NO_RESHARD: &str = "no-reshard";

impl Plan for Zero3 {
    fn parse(settings: &str) -> Result<Zero3, String> {
        let mut zero = Zero3 { prefetch: 1, reshard: true };
        for part in settings.split(':').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None if part == NO_RESHARD => zero.reshard = false,
                Some(("prefetch", count)) => {
                    zero.prefetch = count
                        .parse()
                        .map_err(|_| format!("prefetch={count}: must be a number of buckets, 0 for none"))?;
                }
                _ => return Err(format!("zero-3 has no setting {part:?}; there are: prefetch=N, {NO_RESHARD}")),
            }
        }
        Ok(zero)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("zero-3")?;
        if self.prefetch != 1 {
            write!(f, ":prefetch={}", self.prefetch)?;
        }
        if self.reshard { Ok(()) } else { write!(f, ":{NO_RESHARD}") }
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let mesh = job.data_mesh()?;
        let Some(sharing) = Sharing::of(&mesh) else { return Ok((ssgd::graph(job)?, None)) };
        zero_2::check(job)?;
        Ok((self.sharded(job, mesh, sharing)?, None))
    }

    fn axes(&self) -> AxisSet {
        zero::AXES
    }
}

/// `weights ← parameters`: a rank's own part, from which the others gather.
fn own_part() -> Formula {
    let [to, from] = [Buffer::Weights, Buffer::Parameters].map(Operand::Buffer);
    Formula::new("own part").scale(to, Coefficient::ONE, from)
}

/// The first of a bucket's passes in one direction, and the last, as places in the order of all passes.
type Use = (usize, usize);

impl Zero3 {
    fn sharded(self, job: &Job, mesh: Mesh, sharing: Sharing) -> Result<Graph, InputError> {
        let model = &job.model;
        let mut graph = Graph::new(model, mesh);
        let passes = passes(&mut graph, model, sharing.samples);
        let computes = graph.dag.node_count();
        let cuts = cuts(job)?;
        let uses = Uses::of(model, &passes, &cuts, job.fuse);
        // Nodes, each with the place in the order of passes before which it comes.
        let mut before: Vec<(usize, NodeIndex)> = Vec::new();

        let mut updates = Vec::new();
        for (number, cut) in cuts.iter().enumerate() {
            let (scatters, _) = sharing.scatter(&mut graph, &Ends::of(cut, &passes), Scope::MicroBatch);
            let update = graph.update(cut.range.clone(), Scope::MicroBatch);
            graph.edge(scatters[scatters.len() - 1], update, Tensor::WeightGradient, sharing.part);
            before.extend(scatters.into_iter().map(|scatter| (uses.done[number] + 1, scatter)));
            // Behind the passes that its exchange overlaps.
            let overlapped = (number + job.concurrent_exchanges as usize).min(cuts.len() - 1);
            before.push((uses.done[number..=overlapped].iter().copied().max().unwrap_or(0) + 1, update));
            updates.push(update);
        }
        for (at, bucket, readers) in self.gathers(&uses, &passes, &cuts) {
            let of = Elementwise::new(own_part(), cuts[bucket].range.clone());
            let own = graph.node(Work::Elementwise { of, stream: Stream::Compute }, Scope::MicroBatch);
            let gather = sharing.gather(&mut graph, &cuts[bucket].range, Scope::MicroBatch);
            graph.weights(updates[bucket], own, sharing.part);
            graph.edge(own, gather, Tensor::GatheredWeight, sharing.part);
            readers
                .into_iter()
                .for_each(|reader| graph.edge(gather, reader, Tensor::GatheredWeight, Layout::REPLICATED));
            before.extend([(at, own), (at, gather)]);
        }
        before.sort_by_key(|(at, _)| *at);
        let mut order = Vec::with_capacity(graph.dag.node_count());
        let mut others = before.into_iter().peekable();
        for place in 0..=computes {
            while let Some((_, node)) = others.next_if(|(at, _)| *at <= place) {
                order.push(node);
            }
            order.extend((place < computes).then(|| NodeIndex::new(place)));
        }
        Ok(graph.reordered(&order))
    }

    /// The gathers of all buckets: before which place they come, of which bucket, and who reads what they bring.
    fn gathers(self, uses: &Uses, passes: &Passes, cuts: &[Cut]) -> Vec<(usize, usize, Vec<NodeIndex>)> {
        let directions = [&uses.forward, &uses.backward];
        let each = |of: usize| (0..cuts.len()).filter_map(move |bucket| Some((directions[of][bucket]?.0, of, bucket)));
        let mut slots: Vec<(usize, usize, usize)> = each(0).chain(each(1)).collect();
        slots.sort_unstable();
        let mut gathers: Vec<(usize, usize, Vec<NodeIndex>)> = Vec::new();
        for (number, (_, direction, bucket)) in slots.iter().copied().enumerate() {
            let readers = |id: &LayerId| {
                if direction == 0 { Some(passes.forward[id.index()]) } else { passes.data[id.index()] }
            };
            let readers: Vec<NodeIndex> = cuts[bucket].layers.iter().filter_map(readers).collect();
            let at = number.checked_sub(self.prefetch as usize).map_or(0, |ahead| slots[ahead].0);
            // What forward passes still read, have just read, or keep, need not be gathered again.
            let just_read = number > 0 && slots[number - 1].2 == bucket;
            let there = uses.forward[bucket].is_some_and(|(_, last)| !self.reshard || just_read || at <= last);
            match gathers.iter_mut().find(|(_, other, _)| *other == bucket) {
                Some((_, _, kept)) if direction == 1 && there => kept.extend(readers),
                _ => gathers.push((at, bucket, readers)),
            }
        }
        gathers
    }
}

/// When buckets are in use, as places in the order of passes. Layers that may be fused are in use together.
struct Uses {
    forward: Vec<Option<Use>>,
    backward: Vec<Option<Use>>,
    /// The last pass that makes the bucket's gradients.
    done: Vec<usize>,
}

impl Uses {
    fn of(model: &Model, passes: &Passes, cuts: &[Cut], fuse: bool) -> Uses {
        let chains = if fuse { fused_chains(model) } else { Vec::new() };
        let together = |id: LayerId| chains.iter().find(|chain| chain.contains(&id)).cloned().unwrap_or(vec![id]);
        let span = |nodes: &mut dyn Iterator<Item = NodeIndex>| -> Option<Use> {
            let places: Vec<usize> = nodes.map(NodeIndex::index).collect();
            Some((*places.iter().min()?, *places.iter().max()?))
        };
        let mut uses = Uses { forward: Vec::new(), backward: Vec::new(), done: Vec::new() };
        for cut in cuts {
            let layers: Vec<LayerId> = cut.layers.iter().flat_map(|id| together(*id)).collect();
            let data = |id: &LayerId| passes.data[id.index()];
            let own = cut.layers.iter().any(|id| data(id).is_some());
            uses.forward.push(span(&mut layers.iter().map(|id| passes.forward[id.index()])));
            uses.backward.push(span(&mut layers.iter().filter_map(data)).filter(|_| own));
            let made = layers.iter().flat_map(|id| [data(id), passes.weight[id.index()]]).flatten();
            uses.done.push(span(&mut { made }).map_or(0, |(_, last)| last));
        }
        uses
    }
}
