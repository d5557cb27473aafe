//! Lowers graphs in which the first rank of each node takes its samples and its losses: a role for it, one
//! for the others.
//!
//! Both have the same list of tasks. What the first rank does for its node has no samples on the others, and takes
//! no time there.

use lockstep_topology::Collective;

use super::Lowering;
use super::tasks::Tasks;
use crate::{
    After, Area, Axis, AxisSet, Buffer, ByCoordinate, Copy, Declared, Exchange, LayerId, Members, Model, Op, Pass,
    Role, Rows, Sharding, TaskId, Turns,
};

/// A node's samples sent to its ranks, its scores sent to the first one, their gradients sent back.
const INPUTS: usize = 0;
const SCORES: usize = 1;
const GRADIENTS: usize = 2;

/// Two roles for each node.
pub(super) fn roles(of: Lowering<'_>) -> Vec<Role> {
    let mut roles = Vec::new();
    for (node, pieces) in of.sharding.iter().flat_map(|sharding| &sharding.passes).enumerate() {
        let (first, count) = (pieces[0].worker, pieces.len() as u32);
        let seats = [("first", Members::range(first, 1)), ("others", Members::range(first + 1, count - 1))];
        for (name, ranks) in seats.into_iter().filter(|(_, ranks)| ranks.count() > 0) {
            let tasks = Tasks::new(of, ranks.first(), node..node + 1).run();
            roles.push(Role { name: format!("{name} of node {node}"), ranks, tasks });
        }
    }
    roles
}

pub(super) fn buffers(model: &Model, sharding: &Sharding) -> Vec<Declared> {
    let samples = (0..sharding.passes.len()).map(|pass| u64::from(sharding.samples_of(pass))).max().unwrap_or(0);
    let gathers = || model.iter().filter(|(id, _)| model.node(*id).layer.is_relayout());
    let scores = |returned: bool| {
        let of = gathers().filter(|(id, _)| !returned || model.needs_input_gradient(*id));
        of.map(|(_, node)| node.output.elements()).max().unwrap_or(0)
    };
    let declared = |name: &str, each: u64| Declared::scratch(name, samples * each);
    vec![
        declared("inputs", model.input().elements()).of_dtype(model.sample().dtype),
        declared("scores", scores(false)),
        declared("score gradients", scores(true)),
    ]
}

impl Tasks<'_> {
    /// Samples that this rank takes in a pass: those of its node, if it is the first one there.
    fn samples_of(&self, pass: usize) -> u32 {
        self.sharding().samples_on(self.rank, None, pass)
    }

    fn is_first(&self, pass: usize) -> bool {
        self.sharding().passes[pass][0].worker == self.rank
    }

    /// Takes the samples of the node.
    pub(super) fn load_for_node(&mut self) {
        let pass = self.passes.start;
        let op = Op::Load { samples: self.samples_of(pass), pass: Some(pass as u32), into: Some(INPUTS) };
        self.task("load".to_owned(), op, Vec::new());
    }

    /// Scatters a node's samples, gathers its scores, or scatters their gradients.
    pub(super) fn relayout_in_node(&mut self, layer: LayerId, of: Pass) {
        let name = self.of.model.node(layer).name.as_str();
        match (self.of.model.node(layer).layer.is_relayout(), of) {
            (false, _) => {
                let elements = self.of.model.input().elements();
                let sent = self.scatter("inputs".to_owned(), INPUTS, elements, self.list.len() - 1);
                self.take("unpack inputs".to_owned(), INPUTS, Area::Activation(layer), elements, sent);
            }
            (true, Pass::Forward) => self.gather_scores(layer),
            (true, _) => {
                let elements = self.of.model.node(layer).output.elements();
                let (name, from) = (format!("pack {name} gradient"), Area::Gradient(layer));
                let packed = self.pack(name, from, GRADIENTS, self.all_rows(elements));
                let producer = self.of.model.node(layer).inputs[0];
                let of = format!("{} gradient", self.of.model.node(producer).name);
                let sent = self.scatter(of.clone(), GRADIENTS, elements, packed);
                self.take(format!("unpack {of}"), GRADIENTS, Area::Gradient(producer), elements, sent);
            }
        }
    }

    fn gather_scores(&mut self, gather: LayerId) {
        let (pass, elements) = (self.passes.start, self.of.model.node(gather).output.elements());
        let producer = self.of.model.node(gather).inputs[0];
        let name = self.of.model.node(producer).name.clone();
        let own = vec![Rows::one(u64::from(self.of.job.batch_per_rank) * elements, 0, 0)];
        let packed = self.pack(format!("pack {name}"), Area::Activation(producer), SCORES, own);
        let all = u64::from(self.sharding().samples_of(pass)) * elements;
        let gathered =
            self.node_exchange(format!("gather {name}"), Collective::Gather { root: 0 }, SCORES, all, packed);
        self.end_jobs(format!("end forward jobs {name}"), Some(gathered));
        let rows = self.all_rows(elements);
        let copy = moved(Area::Buffer(Buffer::Declared(SCORES)), Area::Activation(gather), rows);
        self.task(format!("unpack {name}"), copy, vec![After { task: gathered, lag: 0 }]);
    }

    /// The end of each device's job: callbacks on the node's main thread, one after the other (Kumar et al.
    /// 2018, §4.3).
    pub(super) fn end_jobs(&mut self, name: String, after: Option<TaskId>) {
        let pass = self.passes.start;
        let calls = if self.is_first(pass) { self.sharding().passes[pass].len() as u32 } else { 0 };
        let after = after.map(|task| After { task, lag: 0 }).into_iter().collect();
        self.task(name, Op::Host { calls, each: self.of.job.callback }, after);
    }

    /// What the first rank has of all samples of its node, at `elements` each; nothing on the others.
    fn all_rows(&self, elements: u64) -> Vec<Rows> {
        match u64::from(self.samples_of(self.passes.start)) {
            0 => Vec::new(),
            samples => vec![Rows::one(samples * elements, 0, 0)],
        }
    }

    /// Copies into a buffer once the exchange that used it last is over.
    fn pack(&mut self, name: String, from: Area, buffer: usize, rows: Vec<Rows>) -> TaskId {
        let uses = |op: &Op| matches!(op, Op::Exchange(e) if e.buffer == Buffer::Declared(buffer));
        let last = self.list.iter().rposition(|task| uses(&task.op));
        let after = last.map(|task| After { task, lag: 0 }).into_iter().collect();
        self.task(name, moved(from, Area::Buffer(Buffer::Declared(buffer)), rows), after)
    }

    /// Sends each rank of the node its part of a buffer of `elements` a sample.
    fn scatter(&mut self, what: String, buffer: usize, elements: u64, after: TaskId) -> TaskId {
        let all = u64::from(self.sharding().samples_of(self.passes.start)) * elements;
        self.node_exchange(format!("scatter {what}"), Collective::Scatter { root: 0 }, buffer, all, after)
    }

    /// Copies this rank's part out of a buffer.
    fn take(&mut self, name: String, buffer: usize, to: Area, elements: u64, sent: TaskId) {
        let rows = vec![Rows::one(u64::from(self.of.job.batch_per_rank) * elements, 0, 0)];
        let copy = moved(Area::Buffer(Buffer::Declared(buffer)), to, rows);
        self.task(name, copy, vec![After { task: sent, lag: 0 }]);
    }

    /// An exchange among the ranks of the node.
    fn node_exchange(
        &mut self,
        name: String,
        collective: Collective,
        buffer: usize,
        all: u64,
        after: TaskId,
    ) -> TaskId {
        let axes = AxisSet::of(&[Axis::Device]);
        let algorithm = self.of.job.activations_along(axes, &collective);
        let exchange = Exchange::new(collective, algorithm, axes, Buffer::Declared(buffer), 0..all);
        self.task(name, Op::Exchange(exchange), vec![After { task: after, lag: 0 }])
    }
}

/// A copy on all ranks of a role.
fn moved(from: Area, to: Area, rows: Vec<Rows>) -> Op {
    Op::Copy(ByCoordinate::same(Copy { from, to, rows, add: false, clear: false, turns: Turns::ONE }))
}
