//! Lowers a change of layout to tasks: a copy into a buffer, an exchange, a copy out of it; or a copy alone where every rank
//! has what it takes.
//!
//! The whole tensor is `[row][feature]`, a row being a sample, or a position of one. A rank's part of it has some samples or some
//! features, and lies in its own memory without gaps. In the buffer of an allgather or a reduce-scatter the parts follow one
//! another; in that of an all-to-all each pair of ranks has a block, by source and then by destination.

use lockstep_topology::Collective;

use super::tasks::Tasks;
use crate::model::{FEATURES, SAMPLES as BY_SAMPLE};
use crate::tensor::transition;
use crate::{
    After, Area, AxisLayout, AxisSet, Buffer, ByCoordinate, Copy, Declared, Exchange, LayerId, Model, Op, Pass, Rows,
    Sharding, TaskId, Turns,
};

/// Samples sent to the split layers, their gradients sent back, and changes between split layers.
pub(super) const SAMPLES: usize = 0;
pub(super) const RETURNS: usize = 1;
const CHANGES: usize = 2;

const WHOLE: AxisLayout = AxisLayout::Replicated;

pub(super) fn buffers(model: &Model, sharding: &Sharding) -> Vec<Declared> {
    let mut most = [0; 3];
    for (id, _) in model.iter() {
        let passes = [Pass::Forward, Pass::BackwardData];
        for pass in passes.into_iter().filter(|pass| *pass == Pass::Forward || model.needs_input_gradient(id)) {
            let Some(change) = Change::of(model, sharding, id, pass) else { continue };
            let buffer = match pass {
                _ if !change.is_of_passes() => CHANGES,
                Pass::Forward => SAMPLES,
                _ => RETURNS,
            };
            most[buffer] = most[buffer].max(change.staged());
        }
    }
    let names = ["samples", "returns", "features"];
    names.into_iter().zip(most).map(|(name, elements)| Declared::scratch(name, elements)).collect()
}

/// A change of layout between the output of a layer and that of `layer`, or back between the gradients of these.
#[derive(Clone, Copy)]
struct Change<'a> {
    model: &'a Model,
    sharding: &'a Sharding,
    layer: LayerId,
    producer: LayerId,
    from: AxisLayout,
    to: AxisLayout,
}

impl<'a> Change<'a> {
    fn of(model: &'a Model, sharding: &'a Sharding, layer: LayerId, pass: Pass) -> Option<Change<'a>> {
        let (from, to) = sharding.change(model, layer, pass)?;
        Some(Change { model, sharding, layer, producer: model.node(layer).inputs[0], from, to })
    }

    /// Whether samples go to layers that run in several passes, or their gradients come back.
    fn is_of_passes(self) -> bool {
        !self.sharding.in_all_passes() && [self.from, self.to].contains(&BY_SAMPLE)
    }

    fn ranks(self) -> u64 {
        self.sharding.ranks.into()
    }

    /// Rows of the whole tensor, those of a sample being what lies outside of its features.
    fn rows(self) -> u64 {
        let [a, b] = [self.producer, self.layer].map(|id| self.model.node(id).output.rows());
        u64::from(self.sharding.pass_samples()) * a.max(b)
    }

    /// Both layers with the elements of a row, padding included: that with a rank's features first.
    fn widths(self) -> [(u64, LayerId); 2] {
        let mut of = [self.producer, self.layer].map(|id| (self.model.node(id).output.row_elements(), id));
        of.sort_unstable();
        of
    }

    /// Elements of a row, padding included: of the whole tensor, and of a rank's features.
    fn sizes(self) -> (u64, u64) {
        let [(part, _), (whole, _)] = self.widths();
        (whole, part)
    }

    /// Elements of a row that a rank's features have, without padding.
    fn features(self, part: u64) -> u64 {
        let [(_, id), _] = self.widths();
        self.sharding.features(self.model, id, part as u32) / self.model.node(id).output.rows()
    }

    /// Elements of a rank's part in a layout.
    fn part(self, layout: AxisLayout) -> u64 {
        let (whole, features) = self.sizes();
        match layout {
            FEATURES => self.rows() * features,
            BY_SAMPLE => self.rows() / self.ranks() * whole,
            _ => self.rows() * whole,
        }
    }

    fn collective(self) -> Option<Collective> {
        transition(self.from, self.to).flatten().filter(|_| self.from != self.to)
    }

    /// Elements of the buffer between the copies.
    fn staged(self) -> u64 {
        match self.collective() {
            None => 0,
            // Parts of a pass differ by a sample.
            Some(_) if self.is_of_passes() => self.part(WHOLE),
            Some(Collective::AllReduce) => self.part(WHOLE),
            Some(Collective::AllGather) => self.ranks() * self.part(self.from),
            Some(Collective::AllToAll) => self.ranks() * self.part(FEATURES),
            Some(_) => self.ranks() * self.part(self.to),
        }
    }

    /// What `part` has in a layout, out of the whole tensor into its own memory.
    fn own(self, layout: AxisLayout, part: u64) -> Vec<Rows> {
        let (whole, size) = self.sizes();
        let elements = self.part(layout);
        let rows = match layout {
            FEATURES => {
                let length = self.features(part);
                Rows { count: self.rows(), length, from: (part * size, whole), to: (0, size) }
            }
            BY_SAMPLE => Rows::one(elements, part * elements, 0),
            _ => Rows::one(elements, 0, 0),
        };
        if rows.length > 0 { vec![rows] } else { Vec::new() }
    }

    /// The parts of all ranks, out of the whole tensor into the buffer.
    fn parts(self, layout: AxisLayout) -> Vec<Rows> {
        let elements = self.part(layout);
        if layout != FEATURES {
            return vec![Rows::one(self.part(WHOLE), 0, 0)];
        }
        let behind = |part: u64| self.own(layout, part).into_iter().map(move |rows| to_behind(rows, part * elements));
        (0..self.ranks()).flat_map(behind).collect()
    }

    /// What `part` has in a layout, out of its block of the buffer into its own memory.
    fn of_block(self, layout: AxisLayout, part: u64) -> Vec<Rows> {
        let elements = self.part(layout);
        let behind = |rows: Rows| match layout {
            FEATURES => Rows { from: (part * elements, rows.to.1), ..rows },
            _ => Rows::one(elements, part * elements, 0),
        };
        self.own(layout, part).into_iter().map(behind).collect()
    }

    /// What the features of `part` have of the samples of each rank: between the samples of one rank and the buffer's block
    /// that goes there, or that came from there.
    fn pairs(self, own: u64, sends: bool) -> Vec<Rows> {
        let (ranks, (whole, size), split) = (self.ranks(), self.sizes(), self.from == BY_SAMPLE);
        let count = self.rows() / ranks;
        let of = |other: u64| {
            // What has its samples at home is cut by features, and the other way round.
            let by_features = split == sends;
            let length = self.features(if by_features { other } else { own });
            let at_home = if by_features { (other * size, whole) } else { (other * count * size, size) };
            let pair = if sends { own * ranks + other } else { other * ranks + own };
            let rows = Rows { count, length, from: at_home, to: (pair * count * size, size) };
            if sends { rows } else { turned(rows) }
        };
        (0..ranks).map(of).filter(|rows| rows.length > 0).collect()
    }
}

/// A copy of the same rows on all ranks.
fn same((from, to): (Area, Area), add: bool, rows: Vec<Rows>) -> ByCoordinate<Copy> {
    ByCoordinate::same(Copy { from, to, rows, add, clear: false, turns: Turns::ONE })
}

fn to_behind(rows: Rows, by: u64) -> Rows {
    Rows { to: (rows.to.0 + by, rows.to.1), ..rows }
}

fn turned(rows: Rows) -> Rows {
    Rows { from: rows.to, to: rows.from, ..rows }
}

impl Tasks<'_> {
    /// A change of layout of the input of `layer`, or of its gradient.
    pub(super) fn relayout(&mut self, layer: LayerId, of: Pass, pass: usize) {
        let change = Change::of(self.of.model, self.sharding(), layer, of).expect("a change of layout");
        match (change.is_of_passes(), of) {
            (true, Pass::Forward) => self.take_samples(layer, pass),
            (true, _) => self.return_samples(layer, pass),
            (false, _) => self.change(change, of == Pass::Forward, pass),
        }
    }

    /// The layer whose output a layer changes.
    pub(super) fn producer(&self, change: LayerId) -> LayerId {
        self.of.model.node(change).inputs[0]
    }

    /// Elements of a sample of the output that a layer changes.
    pub(super) fn size(&self, change: LayerId) -> u64 {
        self.of.model.node(self.producer(change)).output.elements()
    }

    /// `dense1`: the name of a change in task names.
    pub(super) fn label(&self, change: LayerId, pass: usize) -> String {
        let of = &self.of.model.node(self.producer(change)).name;
        let [forward, backward] =
            [Pass::Forward, Pass::BackwardData].map(|of| self.sharding().change(self.of.model, change, of));
        let is_scores = forward == Some((FEATURES, WHOLE)) && backward == Some((WHOLE, FEATURES));
        format!("{of}{}{}", if is_scores { " scores" } else { "" }, self.suffix(true, pass))
    }

    fn change(&mut self, change: Change<'_>, forward: bool, pass: usize) {
        let Change { layer, producer, from, to, .. } = change;
        let label = self.label(layer, pass);
        let what = if forward { label.clone() } else { format!("gradient {label}") };
        let [read, written] = match forward {
            true => [producer, layer].map(Area::Activation),
            false => [layer, producer].map(Area::Gradient),
        };
        // Padding has no value.
        let (add, size) = (!forward && self.is_written(producer, layer), change.sizes().1);
        let clears = |part: u64| !add && to == FEATURES && change.features(part) < size;
        let buffer = Area::Buffer(Buffer::Declared(CHANGES));
        let unpack = format!("unpack {what}");
        let Some(collective) = change.collective() else {
            let copy = if from == to {
                same((read, written), add, change.own(WHOLE, 0))
            } else {
                self.by_part((read, written), (add, &clears), |part| change.own(to, part))
            };
            self.copies(unpack, copy, None);
            return;
        };
        let verb = match collective {
            Collective::AllReduce => format!("sum {what}"),
            Collective::AllGather if forward => format!("gather {label}"),
            Collective::ReduceScatter if !forward => format!("return {label}"),
            _ => format!("{} {what}", collective.name()),
        };
        let (none, into, out): (&dyn Fn(u64) -> bool, _, _) = (&|_| false, (read, buffer), (buffer, written));
        let (pack, take) = match collective {
            Collective::AllReduce => (same(into, false, change.own(WHOLE, 0)), same(out, add, change.own(WHOLE, 0))),
            Collective::AllGather => {
                let own = |part| vec![Rows::one(change.part(from), 0, part * change.part(from))];
                let all = change.parts(from).into_iter().map(turned).collect();
                (self.by_part(into, (false, none), own), same(out, add, all))
            }
            Collective::AllToAll => (
                self.by_part(into, (false, none), |part| change.pairs(part, true)),
                self.by_part(out, (add, &clears), |part| change.pairs(part, false)),
            ),
            _ => {
                let own = |part| change.of_block(to, part);
                (same(into, false, change.parts(to)), self.by_part(out, (add, &clears), own))
            }
        };
        let packed = self.copies(format!("pack {what}"), pack, None);
        let sent = self.send(verb, collective, CHANGES, change.staged(), packed);
        self.copies(unpack, take, Some(sent));
    }

    /// A copy on each rank by the number of its part, added to what is there or with zeros in the rest.
    fn by_part(
        &self,
        (from, to): (Area, Area),
        (add, clears): (bool, &dyn Fn(u64) -> bool),
        rows: impl Fn(u64) -> Vec<Rows>,
    ) -> ByCoordinate<Copy> {
        let of = |part: u32| {
            let (rows, clear) = (rows(part.into()), clears(part.into()));
            Copy { from, to, rows, add, clear, turns: Turns::ONE }
        };
        ByCoordinate::along(self.sharding().axis, (0..self.sharding().ranks).map(of).collect())
    }

    /// A copy of the same rows on all ranks.
    pub(super) fn copy(&mut self, name: String, areas: (Area, Area), rows: Vec<Rows>, after: Option<TaskId>) -> TaskId {
        self.copies(name, same(areas, false, rows), after)
    }

    /// A copy of at most one set of rows on each rank, by the number of its part.
    pub(super) fn copy_parts(
        &mut self,
        name: String,
        areas: (Area, Area),
        rows: impl Fn(u32) -> Option<Rows>,
        after: Option<TaskId>,
    ) -> TaskId {
        let copy = self.by_part(areas, (false, &|_| false), |part| rows(part as u32).into_iter().collect());
        self.copies(name, copy, after)
    }

    fn copies(&mut self, name: String, copy: ByCoordinate<Copy>, after: Option<TaskId>) -> TaskId {
        let after = after.map(|task| After { task, lag: 0 }).into_iter().collect();
        self.task(name, Op::Copy(copy), after)
    }

    pub(super) fn send(
        &mut self,
        name: String,
        collective: Collective,
        buffer: usize,
        elements: u64,
        after: TaskId,
    ) -> TaskId {
        let (axes, buffer) = (AxisSet::of(&[self.sharding().axis]), Buffer::Declared(buffer));
        let algorithm = self.of.job.activations_along(axes, &collective);
        let exchange = Exchange::new(collective, algorithm, axes, buffer, 0..elements);
        self.task(name, Op::Exchange(exchange), vec![After { task: after, lag: 0 }])
    }

    /// Whether another consumer of `producer`, whose backward pass came before, has written a part of its gradient.
    fn is_written(&self, producer: LayerId, change: LayerId) -> bool {
        let consumers = self.of.model.consumers(producer);
        consumers.iter().any(|other| *other > change && self.of.model.needs_input_gradient(*other))
    }
}
