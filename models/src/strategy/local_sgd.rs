//! Builds local SGD (Stich 2019, "Local SGD Converges Fast and Communicates Little", Alg. 1): each rank takes τ steps
//! of SGD by itself, then all continue from the mean of their models, or from a step with momentum towards it (Wang et
//! al. 2020, "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum", Alg. 1).
//!
//! Between two means models differ, so weights and gradients are `own`. The weights themselves are exchanged, a partial
//! sum of k means. The next step needs the mean, so an exchange overlaps nothing but the exchanges of other buckets.

use std::fmt;

use lockstep_topology::{Collective, InputError};

use super::buckets::cuts;
use super::learners::descend;
use super::passes::passes;
use super::settings::{Settings, write_common};
use super::{Plan, Shard};
use crate::graph::{NodeWork, Scope, Tensor};
use crate::{
    Assignment, Axis, AxisLayout, AxisSet, Buffer, Coefficient, Declared, Dimension, Elementwise, Formula, Graph, Job,
    Layout, Mesh, Operand, Start, Stream,
};

/// All ranks.
const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);

/// The settings of local SGD: `local-sgd`, `local-sgd:tau=4`, `local-sgd:tau=4:momentum=0.5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalSgd {
    /// τ: steps of a rank between two means; H in the paper.
    pub period: u32,
    /// β: the momentum of steps from mean to mean, above 0; `None`: ranks continue from the mean.
    pub momentum: Option<f64>,
}

/// The mean of k models whose sum is there: `w ← 1/k·w`.
fn average(learners: u32) -> Formula {
    let (w, share) = (Operand::Buffer(Buffer::Parameters), 1.0 / f64::from(learners));
    Formula::new("average").scale(w, Coefficient::Constant(share), w)
}

/// A step with momentum `beta` from the common model a towards the mean: `w ← 1/k·w`, `v ← (a − w) + β·v`,
/// `w ← a − v`, `a ← w`. The paper's u is v over the learning rate; its slow learning rate is 1.
fn slow_step(learners: u32, beta: f64, job: &Job) -> Formula {
    let (w, share) = (Operand::Buffer(Buffer::Parameters), 1.0 / f64::from(learners));
    let [a, v] = [0, 1].map(|index| Operand::Buffer(job.own_buffer(index)));
    let t = Operand::Local(0);
    Formula::new("slow step")
        .scale(w, Coefficient::Constant(share), w)
        .subtract(t, a, Coefficient::ONE, w)
        .add(v, t, Coefficient::Constant(beta), v)
        .subtract(w, a, Coefficient::ONE, v)
        .scale(a, Coefficient::ONE, w)
}

impl Plan for LocalSgd {
    fn parse(settings: &str) -> Result<LocalSgd, String> {
        let settings = Settings::parse(settings, &["tau", "momentum"])?;
        match settings.assignment()? {
            Assignment::Own => Ok(LocalSgd {
                period: settings.count("tau")?.unwrap_or(1),
                momentum: settings.number("momentum", 0.0..1.0)?.filter(|momentum| *momentum > 0.0),
            }),
            _ => Err("each rank of local SGD takes its own batches: leave round-robin and first-come out".to_owned()),
        }
    }

    fn period(&self) -> u32 {
        self.period
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("local-sgd")?;
        write_common(f, self.period, None, Assignment::Own)?;
        self.momentum.map_or(Ok(()), |momentum| write!(f, ":momentum={momentum}"))
    }

    fn buffers(&self, job: &Job) -> Vec<Declared> {
        let parameters = job.model.parameter_elements();
        let both = [
            Declared::state("common model", parameters, Start::Parameters),
            Declared::state("slow momentum", parameters, Start::Zeros),
        ];
        self.momentum.map_or(Vec::new(), |_| both.into())
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let model = &job.model;
        let mut graph = Graph::new(model, Mesh::new(&[(Axis::Learner, job.workers)])?);
        let [own, partial, samples] = [AxisLayout::Own, AxisLayout::Partial, AxisLayout::Split(Dimension::Sample)]
            .map(|of| Layout::new(LEARNERS, of));
        let passes = passes(&mut graph, job, samples)?;
        let synchronised = self.momentum.map_or_else(|| average(job.workers), |beta| slow_step(job.workers, beta, job));
        for cut in cuts(job)? {
            let on = |formula| NodeWork::Elementwise {
                of: Elementwise::new(formula, cut.range.clone()),
                stream: Stream::Compute,
            };
            let (collective, axes, range) = (Collective::AllReduce, LEARNERS, cut.range.clone());
            let step = graph.node(on(descend()), Scope::MicroBatch);
            let sum = graph.node(NodeWork::Collective { collective, axes, range }, Scope::Step);
            let mean = graph.node(on(synchronised.clone()), Scope::Step);
            for id in &cut.layers {
                passes.makers(*id).for_each(|gradient| graph.edge(gradient, step, Tensor::WeightGradient, own));
                for reader in passes.readers(*id).chain(passes.makers(*id)) {
                    graph.weights(mean, reader, own);
                    if self.period > 1 {
                        graph.from_before(step, reader, Tensor::Weight, own);
                    }
                }
            }
            graph.weights(mean, step, own);
            graph.edge(step, sum, Tensor::Weight, partial);
            graph.edge(sum, mean, Tensor::Weight, Layout::REPLICATED);
        }
        Ok((graph, None))
    }

    fn trains_apart(&self) -> bool {
        true
    }
}
