//! Lowers the way of samples to split layers and back, where these take the samples of several ranks in passes: what the next
//! pass may overlap is sent ahead (Krizhevsky 2014 §4).

use std::sync::Arc;

use lockstep_topology::Collective;

use super::changes::{RETURNS, SAMPLES};
use super::tasks::Tasks;
use crate::model::SAMPLES as BY_SAMPLE;
use crate::{Area, AxisLayout, Buffer, LayerId, Op, Pass, Piece, Rows, Task, TaskId};

impl Tasks<'_> {
    /// Takes the gradients of this rank's samples that the last pass returned, where samples went to split layers.
    pub(super) fn take_last_returned(&mut self, last: usize) {
        let of_samples = |id: &LayerId| {
            let change = self.sharding().change(self.of.model, *id, Pass::Forward);
            change == Some((BY_SAMPLE, AxisLayout::Replicated)) && !self.sharding().in_all_passes()
        };
        let gather = self.of.model.iter().map(|(id, _)| id).find(of_samples);
        if let Some(gather) = gather.filter(|gather| self.of.model.needs_input_gradient(*gather)) {
            self.take_returned(gather, last);
        }
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
        let (size, label) = (self.size(gather), self.label(gather, pass));
        let shares = self.shares(pass);
        let rows = |worker: u32| {
            let (piece, at) = shares[worker as usize]?;
            Some(Rows::one(u64::from(piece.count) * size, u64::from(piece.first) * size, at * size))
        };
        let (from, to) = (Area::Activation(self.producer(gather)), Area::Buffer(Buffer::Declared(SAMPLES)));
        let packed = self.copy_parts(format!("pack {label}"), (from, to), rows, None);
        let counts = self.counts(pass, size);
        let elements = counts.iter().sum();
        self.send(format!("gather {label}"), Collective::AllGatherV { counts }, SAMPLES, elements, packed)
    }

    /// Takes the samples of a pass, and starts sending those of the next one.
    pub(super) fn take_samples(&mut self, gather: LayerId, pass: usize) {
        let sent = match pass {
            0 => self.send_samples(gather, 0),
            _ => self.last_exchange(SAMPLES),
        };
        let elements = u64::from(self.sharding().pass_samples()) * self.size(gather);
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
    pub(super) fn return_samples(&mut self, gather: LayerId, pass: usize) {
        if let Some(before) = pass.checked_sub(1) {
            self.take_returned(gather, before);
        }
        let (size, label) = (self.size(gather), self.label(gather, pass));
        let (from, to) = (Area::Gradient(gather), Area::Buffer(Buffer::Declared(RETURNS)));
        let counts = self.counts(pass, size);
        let elements = counts.iter().sum();
        let rows = vec![Rows::one(elements, 0, 0)];
        let packed = self.copy(format!("pack gradient {label}"), (from, to), rows, None);
        self.send(format!("return {label}"), Collective::ReduceScatterV { counts }, RETURNS, elements, packed);
    }

    /// Takes the gradients of this rank's samples that a pass returned.
    fn take_returned(&mut self, gather: LayerId, pass: usize) {
        let (size, returned) = (self.size(gather), self.last_exchange(RETURNS));
        let shares = self.shares(pass);
        let rows = |worker: u32| {
            let (piece, at) = shares[worker as usize]?;
            Some(Rows::one(u64::from(piece.count) * size, at * size, u64::from(piece.first) * size))
        };
        let (from, to) = (Area::Buffer(Buffer::Declared(RETURNS)), Area::Gradient(self.producer(gather)));
        let name = format!("unpack gradient {}", self.label(gather, pass));
        self.copy_parts(name, (from, to), rows, Some(returned));
    }
}
