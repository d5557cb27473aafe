//! Lowers a graph to the roles of a pipeline: each stage has the tasks of its chunks of layers, and sends activations
//! and gradients to its neighbours.
//!
//! What crosses from one chunk to the next is packed into a buffer, sent to the one rank of the next stage with the
//! same other coordinates, and unpacked there; gradients return in the same way. A receive is posted as soon as its
//! buffer is free.

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective, InputError};
use petgraph::Direction;
use petgraph::graph::NodeIndex;

use super::Lowering;
use super::tasks::Tasks;
use crate::graph::{NodeWork, Scope, Tensor};
use crate::{
    After, Area, Axis, AxisSet, Buffer, ByCoordinate, Copy, Declared, Exchange, Graph, LayerId, Op, Pass, PipelinePass,
    PipelineStep, Role, Rows, Squares, StageBody, StageOrder, Stages, Stream, Task, TaskId, Turns, pipeline,
};

/// Buffers of a border between two chunks: activations sent forward, and gradients sent back.
const EACH: usize = PipelinePass::CROSSING.len();

/// A role for each stage; buffers of the borders between chunks come after `first` others.
///
/// # Errors
/// Micro-batches that the schedule does not take.
pub(super) fn roles(of: Lowering<'_>, stages: &Stages, first: usize) -> Result<Vec<Role>, InputError> {
    let Lowering { graph, job, .. } = of;
    let schedule = job.schedule;
    let lists = schedule.lists(stages.stages(), job.micro_batches()).map_err(|error| job.of_mesh(error))?;
    pipeline::check(&lists, schedule.passes(), schedule.chunks(), job.micro_batches())?;
    let chunk_of = chunks_of_nodes(of, stages);
    let role = |(stage, steps): (u32, _)| {
        let ranks = graph.mesh.group(graph.mesh.axes().without(Axis::Pipeline), stage);
        Role { name: format!("stage {stage}"), ranks, tasks: tasks(of, (stages, stage), (first, &chunk_of), steps) }
    };
    Ok((0..).zip(lists).map(role).collect())
}

/// For each border between two chunks: buffers for what a micro-batch sends across it forward, and back.
pub(super) fn buffers(of: Lowering<'_>, stages: &Stages) -> Vec<Declared> {
    let borders = 0..stages.chunks().len() as u32 - 1;
    let declared = |border: u32| {
        PipelinePass::CROSSING.map(|pass| {
            let border = Border::new(of, stages, 0, (border, pass));
            let turns = border.turns();
            Declared::scratch(border.name(), u64::from(turns.count) * turns.elements)
        })
    };
    borders.flat_map(declared).collect()
}

/// By node of the graph: the chunk that it belongs to, which is that of the first parameter where it changes some.
fn chunks_of_nodes(of: Lowering<'_>, stages: &Stages) -> Vec<u32> {
    let Lowering { graph, model, .. } = of;
    let of_layer = |(id, node): (LayerId, &crate::Node)| -> Vec<(Range<u64>, u32)> {
        node.parameters.iter().map(|parameter| (parameter.range.clone(), stages.chunk_of(id))).collect()
    };
    let mut parameters: Vec<(Range<u64>, u32)> = model.iter().flat_map(of_layer).collect();
    // Two layers may have one parameter, which belongs to the first.
    parameters.sort_by_key(|(range, _)| range.start);
    parameters.dedup_by_key(|(range, _)| range.start);
    let of_parameters = |range: &Range<u64>| {
        let behind = parameters.partition_point(|(parameter, _)| parameter.start <= range.start);
        let last = behind.checked_sub(1).map(|last| &parameters[last]);
        last.filter(|(parameter, _)| parameter.contains(&range.start)).map_or(0, |(_, chunk)| *chunk)
    };
    let chunk_of = |node: NodeIndex| match &graph.dag[node].work {
        NodeWork::Load => 0,
        NodeWork::Layer(id, _) | NodeWork::Recompute(id) | NodeWork::Relayout { layer: id, .. } => stages.chunk_of(*id),
        NodeWork::Collective { range, .. } | NodeWork::SquareSum { range, .. } => of_parameters(range),
        NodeWork::Elementwise { of, .. } => of_parameters(&of.range),
    };
    graph.dag.node_indices().map(chunk_of).collect()
}

/// The tasks of a stage, whose chunks take the passes of micro-batches as `steps` say; `chunk_of` is by node.
fn tasks(
    of: Lowering<'_>,
    (stages, stage): (&Stages, u32),
    (first, chunk_of): (usize, &[u32]),
    steps: Vec<PipelineStep>,
) -> Vec<Task> {
    let Lowering { graph, job, model, .. } = of;
    let chunk_of = |node: NodeIndex| chunk_of[node.index()];
    let passes = 0..of.sharding.map_or(1, |sharding| sharding.passes.len());
    let mut tasks = Tasks::new(of, 0, passes);
    let shared = stages.between(model);
    for node in graph.dag.node_indices() {
        // The other stage sums and updates a parameter of two layers too, and all stages add up their sums of squares.
        let also = shared.is_some_and(|(tie, (low, high))| {
            let range = &model.node(tie.owner).parameters[0].range;
            [low, high].contains(&stage) && changes(&graph.dag[node].work, range)
        });
        let is_own = chunk_of(node) % stages.stages() == stage;
        tasks.left_out[node.index()] = !(is_own || also || adds_squares(graph, node));
    }
    tasks.between = shared.map(|(_, between)| between);
    let (micro, step) = (tasks.of_scope(&[Scope::MicroBatch, Scope::Pass]), tasks.of_scope(&[Scope::Step]));
    tasks.push_start();
    let order = StageOrder { bodies: Vec::new(), steps, micro_batches: job.micro_batches() };
    let schedule = tasks.task("schedule".to_owned(), Op::Schedule(Arc::new(order.clone())), Vec::new());
    let own: Vec<u32> = (stage..stages.chunks().len() as u32).step_by(stages.stages() as usize).collect();
    let passes = job.schedule.passes();
    let bodies_of = |pass: &PipelinePass| -> Vec<(u32, PipelinePass)> {
        let ascending = own.iter().map(|chunk| (*chunk, *pass));
        if *pass == PipelinePass::Forward { ascending.collect() } else { ascending.rev().collect() }
    };
    let (mut bodies, mut edges) = (Vec::new(), Vec::new());
    for (chunk, pass) in passes.iter().flat_map(bodies_of) {
        let before_body = tasks.list.len();
        let is_of = |node: &NodeIndex| chunk_of(*node) == chunk && pass_of(&graph.dag[*node].work, passes) == pass;
        let (before, behind) =
            (chunk.checked_sub(1), Some(chunk).filter(|chunk| *chunk as usize + 1 < stages.chunks().len()));
        let (from, to) = match pass {
            PipelinePass::Forward => (before, behind),
            PipelinePass::Backward => (behind, before),
            PipelinePass::Weight => (None, None),
        };
        let border = |border: Option<u32>| {
            border
                .map(|border| Border::new(of, stages, first, (border, pass)))
                .filter(|border| !border.layers.is_empty())
        };
        edges.extend(border(from).and_then(|border| border.receive(&mut tasks.list)));
        if chunk > 0 && pass == PipelinePass::Forward {
            let shared = of.sharding.filter(|sharding| sharding.in_all_passes());
            let samples = shared.map_or(job.batch_per_rank, |sharding| sharding.pass_samples());
            let op = Op::Labels { samples, pass: shared.map(|_| 0) };
            tasks.task(format!("labels of chunk {chunk}"), op, Vec::new());
        }
        micro.iter().copied().filter(is_of).for_each(|node| tasks.push(node, 0));
        edges.extend(border(to).and_then(|border| border.send(&mut tasks.list)));
        bodies.push(StageBody { chunk, pass, tasks: tasks.list.len() - before_body });
    }
    tasks.list[schedule].op = Op::Schedule(Arc::new(StageOrder { bodies, ..order }));
    step.into_iter().for_each(|node| push_step(&mut tasks, graph, node));
    tasks.finish();
    for (task, after) in edges.into_iter().flatten() {
        tasks.list[task].after.push(after);
    }
    tasks.list
}

/// The pass through its chunk that a node of a micro-batch belongs to, where there are `passes`.
fn pass_of(work: &NodeWork, passes: &[PipelinePass]) -> PipelinePass {
    match work {
        NodeWork::Layer(_, Pass::BackwardWeight) if passes.contains(&PipelinePass::Weight) => PipelinePass::Weight,
        // What is computed again is there for the weight pass too, which comes later.
        NodeWork::Recompute(_) | NodeWork::Relayout { again: true, .. } => PipelinePass::Backward,
        NodeWork::Layer(_, of) | NodeWork::Relayout { pass: of, .. } if *of != Pass::Forward => PipelinePass::Backward,
        _ => PipelinePass::Forward,
    }
}

/// Whether a node sums or updates the parameters in `of`.
fn changes(work: &NodeWork, of: &Range<u64>) -> bool {
    match work {
        NodeWork::Collective { range, .. } => range == of,
        NodeWork::Elementwise { of: update, .. } => update.range == *of,
        _ => false,
    }
}

/// Whether a node adds the ranks' sums of squares.
fn adds_squares(graph: &Graph, node: NodeIndex) -> bool {
    let mut inputs = graph.dag.edges_directed(node, Direction::Incoming);
    matches!(graph.dag[node].work, NodeWork::Collective { .. })
        && inputs.any(|edge| edge.weight().tensor == Tensor::SquareSum)
}

/// Adds the tasks of a node between passes. A stage that counts no gradient adds nothing to the sum of squares, in each step
/// anew.
fn push_step(tasks: &mut Tasks<'_>, graph: &Graph, node: NodeIndex) {
    let has_sum = tasks.list.iter().any(|task| matches!(task.op, Op::Squares(_)));
    let axes = match &graph.dag[node].work {
        NodeWork::Collective { axes, .. } if adds_squares(graph, node) && !has_sum => *axes,
        _ => return tasks.push(node, 0),
    };
    let nothing = Squares { buffer: Buffer::Gradients, range: 0..0, shared: AxisSet::default(), axes, begins: true };
    let sum = tasks.task("squares".to_owned(), Op::Squares(nothing), Vec::new());
    tasks.push(node, 0);
    // No update keeps it from the next step while the sum of this one is under way.
    let exchange = tasks.list.len() - 1;
    tasks.list[sum].after.push(After { task: exchange, lag: 1 });
    tasks.list[exchange].after.push(After { task: sum, lag: 0 });
}

/// What crosses the border after a chunk in one direction.
struct Border<'a> {
    of: Lowering<'a>,
    /// The number of buffers before those of all borders.
    first: usize,
    border: u32,
    pass: PipelinePass,
    /// The stages on both sides, the lower one first, and whether the lower one sends.
    between: (u32, u32),
    upwards: bool,
    /// Layers whose outputs cross, or whose gradients do.
    layers: Vec<LayerId>,
    /// Micro-batches that may be in transfer at once: those between whose forward and backward pass the chunk before the
    /// border is, so that neither side waits for a free buffer.
    in_flight: u32,
}

/// Dependencies to be added to tasks.
type Edges = Vec<(TaskId, After)>;

impl<'a> Border<'a> {
    fn new(of: Lowering<'a>, stages: &Stages, first: usize, (border, pass): (u32, PipelinePass)) -> Border<'a> {
        let Lowering { job, model, .. } = of;
        let end = stages.chunks()[border as usize].layers.end;
        let wanted = |id: &LayerId| {
            let reads = |consumer: &LayerId| consumer.0 >= end && model.needs_input_gradient(*consumer);
            pass == PipelinePass::Forward || model.consumers(*id).iter().any(reads)
        };
        let layers = stages.crossing(model, border).into_iter().filter(wanted).collect();
        let (from, to) = (border % stages.stages(), (border + 1) % stages.stages());
        let (from, to) = if pass == PipelinePass::Forward { (from, to) } else { (to, from) };
        let lists = job.schedule.steps(border % stages.stages(), stages.stages(), job.micro_batches());
        let most = |mut steps: Vec<PipelineStep>| {
            steps.retain(|step| PipelinePass::CROSSING.contains(&step.pass));
            StageOrder { bodies: Vec::new(), steps, micro_batches: job.micro_batches() }.in_flight()
        };
        let in_flight = lists.map_or(1, most);
        Border { of, first, border, pass, between: (from.min(to), from.max(to)), upwards: from < to, layers, in_flight }
    }

    /// Elements of a layer's output over a micro-batch.
    fn elements(&self, id: LayerId) -> u64 {
        let sharding = self.of.sharding;
        let samples = sharding.map_or(self.of.job.batch_per_rank, |sharding| sharding.samples_on(0, Some(id), 0));
        self.of.model.node(id).output.elements() * u64::from(samples)
    }

    /// `activations of conv2`, or `gradients of conv1..conv2`.
    fn name(&self) -> String {
        let what = if self.pass == PipelinePass::Forward { "activations" } else { "gradients" };
        let name = |id: &LayerId| &self.of.model.node(*id).name;
        match self.layers.as_slice() {
            [] => format!("no {what} {}", self.border),
            [only] => format!("{what} of {}", name(only)),
            [first, .., last] => format!("{what} of {}..{}", name(first), name(last)),
        }
    }

    fn turns(&self) -> Turns {
        Turns { count: self.in_flight, elements: self.layers.iter().map(|id| self.elements(*id)).sum() }
    }

    fn buffer(&self) -> Buffer {
        Buffer::Declared(self.first + EACH * self.border as usize + self.pass as usize)
    }

    fn exchange(&self) -> Exchange {
        let turns = self.turns();
        let collective = Collective::Broadcast { root: u32::from(!self.upwards) };
        let (axes, range) = (AxisSet::of(&[Axis::Pipeline]), 0..turns.elements);
        let whole = Exchange::new(collective, Algorithm::binomial_tree(), axes, self.buffer(), range);
        // One message.
        Exchange { between: Some(self.between), turns, chunk: turns.elements, ..whole }
    }

    /// Copies between the buffer and the layers' own memory; the first and the last of them.
    fn copies(&self, tasks: &mut Vec<Task>, verb: &str, packs: bool) -> Range<TaskId> {
        let first = tasks.len();
        let mut at = 0;
        for id in &self.layers {
            let place = if self.pass == PipelinePass::Forward { Area::Activation(*id) } else { Area::Gradient(*id) };
            let (buffer, elements) = (Area::Buffer(self.buffer()), self.elements(*id));
            let (from, to, rows) = match packs {
                true => (place, buffer, Rows::one(elements, 0, at)),
                false => (buffer, place, Rows::one(elements, at, 0)),
            };
            at += elements;
            let what = if self.pass == PipelinePass::Forward { "activations" } else { "gradients" };
            let name = format!("{verb} {what} of {}", self.of.model.node(*id).name);
            let copy = Copy { from, to, rows: vec![rows], add: false, clear: false, turns: self.turns() };
            tasks.push(Task {
                name,
                op: Op::Copy(ByCoordinate::same(copy)),
                stream: Stream::Compute,
                after: Vec::new(),
            });
        }
        first..tasks.len()
    }

    /// The tasks that receive.
    fn receive(&self, tasks: &mut Vec<Task>) -> Option<Edges> {
        let receive = tasks.len();
        let (name, op) = (format!("receive {}", self.name()), Op::Exchange(self.exchange()));
        tasks.push(Task { name, op, stream: Stream::Receive, after: Vec::new() });
        let copies = self.copies(tasks, "unpack", false);
        let last = copies.clone().last()?;
        Some(vec![
            (copies.start, After { task: receive, lag: 0 }),
            (receive, After { task: last, lag: self.in_flight }),
        ])
    }

    /// The tasks that send.
    fn send(&self, tasks: &mut Vec<Task>) -> Option<Edges> {
        let copies = self.copies(tasks, "pack", true);
        let (send, last) = (tasks.len(), copies.clone().last()?);
        let (name, op) = (format!("send {}", self.name()), Op::Exchange(self.exchange()));
        tasks.push(Task { name, op, stream: Stream::Exchange, after: Vec::new() });
        Some(vec![(copies.start, After { task: send, lag: self.in_flight }), (send, After { task: last, lag: 0 })])
    }
}
