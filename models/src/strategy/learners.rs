//! Builds the graph of learners that average their models (Koliousis et al. 2019, Alg. 1 and §4.2), which SMA and
//! EA-SGD share.
//!
//! A learner's weights and gradients are its own; it contributes the difference of its weights from the average model,
//! a partial sum. Only the local synchronisation waits for the average model of the iteration before, so the allreduce
//! of the differences and the update of the average model overlap the next iteration's learning (§4.2). With reference
//! models (§3.3) the differences are summed on each device, and the references' differences cross devices.

use petgraph::graph::NodeIndex;

use lockstep_topology::{Collective, InputError};

use super::buckets::cuts;
use super::data_parallel::passes;
use crate::graph::{NodeWork, Scope, Tensor};
use crate::{
    Averaging, Axis, AxisLayout, AxisSet, Buffer, Coefficient, Dimension, Elementwise, Formula, Graph, Job, LayerId,
    Layout, Mesh, Operand, Stream,
};

/// Learners, all of them or those of a device, and devices.
const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);
const DEVICES: AxisSet = AxisSet::of(&[Axis::Device]);

/// w and g of a learner, c or its sums, z, z_prev, r, and an intermediate result.
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
/// `towards` is z, or the reference model instead.
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
/// from the old z.
fn average(momentum: Option<f64>) -> Formula {
    Formula::new("average")
        .subtract(T, Z, Coefficient::ONE, Z_PREV)
        .scale(Z_PREV, Coefficient::ONE, Z)
        .add(Z, Z, Coefficient::ONE, C)
        .add(Z, Z, Coefficient::Momentum(momentum), T)
}

/// The graph of one iteration.
///
/// # Errors
/// No workers.
pub(super) fn graph(job: &Job, averaging: &Averaging) -> Result<Graph, InputError> {
    let model = &job.model;
    let two_levels = averaging.reference_alpha.is_some();
    // What a learner is compared with; the first device's reference is the average model.
    let consensus = if two_levels { R } else { Z };
    let each = if two_levels { job.learners } else { job.workers };
    let devices = two_levels.then_some((Axis::Device, job.workers / each));
    let mesh: Vec<(Axis, u32)> = devices.into_iter().chain([(Axis::Learner, each)]).collect();
    let mut graph = Graph::new(model, Mesh::new(&mesh)?);
    let on = |stream, formula, range, skips_first| NodeWork::Elementwise {
        of: Elementwise { skips_first, ..Elementwise::new(formula, range) },
        stream,
    };
    let on_learner = |formula, range| on(Stream::Compute, formula, range, false);
    let beside = |formula, range| on(Stream::Synchronisation, formula, range, false);
    // A gradient is applied when the next repetition begins; the last one is applied, with the correction, after the
    // repetitions.
    let several = averaging.period > 1;
    let whole = 0..model.parameter_elements();
    let descend = several.then(|| graph.node(on(Stream::Compute, descend(), whole, true), Scope::MicroBatch));
    let axes = if two_levels { DEVICES.or(LEARNERS) } else { LEARNERS };
    let [own, partial] = [AxisLayout::Own, AxisLayout::Partial].map(|layout| Layout::new(axes, layout));
    let passes = passes(&mut graph, model, Layout::new(axes, AxisLayout::Split(Dimension::Sample)));
    let weighted = || (0..model.layers().len() as u32).map(LayerId).filter(|id| !model.node(*id).parameters.is_empty());
    let readers = |id: LayerId| passes.readers(id).chain(passes.weight[id.index()]);
    if let Some(descend) = descend {
        for id in weighted() {
            readers(id).for_each(|node| graph.edge(descend, node, Tensor::Weight, own));
            if let Some(weight) = passes.weight[id.index()] {
                graph.from_before(weight, descend, Tensor::WeightGradient, own);
            }
        }
    }
    for cut in cuts(job)? {
        let correct = graph.node(on_learner(correct(averaging.alpha, consensus), cut.range.clone()), Scope::Step);
        for id in &cut.layers {
            if let Some(weight) = passes.weight[id.index()] {
                graph.edge(weight, correct, Tensor::WeightGradient, own);
            }
            let next: Vec<NodeIndex> = descend.map_or_else(|| readers(*id).collect(), |descend| vec![descend]);
            next.into_iter().for_each(|node| graph.weights(correct, node, own));
        }
        let range = || cut.range.clone();
        let sum = |graph: &mut Graph, axes| {
            let (collective, axes, range) = (Collective::AllReduce, axes, range());
            graph.node(NodeWork::Collective { collective, axes, range }, Scope::Step)
        };
        let (reduce, reference) = if let Some(alpha) = averaging.reference_alpha {
            let on_device = sum(&mut graph, LEARNERS);
            let reference = graph.node(beside(reference(alpha), range()), Scope::Step);
            let reduce = sum(&mut graph, DEVICES);
            graph.edge(correct, on_device, Tensor::Difference, partial);
            graph.edge(on_device, reference, Tensor::Difference, Layout::new(DEVICES, AxisLayout::Partial));
            graph.edge(reference, reduce, Tensor::Difference, Layout::new(DEVICES, AxisLayout::Partial));
            graph.from_before(reference, correct, Tensor::Reference, Layout::new(DEVICES, AxisLayout::Own));
            (reduce, Some(reference))
        } else {
            let reduce = sum(&mut graph, LEARNERS);
            graph.edge(correct, reduce, Tensor::Difference, partial);
            (reduce, None)
        };
        let average = graph.node(beside(average(averaging.momentum), range()), Scope::Step);
        graph.edge(reduce, average, Tensor::Difference, Layout::REPLICATED);
        // The first device's reference is the average model; others' differences are from it.
        for reader in [Some(correct), reference].into_iter().flatten() {
            graph.from_before(average, reader, Tensor::Average, Layout::REPLICATED);
        }
    }
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// w, g and w; w, z, g, then w and c; r, s, z, then r and C; z, Σc, z_prev, then z and z_prev.
    #[test]
    fn elements_that_formulas_move() {
        let formulas = [descend(), correct(0.5, Z), correct(0.5, R), reference(0.5), average(None)];
        assert_eq!(formulas.map(|formula| formula.accesses()), [3, 5, 5, 5, 5]);
    }
}
