//! Builds the graph of learners that average their models (Koliousis et al. 2019, Alg. 1 and §4.2), which SMA and
//! EA-SGD share.
//!
//! A learner's weights and gradients are its own; it contributes the difference of its weights from the average model,
//! a partial sum. Only the local synchronisation waits for the average model of the iteration before, so the allreduce
//! of the differences and the update of the average model overlap the next iteration's learning (§4.2). With reference
//! models (§3.3) the differences are summed on each device, and the references' differences cross devices.
//!
//! A device has one average model, which its first learner keeps and updates (§4.2). Where learners share a device, it
//! delivers the model to the others' memory of differences: a difference is free once it is summed, and the next one is
//! computed from the model, element by element, in the same place.

use std::ops::Range;

use petgraph::graph::NodeIndex;

use lockstep_topology::{Collective, InputError};

use super::buckets::cuts;
use super::passes::passes;
use crate::graph::{NodeWork, Scope, Tensor};
use crate::{
    Averaging, Axis, AxisLayout, AxisSet, Buffer, Coefficient, Declared, Dimension, Elementwise, Formula, Graph, Job,
    LayerId, Layout, Mesh, Operand, Stream,
};

impl Job {
    /// How its learners average their models; `None` where all ranks train one.
    pub fn averaging(&self) -> Option<Averaging> {
        self.strategy.averaging(self.workers, self.learners)
    }

    /// The buffers with which its learners average their models; none where all ranks train one.
    pub(crate) fn buffers_of_averaging(&self) -> Vec<Declared> {
        self.averaging().map_or(Vec::new(), |averaging| averaging.buffers(self.model.parameter_elements()))
    }

    /// The buffer with `index` among those that the strategy declares itself, which follow those of averaging.
    pub(super) fn own_buffer(&self, index: usize) -> Buffer {
        Buffer::Declared(self.buffers_of_averaging().len() + index)
    }
}

/// The learners of a device, and devices.
const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);
const DEVICES: AxisSet = AxisSet::of(&[Axis::Device]);

/// w and g of a learner; c, its sums, or the model that is delivered; z, z_prev, r, and an intermediate result.
const W: Operand = Operand::Buffer(Buffer::Parameters);
const G: Operand = Operand::Buffer(Buffer::Gradients);
const C: Operand = Operand::Buffer(Averaging::DIFFERENCES);
const Z: Operand = Operand::Buffer(Averaging::AVERAGE);
const Z_PREV: Operand = Operand::Buffer(Averaging::PREVIOUS);
const R: Operand = Operand::Buffer(Averaging::REFERENCE);
const T: Operand = Operand::Local(0);

/// A learner's step between two synchronisations: `w ← w − γ·(g + λ·w)`.
pub(super) fn descend() -> Formula {
    Formula::new("descend").add(T, G, Coefficient::WeightDecay, W).subtract(W, W, Coefficient::Rate, T)
}

/// Local synchronisation with the last step: `c ← α·(w − z)`, `w ← (w − γ·(g + λ·w)) − c`, all from the old w.
/// `towards` is z, or c where z or the device's reference model was delivered there.
fn correct(alpha: f64, towards: Operand) -> Formula {
    Formula::new("correct")
        .subtract(C, W, Coefficient::ONE, towards)
        .scale(C, Coefficient::Constant(alpha), C)
        .add(T, G, Coefficient::WeightDecay, W)
        .subtract(W, W, Coefficient::Rate, T)
        .subtract(W, W, Coefficient::ONE, C)
}

/// A reference model moves, once the differences of its device are summed to s: `C ← α'·(r − z)`, `r ← (r + s) − C`.
/// C replaces s.
fn reference(alpha: f64) -> Formula {
    Formula::new("reference")
        .subtract(T, R, Coefficient::ONE, Z)
        .add(R, R, Coefficient::ONE, C)
        .scale(C, Coefficient::Constant(alpha), T)
        .subtract(R, R, Coefficient::ONE, C)
}

/// Global synchronisation, once the differences are summed: `z ← (z + Σc) + μ·(z − z_prev)`, `z_prev ← z`, both
/// from the old z. The model for the device's other learners then replaces Σc.
fn average(momentum: Option<f64>) -> Formula {
    Formula::new("average")
        .subtract(T, Z, Coefficient::ONE, Z_PREV)
        .scale(Z_PREV, Coefficient::ONE, Z)
        .add(Z, Z, Coefficient::ONE, C)
        .add(Z, Z, Coefficient::Momentum(momentum), T)
}

/// A graph of learners under construction, and whether a device's first learner keeps models for others.
struct OnDevice {
    graph: Graph,
    /// All axes of learners; on a device with a single one, that of all learners.
    axes: AxisSet,
    /// Whether learners share devices.
    shared: bool,
}

impl OnDevice {
    /// A tensor of the first learner of each device, or of each learner where none shares its device: the same on all
    /// devices, or in this layout on them.
    fn layout(&self, across: AxisLayout) -> Layout {
        if !self.shared {
            return Layout::REPLICATED;
        }
        Layout::REPLICATED.with(Axis::Device, across).with(Axis::Learner, AxisLayout::First)
    }

    fn collective(&mut self, collective: Collective, axes: AxisSet, range: &Range<u64>) -> NodeIndex {
        self.graph.node(NodeWork::Collective { collective, axes, range: range.clone() }, Scope::Step)
    }

    fn beside(&mut self, formula: Formula, range: &Range<u64>) -> NodeIndex {
        let of = Elementwise::new(formula, range.clone());
        self.graph.node(NodeWork::Elementwise { of, stream: Stream::Synchronisation }, Scope::Step)
    }

    /// Sums the differences that `correct` gives in a range, updates the average model, and gives each learner what
    /// the next `correct` follows.
    fn synchronise(&mut self, correct: NodeIndex, range: &Range<u64>, averaging: &Averaging, sums_all: bool) {
        let partial = Layout::new(self.axes, AxisLayout::Partial);
        let (leads, whole) = (self.layout(AxisLayout::Partial), self.layout(AxisLayout::Replicated));
        let [reduce, towards_first] = [Collective::AllReduce, Collective::AllReduceToLeaders];
        let average = average(averaging.momentum);
        let (sum, average, consensus) = if let Some(alpha) = averaging.reference_alpha {
            let on_device = self.collective(towards_first, LEARNERS, range);
            let reference = self.beside(reference(alpha), range);
            let sum = self.collective(reduce, DEVICES, range);
            let average = self.beside(average.scale(C, Coefficient::ONE, R), range);
            let own = self.layout(AxisLayout::Own);
            self.graph.edge(correct, on_device, Tensor::Difference, partial);
            self.graph.edge(on_device, reference, Tensor::Difference, leads);
            self.graph.edge(reference, sum, Tensor::Difference, leads);
            self.graph.edge(reference, average, Tensor::Reference, own);
            // The first device's reference is the average model; others' differences are from it.
            self.graph.from_before(average, reference, Tensor::Average, whole);
            (sum, average, own)
        } else {
            let collective = if self.shared && !sums_all { towards_first } else { reduce };
            let sum = self.collective(collective, self.axes, range);
            let delivered = if self.shared { average.scale(C, Coefficient::ONE, Z) } else { average };
            let average = self.beside(delivered, range);
            self.graph.edge(correct, sum, Tensor::Difference, partial);
            (sum, average, whole)
        };
        let summed = if sums_all { Layout::REPLICATED } else { whole };
        self.graph.edge(sum, average, Tensor::Difference, summed);
        if !self.shared {
            return self.graph.from_before(average, correct, Tensor::Average, whole);
        }
        self.graph.from_before(average, average, Tensor::Average, whole);
        let deliver = self.collective(Collective::Broadcast { root: 0 }, LEARNERS, range);
        self.graph.edge(average, deliver, Tensor::Consensus, consensus);
        let everyone = consensus.with(Axis::Learner, AxisLayout::Replicated);
        self.graph.from_before(deliver, correct, Tensor::Consensus, everyone);
    }
}

/// The graph of one iteration.
///
/// # Errors
/// No workers.
pub(super) fn graph(job: &Job, averaging: &Averaging) -> Result<Graph, InputError> {
    let model = &job.model;
    let devices = job.devices();
    let mesh = match &devices {
        Some(sizes) => Mesh::of_devices(sizes)?,
        None => Mesh::new(&[(Axis::Learner, job.workers)])?,
    };
    let axes = mesh.axes();
    let mut on_device = OnDevice { graph: Graph::new(model, mesh), axes, shared: devices.is_some() };
    let graph = &mut on_device.graph;
    let on_learner = |formula, range, skips_first| NodeWork::Elementwise {
        of: Elementwise { skips_first, ..Elementwise::new(formula, range) },
        stream: Stream::Compute,
    };
    // A gradient is applied when the next repetition begins; the last one is applied, with the correction, after the
    // repetitions.
    let several = averaging.period > 1;
    let whole = 0..model.parameter_elements();
    let descend = several.then(|| graph.node(on_learner(descend(), whole, true), Scope::MicroBatch));
    let own = Layout::new(axes, AxisLayout::Own);
    let passes = passes(graph, job, Layout::new(axes, AxisLayout::Split(Dimension::Sample)))?;
    let weighted = || (0..model.layers().len() as u32).map(LayerId).filter(|id| !model.node(*id).parameters.is_empty());
    let readers = |id: LayerId| passes.readers(id).chain(passes.makers(id));
    if let Some(descend) = descend {
        for id in weighted() {
            readers(id).for_each(|node| graph.edge(descend, node, Tensor::Weight, own));
            passes.makers(id).for_each(|weight| graph.from_before(weight, descend, Tensor::WeightGradient, own));
        }
    }
    // A learner follows the average model; one that shares its device, what it was given in the place of its difference.
    let follows = if devices.is_some() { C } else { Z };
    // An algorithm that cannot end at the first learner of each device gives all of them the sum.
    let sums_all = !job.algorithm_along(axes).serves(&Collective::AllReduceToLeaders);
    let sums_all = sums_all && averaging.reference_alpha.is_none();
    for cut in cuts(job)? {
        let graph = &mut on_device.graph;
        let correct = graph.node(on_learner(correct(averaging.alpha, follows), cut.range.clone(), false), Scope::Step);
        for id in &cut.layers {
            passes.makers(*id).for_each(|weight| graph.edge(weight, correct, Tensor::WeightGradient, own));
            let next: Vec<NodeIndex> = descend.map_or_else(|| readers(*id).collect(), |descend| vec![descend]);
            next.into_iter().for_each(|node| graph.weights(correct, node, own));
        }
        on_device.synchronise(correct, &cut.range, averaging, sums_all);
    }
    Ok(on_device.graph)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// w, g and w; w, z, g, then w and c; w, c, g, then w and c; r, s, z, then r and C; z, Σc, z_prev, then z and z_prev;
    /// the same and c.
    #[test]
    fn elements_that_formulas_move() {
        let delivered = average(None).scale(C, Coefficient::ONE, Z);
        let formulas = [descend(), correct(0.5, Z), correct(0.5, C), reference(0.5), average(None), delivered];
        assert_eq!(
            formulas.map(|formula| formula.accesses().map(|(_, accesses)| accesses).sum::<u64>()),
            [3, 5, 5, 5, 5, 6]
        );
    }
}
