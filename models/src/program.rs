//! Defines the program: the tasks of each role of ranks in one iteration, the same value for simulator and executor.
//!
//! A role is a set of ranks that do the same, so a program for ten thousand ranks is as small as one for two. Tasks of
//! one stream run in program order; `after` adds dependencies between streams and iterations. Ranks interact only in
//! exchanges, and an exchange is never stored expanded: both sides pull its steps from the same [`Schedule`].

mod check;
mod consensus;
mod groups;
mod need;
mod parts;
mod pass_samples;
mod pieces;
mod rank_model;
mod span;
mod tied;

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::Dtype;

use crate::task::{Exchange, Op, Task, TaskId};
use crate::{
    Assignment, Averaging, Buffer, Declared, Formula, Gradients, LayerId, Members, Mesh, Model, Moments, Partition,
    Phase, Precision, Sharding, SquareSum, StageOrder, Start, TransformAt, UpdateRule,
};
pub use check::Proofs;
pub use consensus::SharedModels;
pub use need::{Loops, Need};
pub use pieces::{Pieces, pieces_within};
pub use rank_model::Origin;
pub use span::Span;
pub use tied::GradientShare;
pub(crate) use tied::declared_sum;

/// Ranks that do the same, and what they do in one iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// `worker` or `server`.
    pub name: String,
    /// Its ranks.
    pub ranks: Members,
    /// The loop body, in program order.
    pub tasks: Vec<Task>,
}

impl Role {
    /// Whether the gradients that `task`, a backward pass, makes are added to those of an earlier pass of this
    /// repetition, or of an earlier repetition (`again`), because no formula has consumed them.
    pub fn adds_gradients(&self, task: TaskId, again: bool) -> bool {
        let Op::Compute { chain, phase, .. } = self.tasks[task].op else { return false };
        let makes =
            |other: &Task| matches!(other.op, Op::Compute { chain: c, phase: p, .. } if (c, p) == (chain, phase));
        let earlier = self.tasks[..task].iter().rposition(makes);
        let around = self.loop_of(task).filter(|_| again).map(|(around, _)| around);
        let between = match (earlier, around) {
            (Some(earlier), _) => earlier..task,
            (None, Some(around)) => self.tasks_of(around),
            (None, None) => return false,
        };
        !phase.makes_outputs() && !self.tasks[between].iter().any(|task| task.op.uses_gradients())
    }

    /// The order in which it takes the passes of micro-batches, where it is a stage of a pipeline.
    pub fn order(&self) -> Option<&Arc<StageOrder>> {
        self.tasks.iter().find_map(|task| if let Op::Schedule(order) = &task.op { Some(order) } else { None })
    }

    /// Micro-batches whose activations exist at once.
    pub fn micro_batches_in_flight(&self) -> u32 {
        self.order().map_or(1, |order| order.in_flight())
    }

    /// The exchanges in program order.
    pub fn exchanges(&self) -> impl Iterator<Item = (TaskId, &Exchange)> {
        self.tasks.iter().enumerate().filter_map(|(id, task)| match &task.op {
            Op::Exchange(exchange) => Some((id, exchange)),
            _ => None,
        })
    }
}

/// A whole program. `PartialEq` is structural, so two lowerings can be compared.
#[derive(Debug, Clone)]
pub struct Program {
    /// The model whose layers the chains name.
    pub model: Arc<Model>,
    /// The numbers in which its layers are trained.
    pub precision: Precision,
    /// Those in which gradients are kept and exchanged.
    pub gradients: Gradients,
    /// Those in which the optimizer keeps its state.
    pub moments: Moments,
    /// The rule of the optimizer, which says what is kept for each parameter.
    pub rule: UpdateRule,
    /// Fused layers, each run by one kernel; a partition of all layers but the input, in topological order.
    pub chains: Vec<Vec<LayerId>>,
    /// All roles.
    pub roles: Vec<Role>,
    /// The coordinates of the ranks that train; exchanges are among groups along its axes.
    pub mesh: Mesh,
    /// How many ranks, servers included, are on each machine, in rank order; `None` where nothing depends on it.
    pub machines: Option<Arc<[u32]>>,
    /// How many workers are on each device, in rank order, where several share one; `None`: each has its own.
    pub devices: Option<Arc<[u32]>>,
    /// Samples per micro-batch of a worker, or of workers that share it.
    pub batch_per_rank: u32,
    /// Micro-batches per step and worker, on average where workers claim them.
    pub accumulate: u32,
    /// Buffers besides parameters and gradients, as [`Buffer::Declared`] numbers them.
    pub buffers: Vec<Declared>,
    /// How many ranks draw from each pool of samples: all workers in rank order, or the groups of those that share a
    /// micro-batch.
    pub pools: Vec<u32>,
    /// Which ranks hold which samples in memory; `None` where every rank has all of them.
    pub partition: Option<Partition>,
    /// Where decoded samples are transformed; of no effect without input tasks.
    pub transform_at: TransformAt,
    /// How learners' models are averaged; `None` where all workers train one model.
    pub averaging: Option<Averaging>,
    /// How `model`, a rank's, was cut out of a whole one; `None` where every rank has it whole.
    pub sharding: Option<Arc<Sharding>>,
}

impl Program {
    /// Elements of a buffer; 0 for one that was not declared.
    pub fn elements(&self, buffer: Buffer) -> u64 {
        match buffer {
            Buffer::Parameters | Buffer::Weights | Buffer::Gradients | Buffer::State(_) => {
                self.model.parameter_elements()
            }
            Buffer::Norm => {
                if self.clips() {
                    SquareSum::ELEMENTS
                } else {
                    0
                }
            }
            Buffer::Declared(index) => self.buffers.get(index).map_or(0, |buffer| buffer.elements),
        }
    }

    /// The buffers that are a part of the training's state besides parameters and what the optimizer keeps, with their content before
    /// the first iteration.
    pub fn state_buffers(&self) -> impl Iterator<Item = (Buffer, Start)> {
        (0..).zip(&self.buffers).filter_map(|(index, of)| Some((Buffer::Declared(index), of.state?)))
    }

    /// The format of a buffer, in memory and in messages.
    pub fn dtype(&self, buffer: Buffer) -> Dtype {
        buffer.dtype((self.precision, self.gradients, self.moments), &self.buffers)
    }

    /// Bytes that `formula` reads and writes for each element, by the formats of its buffers.
    pub fn bytes_moved(&self, formula: &Formula) -> u64 {
        formula.accesses().map(|(buffer, accesses)| accesses * self.dtype(buffer).bytes(1)).sum()
    }

    /// The buffer in which layers find their parameters: gathered ones where parameters are sharded.
    pub fn weights_of_layers(&self) -> Buffer {
        if self.shares_parameters() { Buffer::Weights } else { Buffer::Parameters }
    }

    /// Whether each rank keeps no more of the parameters than it updates.
    pub fn shares_parameters(&self) -> bool {
        self.roles.iter().flat_map(Role::exchanges).any(|(_, exchange)| exchange.buffer == Buffer::Weights)
    }

    /// The parameters that `rank` of `role` has all the time: ranges in ascending order that do not touch.
    pub fn kept_parameters(&self, role: &Role, rank: u32) -> Vec<Range<u64>> {
        if self.shares_parameters() { self.updated(role, rank) } else { self.parameters_of(role) }
    }

    /// The most samples that a chain takes at once in `role`: 0 where it does not run there.
    pub fn samples_of(&self, role: &Role, chain: usize) -> u32 {
        let of_chain = role.tasks.iter().filter_map(|task| match task.op {
            Op::Compute { chain: other, samples, .. } if other == chain => Some(samples),
            _ => None,
        });
        of_chain.max().unwrap_or(0)
    }

    /// Samples in the output of a layer in `role`; an output that no task computes has as many as its consumers take.
    pub fn samples_in(&self, role: &Role, id: LayerId) -> u32 {
        if let Some(samples) = self.samples_at_once(role, id) {
            return samples;
        }
        let of_layer = |id| {
            let chain = self.chains.iter().position(|chain| chain.contains(&id))?;
            Some(self.samples_of(role, chain))
        };
        let consumed = || self.model.consumers(id).iter().map(|id| self.samples_in(role, *id)).max();
        of_layer(id).or_else(consumed).unwrap_or(0)
    }

    /// Samples in the output of a layer where a micro-batch goes through all layers at once: in a pipeline's stage, and where
    /// ranks share all layers.
    pub(crate) fn samples_at_once(&self, role: &Role, id: LayerId) -> Option<u32> {
        match &self.sharding {
            Some(sharding) if sharding.in_all_passes() => Some(sharding.samples_on(0, Some(id), 0)),
            _ => role.order().map(|_| self.batch_per_rank),
        }
    }

    /// `, pass 2` after the name of a task in a pass, where there are several.
    pub(crate) fn pass_suffix(&self, pass: Option<u32>) -> String {
        let sharding = self.sharding.as_ref().zip(pass);
        sharding.map_or_else(String::new, |(sharding, pass)| sharding.pass_suffix(pass as usize))
    }

    /// Samples over which the gradient of the parameters from `start` on is a mean when they are updated: the global
    /// batch, or those of a pass where the batch varies (Krizhevsky 2014 §4.2).
    pub fn update_batch(&self, start: u64) -> u64 {
        let batch = self.gradient_samples();
        self.sharding.as_ref().map_or(batch, |sharding| sharding.update_batch(&self.model, start, batch))
    }

    /// Ranks that train, without dedicated servers.
    pub fn workers(&self) -> u32 {
        self.mesh.ranks()
    }

    /// All ranks, servers included.
    pub fn ranks(&self) -> u32 {
        self.roles.iter().map(|role| role.ranks.count()).sum()
    }

    /// Samples per optimizer step over all workers.
    pub fn global_batch(&self) -> u64 {
        self.pools.iter().map(|draw| u64::from(*draw)).sum::<u64>()
            * u64::from(self.batch_per_rank)
            * u64::from(self.accumulate)
    }

    /// Samples that a gradient is the mean over: all of a step; for learners, those of one batch.
    pub fn gradient_samples(&self) -> u64 {
        if self.trains_apart() { u64::from(self.batch_per_rank) } else { self.global_batch() }
    }

    /// Whether workers train models of their own between exchanges: formulas apply the gradients of each micro-batch,
    /// without what an optimizer keeps for a shared model.
    pub fn trains_apart(&self) -> bool {
        let applies = |task: &Task| match &task.op {
            Op::Elementwise(of) => {
                task.op.uses_gradients() && of.formula.writes(Buffer::Parameters) && task.op.update().is_none()
            }
            _ => false,
        };
        self.averaging.is_some() || self.roles[0].tasks.iter().any(applies)
    }

    /// Whether gradients are clipped by their global norm.
    pub fn clips(&self) -> bool {
        self.roles[0].tasks.iter().any(|task| matches!(task.op, Op::Squares(_)))
    }

    /// Whether samples are read, decoded and uploaded by tasks of their own.
    pub fn has_input(&self) -> bool {
        self.roles.iter().flat_map(|role| &role.tasks).any(|task| matches!(task.op, Op::Read { .. }))
    }

    /// Whether workers claim batches from the driver: round-robin, or first come, first served.
    pub fn claims(&self) -> bool {
        self.averaging.is_some_and(|averaging| averaging.assignment != Assignment::Own)
    }

    /// The parameters that the layers read which `role` computes, all of them where it has all: ranges in ascending order that
    /// do not touch.
    pub fn parameters_of(&self, role: &Role) -> Vec<Range<u64>> {
        if role.order().is_none() {
            let all = 0..self.model.parameter_elements();
            return vec![all];
        }
        let layers = self.layers_of(role);
        let read = layers.flat_map(|id| self.model.parameters_read_by(id));
        merged(read.map(|parameter| parameter.range.clone()).collect())
    }

    /// The layers that `role` computes in forward passes.
    pub fn layers_of(&self, role: &Role) -> impl Iterator<Item = LayerId> {
        let computes = |task: &Task| match task.op {
            Op::Compute { chain, phase: Phase::Forward | Phase::Evaluate, .. } => Some(chain),
            _ => None,
        };
        role.tasks.iter().filter_map(computes).flat_map(|chain| self.chains[chain].iter().copied())
    }

    /// The first rank that computes the last loss.
    pub fn first_with_loss(&self) -> u32 {
        let last = LayerId(self.model.layers().len() as u32 - 1);
        let has = |role: &&Role| role.order().is_none() || self.layers_of(role).any(|id| id == last);
        self.roles.iter().find(has).map_or(0, |role| role.ranks.first())
    }

    /// The number of the source of samples that `rank` draws from.
    pub fn source(&self, rank: u32) -> u32 {
        self.mesh.source(rank)
    }

    /// The parameters for which `rank` of `role` has the optimizer's state, those that it updates: ranges in ascending
    /// order that do not touch. All that it has where the role has no update.
    pub fn updated(&self, role: &Role, rank: u32) -> Vec<Range<u64>> {
        let updates = || role.tasks.iter().filter_map(|task| task.op.update());
        match updates().next() {
            None => self.parameters_of(role),
            Some(_) => merged(updates().map(|of| self.own_part(&of.range, of.shared, rank)).collect()),
        }
    }

    /// Index of the role of `rank`.
    pub fn role_of(&self, rank: u32) -> usize {
        self.roles.iter().position(|role| role.ranks.contains(rank)).expect("check: every rank has a role")
    }

    /// `conv1+relu1+pool1`: the name of a chain in tables and task names.
    pub fn chain_name(&self, chain: usize) -> String {
        chain_name(&self.model, &self.chains[chain])
    }
}

/// The same elements in ascending order, with touching ranges merged.
pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Names of the layers joined by `+`.
pub(crate) fn chain_name(model: &Model, layers: &[LayerId]) -> String {
    layers.iter().map(|id| model.node(*id).name.as_str()).collect::<Vec<_>>().join("+")
}
