//! Lowers a graph to a program: per role one loop body of tasks, whatever the strategy.

mod changes;
mod device_roles;
mod devices;
mod nodes;
mod samples;
mod stages;
mod tasks;

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::{Dtype, ErrorPlace, InputError};

use crate::{
    Declared, Gradients, Graph, Job, LayerId, Members, Model, Op, Partition, PassRanks, Piece, Program, RankRange,
    Role, Shard, Sharding, Stages, Task, passes,
};

use crate::graph::Tensor;
use crate::program::declared_sum;
use tasks::{Tasks, limit_exchanges};

impl Job {
    /// Builds and checks the strategy's graph, with each rank's model where that is not all of the job's.
    ///
    /// # Errors
    /// Sizes of zero, sizes that overflow, unsupported settings.
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
        self.check_rule(shard.as_ref())?;
        let graph = graph.stepping_by(self.rule, self.clips);
        let graph = self.clipped(graph, shard.as_ref())?;
        graph.check().map_err(|error| InputError::new("strategy", self.strategy.to_string(), error.to_string()))?;
        self.check_axis_algorithms(&graph.mesh)?;
        Ok((graph, shard))
    }

    /// 16-bit gradients need 16-bit activations.
    fn check_gradients(&self) -> Result<(), InputError> {
        if self.gradients == Gradients::Half && !self.precision.copies_weights() {
            let message = format!(
                "gradients are computed in fp32 where precision is {}: use bf16, fp16 or fp8, or leave it out",
                self.precision
            );
            return Err(InputError::flag("gradients", self.gradients.to_string(), message));
        }
        Ok(())
    }

    /// Builds graph and program and applies the passes, checking each.
    ///
    /// # Errors
    /// As [`Job::graph`], or an algorithm that does not fit the group.
    pub fn program(&self) -> Result<Program, InputError> {
        self.check_gradients()?;
        let (graph, shard) = self.graph()?;
        let model = shard.as_ref().map_or(&self.model, |(model, _)| model);
        let stages = self.stages_of(model)?;
        let program = lower(&graph, self, shard.as_ref(), stages.as_ref())?;
        self.check_partition(&program)?;
        let program = if self.fuse { passes::fuse(program, stages.as_ref()) } else { program };
        let program = if self.pad { passes::pad(program) } else { program };
        let program = match self.ahead {
            Some(ahead) => passes::input(program, ahead),
            None => program,
        };
        program.check_beside(&self.proofs).map_err(|error| self.of_axis(error.or_at(ErrorPlace::Flag("algorithm"))))?;
        Ok(program)
    }
}

/// The inputs of lowering: a checked graph, and the model that each rank has.
#[derive(Clone, Copy)]
struct Lowering<'a> {
    graph: &'a Graph,
    job: &'a Job,
    model: &'a Arc<Model>,
    /// How the model was cut out of the job's, where it is not all of it.
    sharding: Option<&'a Arc<Sharding>>,
    /// The chain of each layer that computes.
    chain_of: &'a [Option<usize>],
    /// Which layers the stages of a pipeline have; one stage where passes of micro-batches alternate in one rank.
    stages: Option<&'a Stages>,
}

impl Lowering<'_> {
    /// The roles of all ranks, and the buffers that they declare.
    ///
    /// # Errors
    /// Micro-batches that the schedule of a pipeline does not take.
    fn roles(self) -> Result<(Vec<Role>, Vec<Declared>), InputError> {
        let Lowering { graph, job, model, sharding, .. } = self;
        let mut buffers = match sharding {
            Some(sharding) if sharding.pass_ranks == PassRanks::FirstOfNode => {
                return Ok((nodes::roles(self), nodes::buffers(model, sharding)));
            }
            Some(sharding) => changes::buffers(model, sharding),
            None if graph.dag.edge_weights().any(|edge| edge.tensor == Tensor::GradientSum) => {
                vec![Declared::scratch("gradient sums", model.parameter_elements())]
            }
            None => job.buffers_of_averaging(),
        };
        let own = job.strategy.buffers(job);
        if !own.is_empty()
            && (sharding.is_some() || self.stages.is_some() || buffers.len() > job.buffers_of_averaging().len())
        {
            let message = "declares buffers, which a strategy that splits layers, sums or stages does not: \
                           let it have whole models";
            return Err(InputError::new("strategy", job.strategy.to_string(), message));
        }
        buffers.extend(own);
        if let Some(stages) = self.stages {
            let roles = stages::roles(self, stages, buffers.len())?;
            buffers.extend(stages::buffers(self, stages));
            return Ok((roles, buffers));
        }
        if job.averaging().is_some() && job.devices().is_some() {
            return Ok((device_roles::roles(self), buffers));
        }
        let passes = 0..sharding.map_or(1, |sharding| sharding.passes.len());
        let worker = Role {
            name: "worker".into(),
            ranks: Members::range(0, job.workers),
            tasks: Tasks::new(self, 0, passes).run(),
        };
        Ok((vec![worker], buffers))
    }
}

/// Lowers a checked graph; every layer is a chain of its own until a pass fuses them.
///
/// # Errors
/// Micro-batches that a schedule does not take, a sampling that does not fit the nodes.
fn lower(graph: &Graph, job: &Job, shard: Option<&Shard>, stages: Option<&Stages>) -> Result<Program, InputError> {
    let (model, sharding) = (shard.map_or(&job.model, |(model, _)| model), shard.map(|(_, sharding)| sharding));
    let (chains, chain_of) = chain_of_layers(model);
    let lowering = Lowering { graph, job, model, sharding, chain_of: &chain_of, stages };
    let (mut roles, mut buffers) = lowering.roles()?;
    let rounds = job.gradients.dtype(job.precision) != Dtype::F32;
    buffers.extend(declared_sum(model, &chains, &roles, rounds));
    if job.servers() > 0 {
        roles.push(server(&roles[0], Members::range(job.workers, job.servers()), job.concurrent_exchanges));
    }
    Ok(Program {
        model: Arc::clone(model),
        precision: job.precision,
        gradients: job.gradients,
        moments: job.moments,
        rule: job.rule,
        chains,
        roles,
        mesh: graph.mesh.clone(),
        machines: job.machines(),
        devices: job.devices(),
        batch_per_rank: job.batch_per_rank,
        accumulate: job.micro_batches(),
        buffers,
        transform_at: job.transform_at,
        averaging: job.averaging(),
        sharding: sharding.cloned(),
        pools: job.pools()?,
        partition: partition(job, sharding.map(Arc::as_ref))?,
    })
}

/// Which ranks hold which samples: each those that it draws, or the first rank of a node those of all its ranks where
/// it takes their batches.
fn partition(job: &Job, sharding: Option<&Sharding>) -> Result<Option<Partition>, InputError> {
    let mut partition = job.sampling.partition(job.workers, job.node_sizes.as_deref())?;
    let by_node = sharding.filter(|sharding| sharding.pass_ranks == PassRanks::FirstOfNode);
    if let (Some(partition), Some(sharding)) = (&mut partition, by_node) {
        let node = |pass: &Vec<Piece>| RankRange { first: pass[0].worker, count: pass.len() as u32 };
        partition.nodes = sharding.passes.iter().map(node).collect();
    }
    Ok(partition)
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
    for (id, node) in model.iter().filter(|(_, node)| !(node.layer.is_input() || node.layer.is_relayout())) {
        debug_assert!(!node.inputs.is_empty());
        chain_of[id.index()] = Some(chains.len());
        chains.push(vec![id]);
    }
    (chains, chain_of)
}

/// Dedicated servers take part in the exchanges that they serve, and do nothing else.
fn server(worker: &Role, ranks: Members, limit: u32) -> Role {
    let served = worker.exchanges().filter(|(_, exchange)| exchange.algorithm.servers() > 0);
    let mut tasks: Vec<Task> = served.map(|(id, _)| Task { after: Vec::new(), ..worker.tasks[id].clone() }).collect();
    limit_exchanges(&mut tasks, limit, |task| matches!(task.op, Op::Exchange(_)));
    Role { name: "server".into(), ranks, tasks }
}
