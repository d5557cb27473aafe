//! Graph → program where layers are split by features: the passes one after the other.
//!
//! A gather or a return becomes three tasks: a copy into a buffer, an exchange, a copy out of it. What is copied depends on a
//! rank's coordinate; where a rank has nothing to copy, its copy is empty. The samples of the next pass are on their way as soon as those
//! of the present one are out of their buffer, so an exchange and the dense layers' computation overlap (Krizhevsky 2014 §4,
//! scheme (b)); so do the gradients that go back.

mod gathers;
mod table;

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::InputError;
use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

pub(crate) use table::lower as lower_table;

use super::{await_backward, bucket_name, chain_of_layers, limit_exchanges};
use crate::graph::{Scope, Work};
use crate::program::chain_name;
use crate::{
    After, AxisSet, Bucket, Buffer, Declared, Exchange, Gather, Graph, Job, LayerId, Model, Op, Pass, Phase, Program,
    RankRange, Role, Sharding, Stream, Task, TaskId, Turns,
};

/// Samples on their way to the split layers, their gradients on the way back, and whatever is gathered between split layers.
const SAMPLES: usize = 0;
const RETURNS: usize = 1;
const FEATURES: usize = 2;

/// Lowers a checked graph of a rank's `model`.
///
/// # Errors
/// Sizes that overflow.
pub(crate) fn lower(
    graph: &Graph,
    job: &Job,
    model: &Arc<Model>,
    sharding: &Arc<Sharding>,
) -> Result<Program, InputError> {
    let (chains, chain_of) = chain_of_layers(model);
    let lowering = Lowering { graph, job, model, sharding, chain_of: &chain_of };
    let ranks = RankRange { first: 0, count: job.workers };
    let role = Role { name: "worker".into(), ranks, tasks: lowering.tasks(0, 0..sharding.passes.len()) };
    lowering.program(chains, vec![role], buffers(model, sharding))
}

/// What all ranks' lists of tasks are made from.
#[derive(Clone, Copy)]
struct Lowering<'a> {
    graph: &'a Graph,
    job: &'a Job,
    model: &'a Arc<Model>,
    sharding: &'a Arc<Sharding>,
    chain_of: &'a [Option<usize>],
}

impl<'a> Lowering<'a> {
    /// The list of a rank that takes part in some passes.
    fn tasks(self, rank: u32, passes: Range<usize>) -> Vec<Task> {
        let Lowering { graph, job, model, sharding, chain_of } = self;
        let task_of = vec![None; graph.dag.node_count()];
        let mut rank = Rank { job, graph, model, sharding, chain_of, rank, passes, tasks: Vec::new(), task_of };
        rank.run();
        rank.tasks
    }

    /// The program of all ranks.
    ///
    /// # Errors
    /// A sampling that does not fit the nodes.
    fn program(
        self,
        chains: Vec<Vec<LayerId>>,
        roles: Vec<Role>,
        buffers: Vec<Declared>,
    ) -> Result<Program, InputError> {
        let Job { workers, batch_per_rank, .. } = *self.job;
        let nodes = self.job.node_sizes.as_deref();
        Ok(Program {
            model: Arc::clone(self.model),
            chains,
            roles,
            mesh: self.graph.mesh.clone(),
            machines: self.job.machines(),
            batch_per_rank,
            accumulate: 1,
            buffers,
            pools: self.job.sampling.pools(self.job.sources(), nodes),
            partition: self.job.sampling.partition(workers, nodes)?,
            averaging: None,
            sharding: Some(Arc::clone(self.sharding)),
        })
    }
}

/// Elements of a sample in the block that each rank contributes to a gather of features.
fn block(model: &Model, gather: LayerId) -> u64 {
    model.node(model.node(gather).inputs[0]).output.elements()
}

fn buffers(model: &Model, sharding: &Sharding) -> Vec<Declared> {
    let samples = u64::from(sharding.pass_samples());
    let most = |wanted: &dyn Fn(Gather) -> bool, returned: bool| {
        let gathers = model.iter().filter(|(id, _)| sharding.layers[id.index()].gather.is_some_and(wanted));
        let gathers = gathers.filter(|(id, _)| !returned || model.needs_input_gradient(*id));
        let elements = |id| match sharding.layers[LayerId::index(id)].gather {
            Some(Gather::Samples | Gather::Sums | Gather::Returns) => samples * block(model, id),
            _ => samples * block(model, id) * u64::from(sharding.ranks),
        };
        gathers.map(|(id, _)| elements(id)).max().unwrap_or(0)
    };
    let declared = |name: &str, elements| Declared { name: name.to_owned(), elements };
    vec![
        declared("samples", most(&|gather| gather == Gather::Samples, false)),
        declared("returns", most(&|gather| gather == Gather::Samples, true)),
        declared("features", most(&|gather| gather != Gather::Samples, false)),
    ]
}

/// One rank's list of tasks in the making.
struct Rank<'a> {
    job: &'a Job,
    graph: &'a Graph,
    model: &'a Model,
    sharding: &'a Sharding,
    chain_of: &'a [Option<usize>],
    rank: u32,
    /// The passes that it takes part in.
    passes: Range<usize>,
    tasks: Vec<Task>,
    task_of: Vec<Option<TaskId>>,
}

impl Rank<'_> {
    fn run(&mut self) {
        let nodes: Vec<NodeIndex> = self.graph.dag.node_indices().collect();
        let scope = |node: &NodeIndex| self.graph.dag[*node].scope;
        let of = |wanted| nodes.iter().copied().filter(|node| scope(node) == wanted).collect::<Vec<_>>();
        let (micro, passes, step) = (of(Scope::MicroBatch), of(Scope::Pass), of(Scope::Step));
        let (before, after): (Vec<_>, Vec<_>) = micro.into_iter().partition(|node| *node < passes[0]);
        before.into_iter().for_each(|node| self.push(node, 0));
        let last = self.passes.end - 1;
        for pass in self.passes.clone() {
            passes.iter().for_each(|node| self.push(*node, pass));
        }
        if let Some(gather) = self.samples().filter(|gather| self.model.needs_input_gradient(*gather)) {
            self.take_returned(gather, last);
        }
        after.into_iter().for_each(|node| self.push(node, 0));
        if self.sharding.by_node() {
            self.end_jobs("end backward jobs".to_owned(), None);
        }
        step.into_iter().for_each(|node| self.push(node, 0));
        if self.job.bucket == Bucket::Tensor {
            await_backward(&mut self.tasks);
        }
        // In a node's table each exchange waits for the one before anyway, as a library that blocks wants it.
        let all = self.sharding.by_node();
        let counts = |task: &Task| matches!(&task.op, Op::Exchange(e) if all || e.buffer == Buffer::Gradients);
        limit_exchanges(&mut self.tasks, self.job.concurrent_exchanges, counts);
    }

    /// The gather of samples, if there is one.
    fn samples(&self) -> Option<LayerId> {
        let is_it = |layer: &crate::ShardLayer| layer.gather == Some(Gather::Samples);
        self.sharding.layers.iter().position(is_it).map(|index| LayerId(index as u32))
    }

    fn push(&mut self, node: NodeIndex, pass: usize) {
        let node_of = &self.graph.dag[node];
        let in_pass = node_of.scope == Scope::Pass;
        match node_of.work.clone() {
            Work::Load if self.sharding.by_node() => self.load_for_node(),
            Work::Relayout { layer, pass: of, .. } if self.sharding.by_node() => self.relayout_in_node(layer, of),
            Work::Load => {
                let whole = self.sharding.in_all_passes();
                let samples = if whole { self.sharding.pass_samples() } else { self.job.batch_per_rank };
                let pass = whole.then_some(0);
                self.task("load".to_owned(), Op::Load { samples, pass, into: None }, Vec::new());
            }
            Work::Layer(id, of) => {
                let phase = match of {
                    Pass::Forward => Phase::Forward,
                    Pass::BackwardData => Phase::BackwardData,
                    Pass::BackwardWeight => Phase::BackwardWeight,
                };
                let Some(chain) = self.chain_of[id.index()] else { unreachable!("gathers are no layers of the graph") };
                let (samples, of_pass) = match in_pass {
                    true => (self.samples_of(pass), Some(pass as u32)),
                    false => (self.job.batch_per_rank, None),
                };
                let name = format!("{} {}{}", phase.name(), chain_name(self.model, &[id]), self.suffix(in_pass, pass));
                self.task(name, Op::Compute { chain, phase, samples, pass: of_pass }, Vec::new());
            }
            Work::Relayout { layer, pass: of, .. } => match (self.sharding.layers[layer.index()].gather, of) {
                (Some(Gather::Samples), Pass::Forward) => self.take_samples(layer, pass),
                (Some(Gather::Samples), _) => self.return_samples(layer, pass),
                (Some(Gather::Features | Gather::Scores), Pass::Forward) => self.gather_features(layer, pass),
                (Some(Gather::Features), _) => self.return_features(layer, pass),
                (Some(Gather::Scores), _) => self.take_own_scores(layer, pass),
                (Some(Gather::Sums), Pass::Forward) => self.add_up_outputs(layer, pass),
                (Some(Gather::Sums), _) => self.take_whole_gradient(layer, pass),
                (Some(Gather::Returns), Pass::Forward) => self.share(layer, pass),
                (Some(Gather::Returns), _) => self.add_up_gradients(layer, pass),
                (Some(Gather::Node) | None, _) => unreachable!("tables of nodes are lowered apart"),
            },
            Work::Elementwise { .. } => unreachable!("learners have whole models"),
            Work::Collective { collective, axes, range } => {
                let jobs = self.tasks.iter().rposition(|task| matches!(task.op, Op::Callback { .. }));
                let exchange = Exchange {
                    collective,
                    algorithm: self.job.algorithm.clone(),
                    axes,
                    between: None,
                    turns: Turns::ONE,
                    node_axes: AxisSet::default(),
                    buffer: Buffer::Gradients,
                    range: range.clone(),
                    chunk: self.job.chunk.map_or(0, |bytes| (bytes.0 / 4).max(1)),
                    window: 0,
                    padded: false,
                };
                let mut after = self.sources(node);
                after.extend(jobs.map(|task| After { task, lag: 0 }));
                self.task(bucket_name(self.model, "allreduce", &range), Op::Exchange(exchange), after);
            }
            Work::Update { range } => {
                let after = self.sources(node).into_iter().filter(|a| self.tasks[a.task].stream == Stream::Exchange);
                let (after, name) = (after.collect(), bucket_name(self.model, "update", &range));
                self.task(
                    format!("{name}{}", self.suffix(in_pass, pass)),
                    Op::Update { range, shared: AxisSet::default() },
                    after,
                );
            }
        }
        self.task_of[node.index()] = self.tasks.len().checked_sub(1);
    }

    /// `, pass 2`, where there are several.
    fn suffix(&self, in_pass: bool, pass: usize) -> String {
        if in_pass && self.sharding.passes.len() > 1 && !self.sharding.by_node() {
            format!(", pass {}", pass + 1)
        } else {
            String::new()
        }
    }

    fn task(&mut self, name: String, op: Op, after: Vec<After>) -> TaskId {
        let stream = if matches!(op, Op::Exchange(_)) { Stream::Exchange } else { Stream::Compute };
        self.tasks.push(Task { name, op, stream, after });
        self.tasks.len() - 1
    }

    /// The tasks of this step that made what `node` takes.
    fn sources(&self, node: NodeIndex) -> Vec<After> {
        let edges = self.graph.dag.edges_directed(node, Direction::Incoming);
        let mut tasks: Vec<TaskId> = edges.filter_map(|edge| self.task_of[edge.source().index()]).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks.into_iter().map(|task| After { task, lag: 0 }).collect()
    }
}
