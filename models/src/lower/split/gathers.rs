//! Gathers and returns as tasks: a copy into a buffer, an exchange, a copy out of it; and what the next pass may overlap.

use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective};

use super::{FEATURES, RETURNS, Rank, SAMPLES, block};
use crate::{After, Area, AxisSet, Buffer, Copy, Exchange, Gather, LayerId, Op, Rows, Task, TaskId};

impl Rank<'_> {
    /// `dense1`: what a gather is named by.
    fn label(&self, gather: LayerId, pass: usize) -> String {
        let of = &self.model.node(self.model.node(gather).inputs[0]).name;
        let what = if self.sharding.layers[gather.index()].gather == Some(Gather::Scores) { " scores" } else { "" };
        format!("{of}{what}{}", self.suffix(true, pass))
    }

    fn copy(&mut self, name: String, (from, to): (Area, Area), rows: Vec<Rows>, after: Option<TaskId>) -> TaskId {
        self.copy_and(name, (from, to), rows, (false, false), after)
    }

    /// A copy that adds, or clears what it leaves out.
    fn copy_and(
        &mut self,
        name: String,
        (from, to): (Area, Area),
        rows: Vec<Rows>,
        (add, clear): (bool, bool),
        after: Option<TaskId>,
    ) -> TaskId {
        let after = after.map(|task| After { task, lag: 0 }).into_iter().collect();
        self.task(name, Op::Copy(Copy { from, to, rows, add, clear }), after)
    }

    fn exchange(
        &mut self,
        name: String,
        collective: Collective,
        buffer: usize,
        elements: u64,
        after: TaskId,
    ) -> TaskId {
        let exchange = Exchange {
            collective,
            algorithm: Algorithm::direct(),
            axes: self.sharding.axes(),
            node_axes: AxisSet::default(),
            buffer: Buffer::Declared(buffer),
            range: 0..elements,
            chunk: 0,
            window: 0,
        };
        self.task(name, Op::Exchange(exchange), vec![After { task: after, lag: 0 }])
    }

    /// Samples of a pass that are each worker's, and where this rank's stand: in its own micro-batch and in the pass.
    fn shares(&self, pass: usize) -> (Vec<u64>, Option<(u64, u64, u64)>) {
        let mut counts = vec![0; self.job.workers as usize];
        let (mut at, mut own) = (0, None);
        for piece in &self.sharding.passes[pass] {
            counts[piece.worker as usize] = u64::from(piece.count);
            if piece.worker == self.rank {
                own = Some((u64::from(piece.count), u64::from(piece.first), at));
            }
            at += u64::from(piece.count);
        }
        (counts, own)
    }

    /// Sends the samples of a pass to all.
    fn send_samples(&mut self, gather: LayerId, pass: usize) -> TaskId {
        let (size, label) = (block(self.model, gather), self.label(gather, pass));
        let (counts, own) = self.shares(pass);
        let rows = own.map(|(count, first, at)| Rows::one(count * size, first * size, at * size));
        let (from, to) = (Area::Activation(self.model.node(gather).inputs[0]), Area::Buffer(Buffer::Declared(SAMPLES)));
        let packed = self.copy(format!("pack {label}"), (from, to), rows.into_iter().collect(), None);
        let counts: Arc<[u64]> = counts.into_iter().map(|count| count * size).collect();
        let elements = counts.iter().sum();
        self.exchange(format!("gather {label}"), Collective::AllGatherV { counts }, SAMPLES, elements, packed)
    }

    /// Takes the samples of a pass, and sends those of the next one on their way.
    pub(super) fn take_samples(&mut self, gather: LayerId, pass: usize) {
        let sent = match pass {
            0 => self.send_samples(gather, 0),
            _ => self.last_exchange(SAMPLES),
        };
        let elements = u64::from(self.sharding.pass_samples()) * block(self.model, gather);
        let (from, to) = (Area::Buffer(Buffer::Declared(SAMPLES)), Area::Activation(gather));
        let name = format!("unpack {}", self.label(gather, pass));
        self.copy(name, (from, to), vec![Rows::one(elements, 0, 0)], Some(sent));
        if pass + 1 < self.sharding.passes.len() {
            self.send_samples(gather, pass + 1);
        }
    }

    fn last_exchange(&self, buffer: usize) -> TaskId {
        let of_buffer = |task: &Task| matches!(&task.op, Op::Exchange(e) if e.buffer == Buffer::Declared(buffer));
        self.tasks.iter().rposition(of_buffer).expect("samples are sent before they are taken")
    }

    /// Sends the gradients of a pass back to where its samples are from, once those of the pass before are there.
    pub(super) fn return_samples(&mut self, gather: LayerId, pass: usize) {
        if let Some(before) = pass.checked_sub(1) {
            self.take_returned(gather, before);
        }
        let (size, label) = (block(self.model, gather), self.label(gather, pass));
        let (from, to) = (Area::Gradient(gather), Area::Buffer(Buffer::Declared(RETURNS)));
        let counts: Arc<[u64]> = self.shares(pass).0.into_iter().map(|count| count * size).collect();
        let elements = counts.iter().sum();
        let rows = vec![Rows::one(elements, 0, 0)];
        let packed = self.copy(format!("pack gradient {label}"), (from, to), rows, None);
        self.exchange(format!("return {label}"), Collective::ReduceScatterV { counts }, RETURNS, elements, packed);
    }

    /// Takes the gradients of this rank's samples that a pass gave back.
    pub(super) fn take_returned(&mut self, gather: LayerId, pass: usize) {
        let (size, returned) = (block(self.model, gather), self.last_exchange(RETURNS));
        let rows = self.shares(pass).1.map(|(count, first, at)| Rows::one(count * size, at * size, first * size));
        let (from, to) = (Area::Buffer(Buffer::Declared(RETURNS)), Area::Gradient(self.model.node(gather).inputs[0]));
        let name = format!("unpack gradient {}", self.label(gather, pass));
        self.copy(name, (from, to), rows.into_iter().collect(), Some(returned));
    }

    /// Rows between samples with all features and the ranks' blocks, `[rank][sample][feature]`, written one way.
    fn blocks(&self, gather: LayerId) -> Vec<Rows> {
        let (samples, size) = (u64::from(self.sharding.pass_samples()), block(self.model, gather));
        let (producer, whole) = (self.model.node(gather).inputs[0], self.model.node(gather).output.elements());
        let of = |rank: u32| Rows {
            count: samples,
            length: self.sharding.features(self.model, producer, rank),
            from: (u64::from(rank) * samples * size, size),
            to: (u64::from(rank) * size, whole),
        };
        (0..self.sharding.ranks).map(of).filter(|rows| rows.length > 0).collect()
    }

    /// Where this rank's block begins, and its elements.
    fn own_block(&self, gather: LayerId) -> (u64, u64) {
        let elements = u64::from(self.sharding.pass_samples()) * block(self.model, gather);
        (u64::from(self.rank) * elements, elements)
    }

    pub(super) fn gather_features(&mut self, gather: LayerId, pass: usize) {
        let (label, producer) = (self.label(gather, pass), self.model.node(gather).inputs[0]);
        let buffer = Area::Buffer(Buffer::Declared(FEATURES));
        let (start, elements) = self.own_block(gather);
        let rows = vec![Rows::one(elements, 0, start)];
        let packed = self.copy(format!("pack {label}"), (Area::Activation(producer), buffer), rows, None);
        let all = elements * u64::from(self.sharding.ranks);
        let sent = self.exchange(format!("gather {label}"), Collective::AllGather, FEATURES, all, packed);
        let rows = self.blocks(gather);
        self.copy(format!("unpack {label}"), (buffer, Area::Activation(gather)), rows, Some(sent));
    }

    pub(super) fn return_features(&mut self, gather: LayerId, pass: usize) {
        let label = self.label(gather, pass);
        let buffer = Area::Buffer(Buffer::Declared(FEATURES));
        let turned = |rows: Rows| Rows { from: rows.to, to: rows.from, ..rows };
        let rows = self.blocks(gather).into_iter().map(turned).collect();
        let packed = self.copy(format!("pack gradient {label}"), (Area::Gradient(gather), buffer), rows, None);
        let (start, elements) = self.own_block(gather);
        let all = elements * u64::from(self.sharding.ranks);
        let sent = self.exchange(format!("return {label}"), Collective::ReduceScatter, FEATURES, all, packed);
        let size = block(self.model, gather);
        self.take_gradient(gather, pass, buffer, (start, size), Some(sent));
    }

    /// All ranks have the whole gradient, and each takes that of its own features.
    pub(super) fn take_own_scores(&mut self, gather: LayerId, pass: usize) {
        let (size, whole) = (block(self.model, gather), self.model.node(gather).output.elements());
        self.take_gradient(gather, pass, Area::Gradient(gather), (u64::from(self.rank) * size, whole), None);
    }

    /// The gradient of this rank's features, from rows at `from`, into that of the layer that made them.
    fn take_gradient(&mut self, gather: LayerId, pass: usize, area: Area, from: (u64, u64), after: Option<TaskId>) {
        let producer = self.model.node(gather).inputs[0];
        let length = self.sharding.features(self.model, producer, self.rank);
        let rows =
            Rows { count: self.sharding.pass_samples().into(), length, from, to: (0, block(self.model, gather)) };
        let rows = if length > 0 { vec![rows] } else { Vec::new() };
        let add = self.is_written(producer, gather);
        // Padding learns nothing.
        let clear = !add && length < block(self.model, gather);
        let name = format!("unpack gradient {}", self.label(gather, pass));
        self.copy_and(name, (area, Area::Gradient(producer)), rows, (add, clear), after);
    }

    /// Whether another consumer of `producer`, whose backward pass came before, has written a part of its gradient.
    fn is_written(&self, producer: LayerId, gather: LayerId) -> bool {
        let consumers = self.model.consumers(producer);
        consumers.iter().any(|other| *other > gather && self.model.needs_input_gradient(*other))
    }
}
