//! Implements layers split over ranks as a slow, obvious reference: one process computes every rank's part of every
//! layer, pass by pass.
//!
//! Krizhevsky 2014 §4: each worker's samples go forward through the layers before the cut, the samples of each pass go
//! through those after it and back, and the gradients return to the workers that own the samples, and go back through
//! their layers. Layers before the cut are updated once per step, with the sum over all workers; those after it too or,
//! with the variable batch (§4.2), after each pass, with the mean over its samples. There are no tasks, streams, copies
//! or messages: a split layer is one kernel per rank, and sums over ranks have the reduction order that the symbolic
//! checker reports.

mod part;
mod rows;

use std::mem::take;
use std::ops::Range;

use lockstep_data::{Dataset, Sampler};
use lockstep_exec::ExecError;
use lockstep_exec::device::cpu::add_into;
use lockstep_exec::init;
use lockstep_models::{
    Axis, AxisLayout, Dimension, LayerId, Model, Moments, Optimizer, Parameter, Pass, Program, RunLength, SgdStep,
    ShardLayer, Sharding, SquareSum, StepNumbers, UpdateRule,
};
use lockstep_topology::InputError;

use super::{added_up, rounded};
use part::Part;

/// Learnable parameters of the whole model after `steps` steps of `program`.
///
/// # Errors
/// As [`super::train`]; a table of a node's devices or a partitioned data set, which have other references.
pub(super) fn train(
    program: &Program,
    sharding: &Sharding,
    data: &Dataset,
    steps: u32,
    seed: u64,
    optimizer: &Optimizer,
) -> Result<Vec<f32>, ExecError> {
    if program.takes_losses_by_node() || program.partition.is_some() {
        let message = "has samples that nodes share: compare with the reference of ssgd";
        return Err(InputError::new("reference", program.model.name(), message).into());
    }
    let (whole, samples, workers) = (&sharding.whole, program.batch_per_rank, program.pools.iter().sum::<u32>());
    let sampler = Sampler::new(data.len(), samples, program.accumulate, &program.pools, seed)?;
    let steps_per_epoch = sampler.batches_per_epoch();
    let run_length = |global_batch| RunLength { global_batch, steps_per_epoch, steps: u64::from(steps) };
    let global_batch = program.global_batch();
    let scale = 1.0 / global_batch as f32;
    let before = |id: LayerId| !sharding.in_passes(own_id(sharding, id));
    // Ranks along other axes go through the layers with their own samples.
    let outside = program.mesh.axes().without(sharding.axis).without(Axis::Pipeline);
    let mut leaders: Vec<u32> = program.mesh.group_of(outside, 0).iter().collect();
    leaders.sort_by_key(|rank| program.source(*rank));
    let (front, back): (Vec<LayerId>, Vec<LayerId>) = whole.iter().map(|(id, _)| id).partition(|id| before(*id));
    let boundary = boundary(program, sharding);

    let mut weights = Weights::new(init::parameters(whole, seed), optimizer);
    let part = |samples| Part::new(program, sharding, samples, seed);
    let mut of_worker = (0..workers).map(|_| part(samples)).collect::<Result<Vec<Part<'_>>, _>>()?;
    let mut of_pass = part(sharding.pass_samples())?;
    for step in (0..steps).map(u64::from) {
        let mut sums: Vec<Vec<f32>> = Vec::new();
        // By worker, for the layers before the cut.
        let mut gradients = vec![vec![0.0; weights.values.len()]; of_worker.len()];
        let places = 0..leaders.len() * sharding.passes.len();
        let all = (0..program.accumulate).flat_map(|repetition| places.clone().map(move |place| (repetition, place)));
        for (repetition, place) in all {
            if place == 0 {
                for (worker, part) in (0..workers).zip(&mut of_worker) {
                    part.load(data, &sampler, (step, repetition), worker);
                    front.iter().for_each(|id| part.forward(*id, &weights.values));
                }
            }
            let (of_leader, number) = (place / sharding.passes.len(), place % sharding.passes.len());
            let leader = leaders[of_leader];
            let pass = &program.pieces(Some(number as u32), leader, 0);
            of_pass.take_samples(boundary, pass, &of_worker);
            back.iter().for_each(|id| of_pass.forward(*id, &weights.values));
            let mut gradient = vec![0.0; weights.values.len()];
            back.iter().rev().for_each(|id| of_pass.backward(*id, &weights.values, scale, &mut gradient));
            of_pass.return_gradients(boundary, pass, &mut of_worker);
            if sharding.variable_batch {
                let batch = u64::from(sharding.pass_samples());
                let numbers = optimizer.numbers(step, &run_length(batch));
                // The gradient is a mean over all samples so far. The rate has changed since the last step, for which
                // momentum is corrected once, not since the last pass.
                let part = (global_batch as f64 / batch as f64) as f32;
                let keep = if number == 0 { numbers.sgd.keep } else { numbers.sgd.momentum };
                let numbers = StepNumbers { sgd: SgdStep { keep, ..numbers.sgd }, ..numbers };
                weights.update(whole, &back, (&numbers, part), &gradient);
            } else if let Some(sum) = sums.get_mut(of_leader) {
                add_into(sum, &gradient);
            } else {
                sums.push(gradient);
            }
            if place + 1 == places.end {
                for (part, sum) in of_worker.iter_mut().zip(&mut gradients) {
                    let mut gradient = vec![0.0; weights.values.len()];
                    front.iter().rev().for_each(|id| part.backward(*id, &weights.values, scale, &mut gradient));
                    if repetition == 0 { *sum = gradient } else { add_into(sum, &gradient) }
                }
            }
        }
        let numbers = optimizer.numbers(step, &run_length(global_batch));
        let of_back = match sums.len() {
            0 => None,
            1 => Some(sums.remove(0)),
            _ => Some(sum_of_parts(program, sharding, &sums)?),
        };
        let of_front = sum_of_workers(program, sharding, &gradients)?;
        let clip = optimizer.clip_norm.map_or(1.0, |most| {
            let mut norm = SquareSum::zero();
            let mut add = |layers: &[LayerId], sum: &[f32]| {
                let parameters = layers.iter().flat_map(|id| &whole.node(*id).parameters);
                parameters.for_each(|parameter| norm.add(&sum[range(parameter)]));
            };
            add(&front, &of_front);
            of_back.iter().for_each(|sum| add(&back, sum));
            norm.clip_coefficient(most) as f32
        });
        if let Some(sum) = &of_back {
            weights.update(whole, &back, (&numbers, clip), sum);
        }
        weights.update(whole, &front, (&numbers, clip), &of_front);
    }
    Ok(weights.values)
}

/// How a layer of the whole model is split over the ranks.
fn layer_of(sharding: &Sharding, id: LayerId) -> &ShardLayer {
    &sharding.layers[own_id(sharding, id).index()]
}

/// The layer of a rank's model that corresponds to layer `id` of the whole one: the first with this origin, as changes of
/// layout follow.
fn own_id(sharding: &Sharding, id: LayerId) -> LayerId {
    let is_it = |layer: &ShardLayer| layer.origin == id;
    LayerId(sharding.layers.iter().position(is_it).expect("a rank's model has a part of every layer") as u32)
}

/// The layer whose output the passes take: the last one before the cut.
fn boundary(program: &Program, sharding: &Sharding) -> LayerId {
    let cut = program.model.iter().map(|(id, _)| id).find(|id| {
        let change = sharding.change(&program.model, *id, Pass::Forward);
        change.is_some_and(|(from, _)| from == AxisLayout::Split(Dimension::Sample))
    });
    cut.map_or(LayerId(0), |id| sharding.layers[id.index()].origin)
}

/// The gradients of ranks with other samples, part by part, summed as by the exchanges of the parts.
fn sum_of_parts(program: &Program, sharding: &Sharding, gradients: &[Vec<f32>]) -> Result<Vec<f32>, ExecError> {
    let mut sum = vec![0.0; gradients[0].len()];
    for part in 0..sharding.ranks {
        let places = sharding.parameters(&program.model, part);
        let places = places.iter().map(|(all, own)| {
            let length = (all.end - all.start) as usize;
            (all.start as usize..all.end as usize, *own as usize..*own as usize + length)
        });
        let places: Vec<(Range<usize>, Range<usize>)> = places.collect();
        let of_rank = |gradient: &Vec<f32>| {
            let mut own = vec![0.0; program.model.parameter_elements() as usize];
            places.iter().for_each(|(all, at)| own[at.clone()].copy_from_slice(&gradient[all.clone()]));
            own
        };
        let own: Vec<Vec<f32>> = gradients.iter().map(of_rank).collect();
        let total = added_up(program, &own)?;
        places.iter().for_each(|(all, at)| sum[all.clone()].copy_from_slice(&total[at.clone()]));
    }
    Ok(sum)
}

/// The workers' gradients of the layers that all of them have, summed as by their exchanges.
fn sum_of_workers(program: &Program, sharding: &Sharding, gradients: &[Vec<f32>]) -> Result<Vec<f32>, ExecError> {
    // Exchanges count elements of a rank's own model.
    let mut places = Vec::new();
    for ((id, node), layer) in program.model.iter().zip(&sharding.layers) {
        if !sharding.in_passes(id) {
            let both = node.parameters.iter().zip(&sharding.whole.node(layer.origin).parameters);
            places.extend(both.map(|(own, all)| (range(own), range(all))));
        }
    }
    let of_rank = |gradient: &Vec<f32>| {
        let mut own = vec![0.0; program.model.parameter_elements() as usize];
        places.iter().for_each(|(at, all)| own[at.clone()].copy_from_slice(&gradient[all.clone()]));
        own
    };
    let gradients: Vec<Vec<f32>> = gradients.iter().map(of_rank).collect();
    if places.is_empty() {
        return Ok(vec![0.0; sharding.whole.parameter_elements() as usize]);
    }
    let total = added_up(program, &gradients)?;
    let mut sum = vec![0.0; sharding.whole.parameter_elements() as usize];
    places.iter().for_each(|(at, all)| sum[all.clone()].copy_from_slice(&total[at.clone()]));
    Ok(sum)
}

fn range(parameter: &Parameter) -> Range<usize> {
    parameter.range.start as usize..parameter.range.end as usize
}

/// The whole model's parameters, and what the optimizer keeps for each: momentum, or two moments.
struct Weights {
    values: Vec<f32>,
    states: [Vec<f32>; 2],
    rule: UpdateRule,
    moments: Moments,
}

impl Weights {
    fn new(values: Vec<f32>, of: &Optimizer) -> Weights {
        Weights { states: [(); 2].map(|()| vec![0.0; values.len()]), values, rule: of.rule, moments: of.moments }
    }

    /// Updates the parameters of these layers, whose gradients are first multiplied by `scale`.
    fn update(&mut self, model: &Model, layers: &[LayerId], (of, scale): (&StepNumbers, f32), gradient: &[f32]) {
        match self.rule {
            UpdateRule::Sgd => self.descend(model, layers, (&of.sgd, scale), gradient),
            UpdateRule::Adam | UpdateRule::AdamW => self.adapt(model, layers, (of, scale), gradient),
        }
        // What is rounded already stays.
        self.states = take(&mut self.states).map(|of| rounded(self.moments.dtype(), of));
    }

    /// Adam, and AdamW where decay is decoupled (Kingma & Ba 2015, end of §2; Loshchilov & Hutter 2019, Alg. 2).
    fn adapt(&mut self, model: &Model, layers: &[LayerId], (of, scale): (&StepNumbers, f32), gradient: &[f32]) {
        let (step, t) = (&of.sgd, of.moments.step as f64);
        let (beta1, beta2) = (of.moments.beta1, of.moments.beta2);
        let rate = f64::from(step.rate);
        let length = (rate / (1.0 - beta1.powf(t))) as f32;
        let correction = (1.0 / (1.0 - beta2.powf(t)).sqrt()) as f32;
        for parameter in layers.iter().flat_map(|id| &model.node(*id).parameters) {
            let decay = if parameter.decay || step.decay_batch_norm { step.weight_decay } else { 0.0 };
            for at in range(parameter) {
                let mut g = scale * gradient[at];
                let [m, v] = &mut self.states;
                let (w, m, v) = (&mut self.values[at], &mut m[at], &mut v[at]);
                match self.rule {
                    UpdateRule::AdamW => *w -= (rate * f64::from(decay)) as f32 * *w,
                    _ => g += decay * *w,
                }
                *m += (1.0 - beta1) as f32 * (g - *m);
                *v = beta2 as f32 * *v + (1.0 - beta2) as f32 * (g * g);
                *w -= length * (*m / (correction * v.sqrt() + of.moments.epsilon as f32));
            }
        }
    }

    /// Momentum SGD (Goyal et al. 2017, Eq. 9 and 10).
    fn descend(&mut self, model: &Model, layers: &[LayerId], (step, scale): (&SgdStep, f32), gradient: &[f32]) {
        for parameter in layers.iter().flat_map(|id| &model.node(*id).parameters) {
            let decay = if parameter.decay || step.decay_batch_norm { step.weight_decay } else { 0.0 };
            for at in range(parameter) {
                let (w, v) = (&mut self.values[at], &mut self.states[0][at]);
                let plain = scale * gradient[at] + decay * *w;
                let d_output = if step.absorbed { step.rate * plain } else { plain };
                *v = step.keep * *v + d_output;
                let taken = if step.nesterov { d_output + step.momentum * *v } else { *v };
                *w -= if step.absorbed { taken } else { step.rate * taken };
            }
        }
    }
}
