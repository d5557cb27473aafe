//! Graph → program: per role one loop body of tasks.
//!
//! Micro-batch nodes stand in a `Repeat`, step nodes behind it; a step node that waits for a micro-batch node waits for its
//! last repetition, so exchanges overlap the backward pass of the last micro-batch. Dependencies that the order of a stream
//! implies are left out.

mod devices;
mod split;
mod stages;

use std::ops::Range;

use lockstep_topology::{Collective, InputError};
use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use crate::graph::{Scope, Tensor, Work};
use crate::program::chain_name;
use crate::{
    After, Averaging, Axis, AxisSet, Bucket, Buffer, Exchange, Graph, Job, LayerId, Model, Op, Pass, Phase, Program,
    RankRange, Role, Shard, Stages, Stream, Task, TaskId, Turns, passes,
};

use split::{lower as lower_split, lower_table};

impl Job {
    /// Strategy → graph, checked, with the model that each rank has where it is not all of the job's.
    ///
    /// # Errors
    /// Sizes of zero, sizes that overflow, what the strategy does not serve.
    pub fn graph(&self) -> Result<(Graph, Option<Shard>), InputError> {
        for (name, value) in [
            ("ranks", self.workers),
            ("batch_per_rank", self.batch_per_rank),
            ("accumulate", self.accumulate),
            ("concurrent_exchanges", self.concurrent_exchanges),
        ] {
            if value == 0 {
                return Err(InputError::flag(name, "0", "must be at least 1"));
            }
        }
        self.check_learners()?;
        let (graph, shard) = self.strategy.graph(self)?;
        graph.check().map_err(|error| InputError::new("strategy", self.strategy.to_string(), error.to_string()))?;
        Ok((graph, shard))
    }

    /// Graph → program → passes, each checked.
    ///
    /// # Errors
    /// As [`Job::graph`], or an algorithm that cannot serve the group.
    pub fn program(&self) -> Result<Program, InputError> {
        let (graph, shard) = self.graph()?;
        let stages = self.stages()?;
        let program = match shard {
            None => lower(&graph, self, stages.as_ref())?,
            Some((model, sharding)) if sharding.by_node() => lower_table(&graph, self, &model, &sharding)?,
            Some((model, sharding)) => lower_split(&graph, self, &model, &sharding)?,
        };
        self.check_partition(&program)?;
        let program = if self.fuse { passes::fuse(program, stages.as_ref()) } else { program };
        let early = self.strategy.updates_early() && self.workers > 1;
        let program = if early { passes::update_early(program, self.concurrent_exchanges) } else { program };
        let program = if self.pad { passes::pad(program) } else { program };
        program.check()?;
        Ok(program)
    }
}

/// Lowers a checked graph; every layer is a chain of its own until a pass fuses them.
///
/// # Errors
/// When the allreduce algorithm cannot serve the group.
fn lower(graph: &Graph, job: &Job, stages: Option<&Stages>) -> Result<Program, InputError> {
    let (chains, _) = chain_of_layers(&job.model);
    let mut roles = match stages {
        Some(stages) => stages::roles(graph, job, stages)?,
        None => {
            let mut worker = Lowering::new(job, graph);
            worker.run();
            vec![Role { name: "worker".into(), ranks: RankRange { first: 0, count: job.workers }, tasks: worker.tasks }]
        }
    };
    if job.averaging().is_some_and(|averaging| averaging.reference_alpha.is_some()) {
        roles = devices::apart(&roles[0], graph.mesh.size(Axis::Learner));
    }
    if job.servers() > 0 {
        roles.push(server(&roles[0], RankRange { first: job.workers, count: job.servers() }, job.concurrent_exchanges));
    }
    Ok(Program {
        model: job.model.clone(),
        chains,
        roles,
        mesh: graph.mesh.clone(),
        machines: job.machines(),
        batch_per_rank: job.batch_per_rank,
        accumulate: job.micro_batches(),
        buffers: match (job.averaging(), stages) {
            (Some(averaging), _) => averaging.buffers(job.model.parameter_elements()),
            (None, Some(stages)) => stages::buffers(job, stages),
            (None, None) => Vec::new(),
        },
        averaging: job.averaging(),
        sharding: None,
        pools: job.sampling.pools(job.sources(), job.node_sizes.as_deref()),
        partition: job.sampling.partition(job.workers, job.node_sizes.as_deref())?,
    })
}

struct Lowering<'a> {
    job: &'a Job,
    graph: &'a Graph,
    tasks: Vec<Task>,
    task_of: Vec<Option<TaskId>>,
    /// By node: whether it is that of another stage.
    left_out: Vec<bool>,
}

impl<'a> Lowering<'a> {
    fn new(job: &'a Job, graph: &'a Graph) -> Lowering<'a> {
        let count = graph.dag.node_count();
        Lowering { job, graph, tasks: Vec::new(), task_of: vec![None; count], left_out: vec![false; count] }
    }

    fn of_scope(&self, scope: Scope) -> Vec<NodeIndex> {
        let dag = &self.graph.dag;
        dag.node_indices().filter(|node| dag[*node].scope == scope && !self.left_out[node.index()]).collect()
    }

    fn run(&mut self) {
        let (micro, step) = (self.of_scope(Scope::MicroBatch), self.of_scope(Scope::Step));
        let claimed = self.job.claims();
        let repetitions = |averaging: Averaging| averaging.repetitions(self.job.workers);
        let count = self.job.averaging().map_or(self.job.micro_batches(), repetitions);
        if claimed || count > 1 {
            let op = Op::Repeat { count, body: micro.len(), claimed };
            self.tasks.push(Task { name: "micro-batches".into(), op, stream: Stream::Compute, after: Vec::new() });
        }
        for node in micro.into_iter().chain(step) {
            self.push(node);
        }
        self.finish();
    }

    /// Adds dependencies between streams, and the limit on exchanges in flight.
    fn finish(&mut self) {
        for index in 0..self.task_of.len() {
            if let Some(task) = self.task_of[index] {
                let after = self.after(NodeIndex::new(index), self.tasks[task].stream);
                self.tasks[task].after = after;
            }
        }
        if self.job.bucket == Bucket::Tensor {
            await_backward(&mut self.tasks);
        }
        limit_exchanges(&mut self.tasks, self.job.concurrent_exchanges, is_exchange);
    }

    fn push(&mut self, node: NodeIndex) {
        let (op, stream, name) = match &self.graph.dag[node].work {
            Work::Load => (
                Op::Load { samples: self.job.batch_per_rank, pass: None, into: None },
                Stream::Compute,
                "load".to_string(),
            ),
            Work::Layer(id, pass) => {
                let phase = match pass {
                    Pass::Forward => Phase::Forward,
                    Pass::BackwardData => Phase::BackwardData,
                    Pass::BackwardWeight => Phase::BackwardWeight,
                };
                let op = Op::Compute { chain: id.0 as usize - 1, phase, samples: self.job.batch_per_rank, pass: None };
                (op, Stream::Compute, format!("{} {}", phase.name(), chain_name(&self.job.model, &[*id])))
            }
            // One rank's partial sum is the whole sum: its readers wait for whoever made it.
            Work::Collective { axes, .. } if axes.iter().all(|axis| self.graph.mesh.size(axis) == 1) => return,
            Work::Collective { collective, axes, range } => {
                let (verb, exchange) = self.exchange(node, collective, *axes, range);
                (Op::Exchange(exchange), Stream::Exchange, bucket_name(&self.job.model, verb, range))
            }
            Work::Update { range } => {
                let name = bucket_name(&self.job.model, "update", range);
                // What lies in parts is updated in parts.
                let edges = self.graph.dag.edges_directed(node, Direction::Incoming);
                let shared = edges.fold(AxisSet::default(), |axes, edge| axes.or(edge.weight().layout.axes()));
                (Op::Update { range: range.clone(), shared }, Stream::Compute, name)
            }
            Work::Elementwise { of, stream } => {
                (Op::Elementwise(of.clone()), *stream, bucket_name(&self.job.model, of.formula.name(), &of.range))
            }
            Work::Relayout { .. } => unreachable!("graphs with split layers are lowered apart"),
        };
        self.task_of[node.index()] = Some(self.tasks.len());
        self.tasks.push(Task { name, op, stream, after: Vec::new() });
    }

    /// The verb in its name, and the exchange.
    fn exchange(
        &self,
        node: NodeIndex,
        collective: &Collective,
        axes: AxisSet,
        range: &Range<u64>,
    ) -> (&'static str, Exchange) {
        let averaging = self.job.averaging();
        let mut tensors = self.graph.dag.edges_directed(node, Direction::Incoming).map(|edge| edge.weight().tensor);
        let whole = Exchange {
            collective: collective.clone(),
            algorithm: self.job.algorithm.clone(),
            axes,
            between: None,
            turns: Turns::ONE,
            node_axes: AxisSet::default(),
            buffer: tensors.find_map(Tensor::buffer).unwrap_or(Buffer::Gradients),
            range: range.clone(),
            chunk: self.job.chunk.map_or(0, |bytes| (bytes.0 / 4).max(1)),
            window: 0,
            padded: false,
        };
        if averaging.is_some_and(|averaging| averaging.reference_alpha.is_some()) {
            devices::level(whole)
        } else {
            (collective.name(), whole)
        }
    }

    /// Dependencies between streams; the order inside a stream implies the others.
    fn after(&self, node: NodeIndex, stream: Stream) -> Vec<After> {
        let mut after: Vec<After> = Vec::new();
        for edge in self.graph.dag.edges_directed(node, Direction::Incoming) {
            let lag = u32::from(edge.weight().previous_step);
            for task in self.made_by(edge.source()) {
                if self.tasks[task].stream != stream {
                    after.push(After { task, lag });
                }
            }
        }
        after.sort_by_key(|after| after.task);
        after.dedup();
        after
    }

    /// The task of a node, or the tasks that it would have waited for where it is left out.
    fn made_by(&self, node: NodeIndex) -> Vec<TaskId> {
        match self.task_of[node.index()] {
            Some(task) => vec![task],
            None if self.left_out[node.index()] => Vec::new(),
            None => self
                .graph
                .dag
                .neighbors_directed(node, Direction::Incoming)
                .flat_map(|from| self.made_by(from))
                .collect(),
        }
    }
}

/// `update dense1..dense2`: a bucket is named by its first and last layer, one of a layer's tensors by its own name.
fn bucket_name(model: &Model, verb: &str, range: &Range<u64>) -> String {
    let several = model.layers().iter().filter(|node| node.parameters.len() > 1);
    if let Some(tensor) = several.flat_map(|node| &node.parameters).find(|tensor| tensor.range == *range) {
        return format!("{verb} {}", tensor.name);
    }
    let inside = |node: &&crate::Node| node.parameters.iter().any(|p| range.contains(&p.range.start));
    let names: Vec<&str> = model.layers().iter().filter(inside).map(|node| node.name.as_str()).collect();
    match names.as_slice() {
        [] => verb.to_string(),
        [only] => format!("{verb} {only}"),
        [first, .., last] => format!("{verb} {first}..{last}"),
    }
}

/// A chain for each layer that computes, and by layer which is its own.
fn chain_of_layers(model: &Model) -> (Vec<Vec<LayerId>>, Vec<Option<usize>>) {
    let (mut chains, mut chain_of) = (Vec::new(), vec![None; model.layers().len()]);
    for (id, node) in model.iter().filter(|(_, node)| !(node.layer.is_input() || node.layer.is_gather())) {
        debug_assert!(!node.inputs.is_empty());
        chain_of[id.index()] = Some(chains.len());
        chains.push(vec![id]);
    }
    (chains, chain_of)
}

/// Whether a task exchanges with a whole group, and not with one stage of a pipeline.
fn is_exchange(task: &Task) -> bool {
    matches!(&task.op, Op::Exchange(exchange) if exchange.between.is_none())
}

/// At most `limit` of the exchanges that count in flight: the n-th waits for the (n − limit)-th, the first ones for the last of the previous
/// iteration (Goyal et al. 2017 §4.2).
fn limit_exchanges(tasks: &mut [Task], limit: u32, counts: impl Fn(&Task) -> bool) {
    let exchanges: Vec<TaskId> = (0..tasks.len()).filter(|id| counts(&tasks[*id])).collect();
    let limit = (limit as usize).min(exchanges.len());
    for (n, task) in exchanges.iter().enumerate() {
        let after = match n.checked_sub(limit) {
            Some(earlier) => After { task: exchanges[earlier], lag: 0 },
            None => After { task: exchanges[n + exchanges.len() - limit], lag: 1 },
        };
        tasks[*task].after.push(after);
    }
}

/// Lets exchanges of gradients wait for the last backward task instead of those that made their gradients.
fn await_backward(tasks: &mut [Task]) {
    let backward = |task: &Task| matches!(task.op, Op::Compute { phase, .. } if phase != Phase::Forward);
    let Some(last) = tasks.iter().rposition(backward) else { return };
    for task in tasks.iter_mut().skip(last + 1) {
        if matches!(&task.op, Op::Exchange(exchange) if exchange.buffer == Buffer::Gradients) {
            task.after.retain(|after| after.lag > 0 || after.task > last);
            task.after.insert(0, After { task: last, lag: 0 });
        }
    }
}

/// Dedicated servers meet every exchange of the workers, and do nothing else.
fn server(worker: &Role, ranks: RankRange, limit: u32) -> Role {
    let mut tasks: Vec<Task> =
        worker.exchanges().map(|(id, _)| Task { after: Vec::new(), ..worker.tasks[id].clone() }).collect();
    limit_exchanges(&mut tasks, limit, is_exchange);
    Role { name: "server".into(), ranks, tasks }
}
