//! Builds one role's list of tasks: a task for each node of the graph, in the order of its passes.
//!
//! Micro-batch nodes are in a `Repeat`, or in the bodies of a pipeline's stage, and step nodes come after it; a step
//! node that waits for a micro-batch node waits for its last repetition, so exchanges overlap the backward pass of the
//! last micro-batch. Dependencies that the order of a stream implies are left out.

use std::ops::Range;

use lockstep_topology::{Algorithm, Collective};
use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::{Lowering, bucket_name, devices};
use crate::graph::{NodeWork, Scope};
use crate::program::chain_name;
use crate::{
    After, Axis, AxisLayout, AxisSet, Bucket, Buffer, Coefficient, Dimension, Elementwise, Exchange, Formula, Op,
    Optimizer, Pass, PassRanks, Phase, Sharding, Squares, Stream, Task, TaskId,
};

/// The tasks of a role, as far as they are built.
pub(super) struct Tasks<'a> {
    pub(super) of: Lowering<'a>,
    /// The lowest of its ranks.
    pub(super) rank: u32,
    /// The passes through split layers that it takes part in.
    pub(super) passes: Range<usize>,
    pub(super) list: Vec<Task>,
    task_of: Vec<Option<TaskId>>,
    /// By node: whether it belongs to another stage.
    pub(super) left_out: Vec<bool>,
    /// The stages that share a parameter, where two do.
    pub(super) between: Option<(u32, u32)>,
    /// By node: whether the first rank along an axis does it for this one, which waits for what it has of its inputs.
    done_by_first: Vec<bool>,
}

impl<'a> Tasks<'a> {
    /// No tasks yet, of ranks from `rank` on that take part in some passes.
    pub(super) fn new(of: Lowering<'a>, rank: u32, passes: Range<usize>) -> Tasks<'a> {
        let count = of.graph.dag.node_count();
        let [left_out, done_by_first] = [(); 2].map(|()| vec![false; count]);
        let (list, task_of) = (Vec::new(), vec![None; count]);
        Tasks { of, rank, passes, list, task_of, left_out, between: None, done_by_first }
    }

    /// The same of ranks that are not the first along `axis`: without the nodes that only the first one can run.
    pub(super) fn of_others(of: Lowering<'a>, axis: Axis, passes: Range<usize>) -> Tasks<'a> {
        let dag = &of.graph.dag;
        let alone = |node: NodeIndex| {
            let changes = matches!(&dag[node].work, NodeWork::Collective { axes, .. } if axes.contains(axis));
            !changes && dag.edges(node).any(|edge| edge.weight().layout.on(axis) == AxisLayout::First)
        };
        let done_by_first = dag.node_indices().map(alone).collect();
        Tasks { done_by_first, ..Tasks::new(of, 0, passes) }
    }

    /// The nodes of these scopes in the order of the graph.
    pub(super) fn of_scope(&self, scopes: &[Scope]) -> Vec<NodeIndex> {
        let dag = &self.of.graph.dag;
        let has = |node: &NodeIndex| !self.left_out[node.index()] && !self.done_by_first[node.index()];
        let wanted = |node: &NodeIndex| scopes.contains(&dag[*node].scope) && has(node);
        dag.node_indices().filter(wanted).collect()
    }

    /// How the rank's model was cut out of the whole.
    ///
    /// # Panics
    /// Where it was not cut: only graphs with split layers have nodes that ask.
    pub(super) fn sharding(&self) -> &'a Sharding {
        self.of.sharding.expect("relayouts are those of split layers")
    }

    /// Which ranks run passes through split layers, where there are any.
    fn pass_ranks(&self) -> Option<PassRanks> {
        self.of.sharding.map(|sharding| sharding.pass_ranks)
    }

    /// The whole list where a rank computes all layers: passes of micro-batches, or those through split layers one
    /// after the other, then the step.
    pub(super) fn run(mut self) -> Vec<Task> {
        let (micro, step) = (self.of_scope(&[Scope::MicroBatch]), self.of_scope(&[Scope::Step]));
        self.push_start();
        let claimed = self.of.job.claims();
        let count = self.of.job.micro_batches();
        let repeat = (claimed || count > 1)
            .then(|| self.task("micro-batches".into(), Op::Repeat { count, body: 0, claimed }, Vec::new()));
        match self.of.sharding {
            Some(_) => self.run_passes(&micro),
            None => micro.into_iter().for_each(|node| self.push(node, 0)),
        }
        if let Some(repeat) = repeat {
            let body = self.list.len() - repeat - 1;
            self.list[repeat].op = Op::Repeat { count, body, claimed };
        }
        step.into_iter().for_each(|node| self.push(node, 0));
        self.finish();
        self.list
    }

    /// The tasks before the passes of the first micro-batch.
    pub(super) fn push_start(&mut self) {
        self.of_scope(&[Scope::StepStart]).into_iter().for_each(|node| self.push(node, 0));
    }

    /// The tasks before split layers, those of each pass through them, the tasks after them.
    fn run_passes(&mut self, micro: &[NodeIndex]) {
        let through = self.of_scope(&[Scope::Pass]);
        let (before, after): (Vec<NodeIndex>, Vec<_>) = micro.iter().partition(|node| **node < through[0]);
        before.into_iter().for_each(|node| self.push(node, 0));
        for pass in self.passes.clone() {
            through.iter().for_each(|node| self.push(*node, pass));
        }
        self.take_last_returned(self.passes.end - 1);
        after.into_iter().for_each(|node| self.push(node, 0));
        if self.pass_ranks() == Some(PassRanks::FirstOfNode) {
            self.end_jobs("end backward jobs".to_owned(), None);
        }
    }

    /// Adds dependencies on the step before, and the limit on exchanges in flight.
    pub(super) fn finish(&mut self) {
        for node in (0..self.task_of.len()).map(NodeIndex::new) {
            if let Some(task) = self.task_of[node.index()] {
                let before = self.after(node, self.list[task].stream, true);
                self.list[task].after.extend(before);
                self.list[task].after.sort_by_key(|after| after.task);
                self.list[task].after.dedup();
            }
        }
        if self.of.job.bucket == Bucket::Tensor {
            await_backward(&mut self.list);
        }
        // In a node's table each exchange waits for the one before anyway, as a blocking library needs it.
        let activations = self.pass_ranks() == Some(PassRanks::All);
        let blocks = self.of.job.algorithms().any(Algorithm::blocks);
        let counts = |task: &Task| {
            let of_layers = |of: &Exchange| activations && matches!(of.buffer, Buffer::Declared(_));
            // A device delivers a model inside itself; only a call that blocks all else must not meet it.
            let inside = |of: &Exchange| matches!(of.collective, Collective::Broadcast { .. }) && !blocks;
            let other = |of: &Exchange| of_layers(of) || inside(of);
            matches!(&task.op, Op::Exchange(exchange) if exchange.between.is_none() && !other(exchange))
        };
        limit_exchanges(&mut self.list, self.of.job.concurrent_exchanges, counts);
        order_library_calls(&mut self.list);
    }

    /// Adds the tasks of a node, in a pass through split layers where it belongs to those.
    pub(super) fn push(&mut self, node: NodeIndex, pass: usize) {
        let Lowering { graph, job, model, .. } = self.of;
        let in_pass = graph.dag[node].scope == Scope::Pass;
        let mut before = Vec::new();
        let first_of_node = self.pass_ranks() == Some(PassRanks::FirstOfNode);
        let (op, stream, name) = match &graph.dag[node].work {
            NodeWork::Load if first_of_node => return self.pushed(node, Self::load_for_node),
            NodeWork::Relayout { layer, pass: of, .. } => {
                return self.pushed(node, |tasks| match first_of_node {
                    true => tasks.relayout_in_node(*layer, *of),
                    false => tasks.relayout(*layer, *of, pass),
                });
            }
            NodeWork::Load => {
                let shared = self.of.sharding.filter(|sharding| sharding.in_all_passes());
                let samples = shared.map_or(job.batch_per_rank, |sharding| sharding.pass_samples());
                (Op::Load { samples, pass: shared.map(|_| 0), into: None }, Stream::Compute, "load".to_owned())
            }
            NodeWork::Layer(id, _) | NodeWork::Recompute(id) => {
                let phase = phase_of(&graph.dag[node].work);
                let Some(chain) = self.of.chain_of[id.index()] else {
                    unreachable!("gathers are no layers of the graph")
                };
                let (samples, of_pass) = if in_pass {
                    (self.sharding().samples_on(self.rank, Some(*id), pass), Some(pass as u32))
                } else {
                    (job.batch_per_rank, None)
                };
                let name = format!("{} {}{}", phase.name(), chain_name(model, &[*id]), self.suffix(in_pass, pass));
                (Op::Compute { chain, phase, samples, pass: of_pass }, Stream::Compute, name)
            }
            // One rank's partial sum is the whole sum: its readers depend on its producer directly.
            NodeWork::Collective { axes, .. } if axes.iter().all(|axis| graph.mesh.size(axis) == 1) => return,
            NodeWork::Collective { collective, axes, range } => {
                let (verb, exchange) = self.exchange(node, collective, *axes, range);
                let jobs = self.list.iter().rposition(|task| matches!(task.op, Op::Host { .. }));
                before.extend(jobs.map(|task| After { task, lag: 0 }));
                // What is delivered on a device does not hold up the sums of other buckets.
                let delivers = matches!(collective, Collective::Broadcast { .. });
                let stream = if delivers { Stream::Receive } else { Stream::Exchange };
                let name = match exchange.buffer {
                    Buffer::Norm => format!("{verb} squares"),
                    _ => bucket_name(model, verb, range),
                };
                (Op::Exchange(exchange), stream, name)
            }
            NodeWork::SquareSum { range, axes } => {
                let name = bucket_name(model, "squares", range);
                let (buffer, shared) = (self.buffer_at(node), self.parts_at(node));
                let begins = !self.list.iter().any(|task| matches!(task.op, Op::Squares(_)));
                let of = Squares { buffer, range: range.clone(), shared, axes: *axes, begins };
                (Op::Squares(of), Stream::Compute, name)
            }
            NodeWork::Elementwise { of, stream } => {
                let name = bucket_name(model, of.formula.name(), &of.range) + &self.suffix(in_pass, pass);
                let shared = self.parts_at(node);
                let formula = self.in_pass(of);
                (Op::Elementwise(Elementwise { formula, shared, ..of.clone() }), *stream, name)
            }
        };
        before.splice(0..0, self.after(node, stream, false));
        self.list.push(Task { name, op, stream, after: before });
        self.task_of[node.index()] = Some(self.list.len() - 1);
    }

    /// The axes along which a node's inputs are sharded: the node works on parts there.
    fn parts_at(&self, node: NodeIndex) -> AxisSet {
        let parts = AxisLayout::Split(Dimension::Element);
        let edges = self.of.graph.dag.edges_directed(node, Direction::Incoming);
        let of_edges = edges.map(|edge| edge.weight().layout.axes_where(|on_it| on_it == parts));
        of_edges.fold(AxisSet::default(), AxisSet::or)
    }

    /// The buffer of a node's inputs.
    fn buffer_at(&self, node: NodeIndex) -> Buffer {
        let mut edges = self.of.graph.dag.edges_directed(node, Direction::Incoming);
        edges.find_map(|edge| edge.weight().tensor.buffer()).unwrap_or(Buffer::Gradients)
    }

    /// A formula in its place after the tasks so far: an update in each pass through split layers is scaled by the
    /// pass's own samples.
    fn in_pass(&self, of: &Elementwise) -> Formula {
        let (Some(sharding), true) = (self.of.sharding, of.formula.is_update()) else {
            return of.formula.clone();
        };
        let all = self.of.job.global_batch();
        let scale = all as f64 / sharding.update_batch(self.of.model, of.range.start, all) as f64;
        let again = self.list.iter().filter_map(|task| task.op.update()).any(|other| other.range == of.range);
        let clip = of.formula.clips().then_some(Coefficient::CLIP);
        let factors: Vec<Coefficient> = clip.into_iter().chain(Optimizer::scaled(scale)).collect();
        self.of.job.rule.update(&factors, again)
    }

    /// Records the last task on the compute stream that `push` adds for a node; exchanges after it belong to
    /// the next pass.
    fn pushed(&mut self, node: NodeIndex, push: impl FnOnce(&mut Self)) {
        push(self);
        self.task_of[node.index()] = self.list.iter().rposition(|task| task.stream == Stream::Compute);
    }

    /// Adds a task of no node.
    pub(super) fn task(&mut self, name: String, op: Op, after: Vec<After>) -> TaskId {
        let stream = if matches!(op, Op::Exchange(_)) { Stream::Exchange } else { Stream::Compute };
        self.list.push(Task { name, op, stream, after });
        self.list.len() - 1
    }

    /// `, pass 2`, where there are several.
    pub(super) fn suffix(&self, in_pass: bool, pass: usize) -> String {
        let sharding = self.of.sharding.filter(|_| in_pass);
        sharding.map_or_else(String::new, |sharding| sharding.pass_suffix(pass))
    }

    /// The verb in its name, and the exchange.
    fn exchange(
        &self,
        node: NodeIndex,
        collective: &Collective,
        axes: AxisSet,
        range: &Range<u64>,
    ) -> (&'static str, Exchange) {
        let job = self.of.job;
        let shared = axes.iter().fold(self.parts_at(node), AxisSet::without);
        let buffer = self.buffer_at(node);
        // Strategies declare buffers of fp32.
        let dtype = buffer.dtype((job.precision, job.gradients, job.moments), &[]);
        let chunk = job.chunk.map_or(0, |bytes| dtype.elements_within(bytes.0).max(1));
        let whole = Exchange::new(collective.clone(), job.algorithm_along(axes).clone(), axes, buffer, range.clone());
        let whole = Exchange { shared, chunk, ..whole };
        if axes == AxisSet::of(&[Axis::Pipeline]) && buffer != Buffer::Norm && self.between.is_some() {
            let whole = Exchange { algorithm: Algorithm::ring(), between: self.between, ..whole };
            return ("allreduce between stages", whole);
        }
        match job.devices() {
            Some(devices) => devices::exchange(whole, &devices),
            None => (collective.name(), whole),
        }
    }

    /// Dependencies between streams on what is made in this step, or in the one before; the order inside a stream
    /// implies the others.
    fn after(&self, node: NodeIndex, stream: Stream, previous_step: bool) -> Vec<After> {
        let edges = self.of.graph.dag.edges_directed(node, Direction::Incoming);
        let edges = edges.filter(|edge| edge.weight().previous_step == previous_step);
        let tasks = edges.flat_map(|edge| self.made_by(edge.source()));
        // Exchanges wait for nothing but what they name.
        let named = matches!(stream, Stream::Exchange | Stream::Receive);
        let others = tasks.filter(|task| self.list[*task].stream != stream || named);
        let mut after: Vec<After> = others.map(|task| After { task, lag: u32::from(previous_step) }).collect();
        after.sort_by_key(|after| after.task);
        after.dedup();
        after
    }

    /// The task of a node, or what it would have waited for in this step where it has none.
    fn made_by(&self, node: NodeIndex) -> Vec<TaskId> {
        match self.task_of[node.index()] {
            Some(task) => vec![task],
            None if self.left_out[node.index()] => Vec::new(),
            None => {
                let edges = self.of.graph.dag.edges_directed(node, Direction::Incoming);
                edges.filter(|edge| !edge.weight().previous_step).flat_map(|edge| self.made_by(edge.source())).collect()
            }
        }
    }
}

/// The phase of a layer's pass.
fn phase_of(work: &NodeWork) -> Phase {
    match work {
        NodeWork::Layer(_, Pass::BackwardData) => Phase::BackwardData,
        NodeWork::Layer(_, Pass::BackwardWeight) => Phase::BackwardWeight,
        NodeWork::Recompute(_) => Phase::Recompute,
        _ => Phase::Forward,
    }
}

/// Allows at most `limit` of the exchanges that count in flight: the n-th waits for the (n − limit)-th, the first ones
/// for the last of the previous iteration (Goyal et al. 2017 §4.2).
pub(super) fn limit_exchanges(tasks: &mut [Task], limit: u32, counts: impl Fn(&Task) -> bool) {
    let exchanges: Vec<TaskId> = (0..tasks.len()).filter(|id| counts(&tasks[*id])).collect();
    let limit = (limit as usize).min(exchanges.len());
    for (n, task) in exchanges.iter().enumerate() {
        let after = match n.checked_sub(limit) {
            Some(earlier) => After { task: exchanges[earlier], lag: 0 },
            None => After { task: exchanges[n + exchanges.len() - limit], lag: 1 },
        };
        let after_it = &mut tasks[*task].after;
        if !after_it.contains(&after) {
            after_it.push(after);
        }
    }
}

/// Makes a library's calls for gradients and weights take turns with those for activations along the same axes: on a communicator
/// they run in their order. Calls for activations alone do so anyway, since the compute stream waits for each.
fn order_library_calls(tasks: &mut [Task]) {
    let call = |task: &Task| match &task.op {
        Op::Exchange(of) if of.algorithm.library().is_some() && of.between.is_none() => {
            Some((of.axes, !matches!(of.buffer, Buffer::Declared(_))))
        }
        _ => None,
    };
    let calls: Vec<(TaskId, AxisSet, bool)> =
        (0..).zip(&*tasks).filter_map(|(id, task)| call(task).map(|(axes, of_step)| (id, axes, of_step))).collect();
    for (position, (id, axes, of_step)) in calls.iter().enumerate() {
        let own = |call: &&(TaskId, AxisSet, bool)| call.1 == *axes;
        let (earlier, lag) = match calls[..position].iter().rev().find(own) {
            Some(earlier) => (earlier, 0),
            None => (calls.iter().rev().find(own).expect("the call itself"), 1),
        };
        let after = After { task: earlier.0, lag };
        let has_activations = || calls.iter().filter(own).any(|call| !call.2);
        if (*of_step || earlier.2) && has_activations() && !tasks[*id].after.contains(&after) {
            tasks[*id].after.push(after);
        }
    }
}

/// Makes exchanges of gradients wait for the last backward task instead of those that made their gradients.
fn await_backward(tasks: &mut [Task]) {
    let backward = |task: &Task| matches!(task.op, Op::Compute { phase, .. } if !phase.makes_outputs());
    let Some(last) = tasks.iter().rposition(backward) else { return };
    for task in tasks.iter_mut().skip(last + 1) {
        if matches!(&task.op, Op::Exchange(exchange) if exchange.buffer == Buffer::Gradients) {
            task.after.retain(|after| after.lag > 0 || after.task > last);
            task.after.insert(0, After { task: last, lag: 0 });
        }
    }
}
