//! Builds ZeRO, stage 3, or fully sharded data parallelism: each rank also keeps only a part of the parameters
//! (Rajbhandari et al. 2020 §5.3).
//!
//! A bucket is gathered before the layers that read it, and its memory is freed after them; backward passes gather it
//! again. Gradients are reduce-scattered and consumed as in ZeRO-2. Zhao et al. 2023 ("PyTorch FSDP", §3.3) gather
//! `prefetch` buckets ahead of the one in use. In a pipeline all of a stage are gathered once a step.

use std::fmt;

use lockstep_topology::InputError;
use petgraph::graph::NodeIndex;

use super::buckets::{Cut, Ends, cuts};
use super::early::{Order, Uses};
use super::passes::{Passes, passes};
use super::zero::Sharing;
use super::{Plan, Shard, ssgd, zero, zero_2};
use crate::graph::{Scope, Tensor};
use crate::{Axis, AxisSet, Buffer, Coefficient, Formula, Graph, Job, LayerId, Layout, Mesh, Operand};

/// Stage 3: each rank keeps a part of parameters, gradients and the optimizer's state: `zero-3`,
/// `zero-3:prefetch=2:no-reshard`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zero3 {
    /// Buckets that are gathered ahead of the one in use.
    pub prefetch: u32,
    /// Whether the gathered parameters are freed after forward passes, and gathered again for backward passes.
    pub reshard: bool,
}

/// Keeps gathered parameters from forward to backward passes.
const NO_RESHARD: &str = "no-reshard";

impl Plan for Zero3 {
    fn parse(settings: &str) -> Result<Zero3, String> {
        let mut zero = Zero3::DEFAULT;
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
        if mesh.size(Axis::Pipeline) > 1 {
            return Ok((self.in_stages(job, mesh, sharing)?, None));
        }
        zero_2::check(job)?;
        Ok((self.sharded(job, mesh, sharing)?, None))
    }

    fn axes(&self) -> AxisSet {
        zero::AXES.or(AxisSet::of(&[Axis::Pipeline]))
    }
}

/// `weights ← parameters`: a rank's own part, from which the others gather.
fn own_part() -> Formula {
    let [to, from] = [Buffer::Weights, Buffer::Parameters].map(Operand::Buffer);
    Formula::new("own part").scale(to, Coefficient::ONE, from)
}

impl Zero3 {
    const DEFAULT: Zero3 = Zero3 { prefetch: 1, reshard: true };

    fn sharded(self, job: &Job, mesh: Mesh, sharing: Sharing) -> Result<Graph, InputError> {
        let model = &job.model;
        let mut graph = Graph::new(model, mesh);
        let passes = passes(&mut graph, job, sharing.samples)?;
        let (mut order, cuts) = (Order::of_passes(&graph), cuts(job)?);
        let buckets: Vec<Ends> = cuts.iter().map(|cut| Ends::of_whole(cut, &passes, sharing.axes())).collect();
        let uses = Uses::of(job, &passes, &cuts);
        let weights = uses.update_early((&mut graph, &mut order), sharing, job, &buckets);
        for (at, bucket, readers) in self.gathers(&uses, &passes, &cuts) {
            let own = graph.arithmetic(own_part(), cuts[bucket].range.clone(), Scope::MicroBatch);
            let gather = sharing.gather(&mut graph, &cuts[bucket].range, Scope::MicroBatch);
            weights[bucket].iter().for_each(|(update, part)| graph.weights(*update, own, *part));
            graph.edge(own, gather, Tensor::GatheredWeight, sharing.part);
            readers
                .into_iter()
                .for_each(|reader| graph.edge(gather, reader, Tensor::GatheredWeight, Layout::REPLICATED));
            order.insert(at, [own, gather]);
        }
        Ok(order.applied_to(&graph))
    }

    /// In the stages of a pipeline: parameters are gathered once, before the first micro-batch, since the passes of many alternate;
    /// gradients are summed over all micro-batches, and reduce-scattered once.
    fn in_stages(self, job: &Job, mesh: Mesh, sharing: Sharing) -> Result<Graph, InputError> {
        self.check_stages(job)?;
        let mut graph = Graph::new(&job.model, mesh);
        let passes = passes(&mut graph, job, sharing.samples)?;
        let mut order = Order::of_passes(&graph);
        let buckets: Vec<Ends> = cuts(job)?.iter().map(|cut| Ends::of_whole(cut, &passes, sharing.axes())).collect();
        let weights = sharing.update_parts(&mut graph, &buckets);
        let behind: Vec<NodeIndex> = graph.dag.node_indices().skip(order.end()).collect();
        for (bucket, updates) in buckets.iter().zip(&weights).rev() {
            let own = graph.arithmetic(own_part(), bucket.range.clone(), Scope::StepStart);
            let gather = sharing.gather(&mut graph, &bucket.range, Scope::StepStart);
            updates.iter().for_each(|(update, part)| graph.weights(*update, own, *part));
            graph.edge(own, gather, Tensor::GatheredWeight, sharing.part);
            bucket.readers.iter().for_each(|(node, layout)| graph.edge(gather, *node, Tensor::GatheredWeight, *layout));
            order.insert(0, [own, gather]);
        }
        order.insert(order.end(), behind);
        Ok(order.applied_to(&graph))
    }

    /// Refuses settings that gathers of single layers alone have.
    fn check_stages(self, job: &Job) -> Result<(), InputError> {
        if self == Zero3::DEFAULT {
            return Ok(());
        }
        let message = "stages of a pipeline gather all of their parameters before the first micro-batch: use zero-3";
        Err(InputError::flag("strategy", job.strategy.to_string(), message))
    }

    /// The gathers of all buckets: the position before which each comes, its bucket, and the nodes that read it.
    fn gathers(self, uses: &Uses, passes: &Passes, cuts: &[Cut]) -> Vec<(usize, usize, Vec<NodeIndex>)> {
        let directions = [&uses.forward, &uses.backward];
        let each = |of: usize| (0..cuts.len()).filter_map(move |bucket| Some((directions[of][bucket]?.0, of, bucket)));
        let mut slots: Vec<(usize, usize, usize)> = each(0).chain(each(1)).collect();
        slots.sort_unstable();
        let mut gathers: Vec<(usize, usize, Vec<NodeIndex>)> = Vec::new();
        for (number, (_, direction, bucket)) in slots.iter().copied().enumerate() {
            let readers = |id: LayerId| match direction {
                0 => vec![passes.forward[id.index()]],
                _ => passes.backward_readers(id).collect(),
            };
            let layers = cuts[bucket].layers.iter().flat_map(|id| passes.sharers(*id));
            let readers: Vec<NodeIndex> = layers.flat_map(readers).collect();
            let at = number.checked_sub(self.prefetch as usize).map_or(0, |ahead| slots[ahead].0);
            // Buckets that forward passes still read, have just read, or keep, need not be gathered again.
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
