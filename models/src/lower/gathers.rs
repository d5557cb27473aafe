//! Lowers gathers and returns to tasks: a copy into a buffer, an exchange, a copy out of it; and what the next pass
//! may overlap.

use std::sync::Arc;

use lockstep_topology::Collective;

use super::tasks::Tasks;
use crate::{
    After, Area, AxisSet, Buffer, ByCoordinate, Copy, Declared, Exchange, Gather, LayerId, Model, Op, Pass, Piece,
    Rows, Sharding, Task, TaskId, Turns,
};

/// Samples sent to the split layers, their gradients sent back, and gathers between split layers.
const SAMPLES: usize = 0;
const RETURNS: usize = 1;
const FEATURES: usize = 2;

/// Elements of a sample in the block that each rank contributes to a gather of features.
fn block(model: &Model, gather: LayerId) -> u64 {
    model.node(model.node(gather).inputs[0]).output.elements()
}

pub(super) fn buffers(model: &Model, sharding: &Sharding) -> Vec<Declared> {
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
    let declared = |name: &str, elements| Declared::scratch(name, elements);
    vec![
        declared("samples", most(&|gather| gather == Gather::Samples, false)),
        declared("returns", most(&|gather| gather == Gather::Samples, true)),
        declared("features", most(&|gather| gather != Gather::Samples, false)),
    ]
}

impl Tasks<'_> {
    /// A change of layout of what `layer` gathers, or of its gradient.
    pub(super) fn relayout(&mut self, layer: LayerId, of: Pass, pass: usize) {
        match (self.sharding().layers[layer.index()].gather, of) {
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
        }
    }

    /// Takes the gradients of this rank's samples that the last pass returned, where samples went to split layers.
    pub(super) fn take_last_returned(&mut self, last: usize) {
        let is_it = |layer: &crate::ShardLayer| layer.gather == Some(Gather::Samples);
        let gather = self.sharding().layers.iter().position(is_it).map(|index| LayerId(index as u32));
        if let Some(gather) = gather.filter(|gather| self.of.model.needs_input_gradient(*gather)) {
            self.take_returned(gather, last);
        }
    }

    /// `dense1`: the name of a gather in task names.
    fn label(&self, gather: LayerId, pass: usize) -> String {
        let of = &self.of.model.node(self.of.model.node(gather).inputs[0]).name;
        let what = if self.sharding().layers[gather.index()].gather == Some(Gather::Scores) { " scores" } else { "" };
        format!("{of}{what}{}", self.suffix(true, pass))
    }

    /// A copy of the same rows on all ranks.
    fn copy(&mut self, name: String, (from, to): (Area, Area), rows: Vec<Rows>, after: Option<TaskId>) -> TaskId {
        let copy = ByCoordinate::same(Copy { from, to, rows, add: false, clear: false, turns: Turns::ONE });
        self.copies(name, copy, after)
    }

    /// A copy of at most one set of rows on each rank, by the number of its part.
    fn copy_parts(
        &mut self,
        name: String,
        (from, to): (Area, Area),
        rows: impl Fn(u32) -> Option<Rows>,
        after: Option<TaskId>,
    ) -> TaskId {
        let of = |part| Copy {
            from,
            to,
            rows: rows(part).into_iter().collect(),
            add: false,
            clear: false,
            turns: Turns::ONE,
        };
        let copy = self.by_part(of);
        self.copies(name, copy, after)
    }

    /// The value of each part, by its coordinate.
    fn by_part<T: PartialEq>(&self, of: impl Fn(u32) -> T) -> ByCoordinate<T> {
        ByCoordinate::along(self.sharding().axis, (0..self.sharding().ranks).map(of).collect())
    }

    fn copies(&mut self, name: String, copy: ByCoordinate<Copy>, after: Option<TaskId>) -> TaskId {
        let after = after.map(|task| After { task, lag: 0 }).into_iter().collect();
        self.task(name, Op::Copy(copy), after)
    }

    fn send(&mut self, name: String, collective: Collective, buffer: usize, elements: u64, after: TaskId) -> TaskId {
        let (axes, buffer) = (AxisSet::of(&[self.sharding().axis]), Buffer::Declared(buffer));
        let algorithm = self.of.job.activations_along(axes, &collective);
        let exchange = Exchange::new(collective, algorithm, axes, buffer, 0..elements);
        self.task(name, Op::Exchange(exchange), vec![After { task: after, lag: 0 }])
    }

    /// By worker: its samples in a pass, if it has some, and the position of the first of them there.
    fn shares(&self, pass: usize) -> Vec<Option<(Piece, u64)>> {
        let mut shares = vec![None; self.sharding().ranks as usize];
        let mut at = 0;
        for piece in &self.sharding().passes[pass] {
            shares[piece.worker as usize] = Some((*piece, at));
            at += u64::from(piece.count);
        }
        shares
    }

    /// Elements of each worker in a pass, at `size` a sample.
    fn counts(&self, pass: usize, size: u64) -> Arc<[u64]> {
        let count = |share: Option<(Piece, u64)>| share.map_or(0, |(piece, _)| u64::from(piece.count) * size);
        self.shares(pass).into_iter().map(count).collect()
    }

    /// Sends the samples of a pass to all.
    fn send_samples(&mut self, gather: LayerId, pass: usize) -> TaskId {
        let (size, label) = (block(self.of.model, gather), self.label(gather, pass));
        let shares = self.shares(pass);
        let rows = |worker: u32| {
            let (piece, at) = shares[worker as usize]?;
            Some(Rows::one(u64::from(piece.count) * size, u64::from(piece.first) * size, at * size))
        };
        let (from, to) =
            (Area::Activation(self.of.model.node(gather).inputs[0]), Area::Buffer(Buffer::Declared(SAMPLES)));
        let packed = self.copy_parts(format!("pack {label}"), (from, to), rows, None);
        let counts = self.counts(pass, size);
        let elements = counts.iter().sum();
        self.send(format!("gather {label}"), Collective::AllGatherV { counts }, SAMPLES, elements, packed)
    }

    /// Takes the samples of a pass, and starts sending those of the next one.
    fn take_samples(&mut self, gather: LayerId, pass: usize) {
        let sent = match pass {
            0 => self.send_samples(gather, 0),
            _ => self.last_exchange(SAMPLES),
        };
        let elements = u64::from(self.sharding().pass_samples()) * block(self.of.model, gather);
        let (from, to) = (Area::Buffer(Buffer::Declared(SAMPLES)), Area::Activation(gather));
        let name = format!("unpack {}", self.label(gather, pass));
        self.copy(name, (from, to), vec![Rows::one(elements, 0, 0)], Some(sent));
        if pass + 1 < self.sharding().passes.len() {
            self.send_samples(gather, pass + 1);
        }
    }

    fn last_exchange(&self, buffer: usize) -> TaskId {
        let of_buffer = |task: &Task| matches!(&task.op, Op::Exchange(e) if e.buffer == Buffer::Declared(buffer));
        self.list.iter().rposition(of_buffer).expect("samples are sent before they are taken")
    }

    /// Sends the gradients of a pass back to the owners of its samples, once those of the pass before have arrived.
    fn return_samples(&mut self, gather: LayerId, pass: usize) {
        if let Some(before) = pass.checked_sub(1) {
            self.take_returned(gather, before);
        }
        let (size, label) = (block(self.of.model, gather), self.label(gather, pass));
        let (from, to) = (Area::Gradient(gather), Area::Buffer(Buffer::Declared(RETURNS)));
        let counts = self.counts(pass, size);
        let elements = counts.iter().sum();
        let rows = vec![Rows::one(elements, 0, 0)];
        let packed = self.copy(format!("pack gradient {label}"), (from, to), rows, None);
        self.send(format!("return {label}"), Collective::ReduceScatterV { counts }, RETURNS, elements, packed);
    }

    /// Takes the gradients of this rank's samples that a pass returned.
    fn take_returned(&mut self, gather: LayerId, pass: usize) {
        let (size, returned) = (block(self.of.model, gather), self.last_exchange(RETURNS));
        let shares = self.shares(pass);
        let rows = |worker: u32| {
            let (piece, at) = shares[worker as usize]?;
            Some(Rows::one(u64::from(piece.count) * size, at * size, u64::from(piece.first) * size))
        };
        let (from, to) =
            (Area::Buffer(Buffer::Declared(RETURNS)), Area::Gradient(self.of.model.node(gather).inputs[0]));
        let name = format!("unpack gradient {}", self.label(gather, pass));
        self.copy_parts(name, (from, to), rows, Some(returned));
    }

    /// Rows between samples with all features and the ranks' blocks, `[rank][sample][feature]`, one of them the
    /// destination.
    fn blocks(&self, gather: LayerId) -> Vec<Rows> {
        let (samples, size) = (u64::from(self.sharding().pass_samples()), block(self.of.model, gather));
        let (producer, whole) = (self.of.model.node(gather).inputs[0], self.of.model.node(gather).output.elements());
        let of = |rank: u32| Rows {
            count: samples,
            length: self.sharding().features(self.of.model, producer, rank),
            from: (u64::from(rank) * samples * size, size),
            to: (u64::from(rank) * size, whole),
        };
        (0..self.sharding().ranks).map(of).filter(|rows| rows.length > 0).collect()
    }

    /// Elements of the block of each part.
    fn block_elements(&self, gather: LayerId) -> u64 {
        u64::from(self.sharding().pass_samples()) * block(self.of.model, gather)
    }

    fn gather_features(&mut self, gather: LayerId, pass: usize) {
        let (label, producer) = (self.label(gather, pass), self.of.model.node(gather).inputs[0]);
        let buffer = Area::Buffer(Buffer::Declared(FEATURES));
        let elements = self.block_elements(gather);
        let rows = |part: u32| Some(Rows::one(elements, 0, u64::from(part) * elements));
        let packed = self.copy_parts(format!("pack {label}"), (Area::Activation(producer), buffer), rows, None);
        let all = elements * u64::from(self.sharding().ranks);
        let sent = self.send(format!("gather {label}"), Collective::AllGather, FEATURES, all, packed);
        let rows = self.blocks(gather);
        self.copy(format!("unpack {label}"), (buffer, Area::Activation(gather)), rows, Some(sent));
    }

    fn return_features(&mut self, gather: LayerId, pass: usize) {
        let label = self.label(gather, pass);
        let buffer = Area::Buffer(Buffer::Declared(FEATURES));
        let turned = |rows: Rows| Rows { from: rows.to, to: rows.from, ..rows };
        let rows = self.blocks(gather).into_iter().map(turned).collect();
        let packed = self.copy(format!("pack gradient {label}"), (Area::Gradient(gather), buffer), rows, None);
        let elements = self.block_elements(gather);
        let all = elements * u64::from(self.sharding().ranks);
        let sent = self.send(format!("return {label}"), Collective::ReduceScatter, FEATURES, all, packed);
        let size = block(self.of.model, gather);
        self.take_gradient(gather, pass, buffer, |part| (u64::from(part) * elements, size), Some(sent));
    }

    /// Elements of what all ranks have in full.
    fn whole(&self, gather: LayerId) -> Vec<Rows> {
        vec![Rows::one(self.block_elements(gather), 0, 0)]
    }

    /// Adds up the partial outputs of a layer whose columns are split.
    fn add_up_outputs(&mut self, gather: LayerId, pass: usize) {
        let (label, producer) = (self.label(gather, pass), self.of.model.node(gather).inputs[0]);
        self.add_up(gather, &label, (Area::Activation(producer), Area::Activation(gather)), false);
    }

    /// Adds up the partial gradients of what every rank has.
    fn add_up_gradients(&mut self, gather: LayerId, pass: usize) {
        let (label, producer) = (self.label(gather, pass), self.of.model.node(gather).inputs[0]);
        let add = self.is_written(producer, gather);
        self.add_up(gather, &format!("gradient {label}"), (Area::Gradient(gather), Area::Gradient(producer)), add);
    }

    /// Sums one area over the ranks into another, or adds the sum there.
    fn add_up(&mut self, gather: LayerId, what: &str, (from, to): (Area, Area), add: bool) {
        let (buffer, rows, elements) =
            (Area::Buffer(Buffer::Declared(FEATURES)), self.whole(gather), self.block_elements(gather));
        let packed = self.copy(format!("pack {what}"), (from, buffer), rows.clone(), None);
        let sent = self.send(format!("sum {what}"), Collective::AllReduce, FEATURES, elements, packed);
        let copy = Copy { from: buffer, to, rows, add, clear: false, turns: Turns::ONE };
        self.copies(format!("unpack {what}"), ByCoordinate::same(copy), Some(sent));
    }

    /// The gradient of a sum is that of each of its parts.
    fn take_whole_gradient(&mut self, gather: LayerId, pass: usize) {
        let (name, producer) =
            (format!("unpack gradient {}", self.label(gather, pass)), self.of.model.node(gather).inputs[0]);
        self.copy(name, (Area::Gradient(gather), Area::Gradient(producer)), self.whole(gather), None);
    }

    /// Takes what every rank has.
    fn share(&mut self, gather: LayerId, pass: usize) {
        let (name, producer) = (format!("unpack {}", self.label(gather, pass)), self.of.model.node(gather).inputs[0]);
        self.copy(name, (Area::Activation(producer), Area::Activation(gather)), self.whole(gather), None);
    }

    /// All ranks have the whole gradient, and each takes that of its own features.
    fn take_own_scores(&mut self, gather: LayerId, pass: usize) {
        let (size, whole) = (block(self.of.model, gather), self.of.model.node(gather).output.elements());
        self.take_gradient(gather, pass, Area::Gradient(gather), |part| (u64::from(part) * size, whole), None);
    }

    /// Copies the gradient of a rank's own features, from rows at `from` of its part, into that of the layer
    /// that made them.
    fn take_gradient(
        &mut self,
        gather: LayerId,
        pass: usize,
        area: Area,
        from: impl Fn(u32) -> (u64, u64),
        after: Option<TaskId>,
    ) {
        let (producer, size) = (self.of.model.node(gather).inputs[0], block(self.of.model, gather));
        let (count, add) = (self.sharding().pass_samples().into(), self.is_written(producer, gather));
        let copy = self.by_part(|part| {
            let length = self.sharding().features(self.of.model, producer, part);
            let rows = Rows { count, length, from: from(part), to: (0, size) };
            let rows = if length > 0 { vec![rows] } else { Vec::new() };
            // Padding has no gradient.
            let clear = !add && length < size;
            Copy { from: area, to: Area::Gradient(producer), rows, add, clear, turns: Turns::ONE }
        });
        self.copies(format!("unpack gradient {}", self.label(gather, pass)), copy, after);
    }

    /// Whether another consumer of `producer`, whose backward pass came before, has written a part of its gradient.
    fn is_written(&self, producer: LayerId, gather: LayerId) -> bool {
        let consumers = self.of.model.consumers(producer);
        consumers.iter().any(|other| *other > gather && self.of.model.needs_input_gradient(*other))
    }
}
