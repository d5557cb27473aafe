//! Implements learners as a slow, obvious reference: Koliousis et al. 2019, Alg. 1, literally, learner by learner on
//! one rank.
//!
//! It has no streams, buckets or messages and uses none of the executor's kernels for the rules; only sums of
//! differences have the reduction order that the symbolic checker reports. With reference models it has one level more
//! (§3.3).

use lockstep_data::{Dataset, Sampler};
use lockstep_exec::device::Devices;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_exec::{Arenas, ExecError};
use lockstep_models::memory::Reuse;
use lockstep_models::{Averaging, Axis, AxisSet, Claim, Exchange, Model, Optimizer, Program, RunLength};
use lockstep_topology::Collective;

use super::{gradients, summed_in_order};

/// The average model after `steps` iterations of `program`; where learners claim their batches, assigned as in
/// `claims`.
pub(super) fn train(
    devices: &dyn Devices,
    program: &Program,
    averaging: &Averaging,
    (data, claims): (&Dataset, &[Claim]),
    steps: u32,
    seed: u64,
    optimizer: &Optimizer,
) -> Result<Vec<f32>, ExecError> {
    let (k, tau, samples) = (program.workers(), averaging.period, program.batch_per_rank);
    let sampler = Sampler::new(data.len(), samples, tau, &program.pools, seed)?;
    let apart = Arenas { reuse: Reuse::Nothing, ..Arenas::default() };
    let mut replica = Replica::on(devices, program, &program.roles[0], &apart, seed, &Threads::one())?;
    let steps_per_epoch = sampler.batches_per_epoch();
    let run_length = RunLength { global_batch: u64::from(samples), steps_per_epoch, steps: u64::from(steps) };
    let alpha = averaging.alpha as f32;
    let momentum = averaging.momentum.unwrap_or(optimizer.momentum) as f32;
    let elements = program.model.parameter_elements() as usize;

    let mut z = replica.parameters()?;
    let mut z_prev: Option<Vec<f32>> = None;
    let mut w = vec![z.clone(); k as usize];
    let with_references = averaging.reference_alpha.is_some();
    // The first device's is z, and its entry here is unused.
    let mut r = vec![z.clone(); program.mesh.size(Axis::Device) as usize];
    for step in 0..steps {
        let rate = optimizer.rate(u64::from(step), &run_length) as f32;
        let decays = decays(&program.model, optimizer);
        let mut c = Vec::new();
        for (learner, w) in (0..).zip(&mut w) {
            let own = claims.iter().filter(|claim| (claim.iteration, claim.rank) == (step, learner));
            let batches: Vec<u32> = match program.claims() {
                true => own.map(|claim| claim.micro_batch).collect(),
                false => (learner * tau..(learner + 1) * tau).collect(),
            };
            // All gradients but the last are applied as soon as they are computed.
            let mut g = vec![0.0; elements];
            for (index, batch) in batches.iter().enumerate() {
                if index > 0 {
                    (0..elements).for_each(|i| w[i] -= g[i]);
                }
                let mut indices = Vec::new();
                let place = sampler.micro_batch(u64::from(step), *batch / tau, *batch % tau, &mut indices);
                replica.load(data, &indices, place)?;
                replica.set_parameters(w)?;
                let gradient = gradients(program, program.gradient_samples(), &mut replica)?;
                (0..elements).for_each(|i| g[i] = rate * (gradient[i] + decays[i] * w[i]));
            }
            let device = if with_references { program.device_of(learner) as usize } else { 0 };
            let consensus = if device == 0 { &z } else { &r[device] };
            let own: Vec<f32> = (0..elements).map(|i| alpha * (w[i] - consensus[i])).collect();
            (0..elements).for_each(|i| w[i] = w[i] - g[i] - own[i]);
            c.push(own);
        }
        let on_device = |exchange: &Exchange| with_references && exchange.axes == LEARNERS;
        if let Some(alpha) = averaging.reference_alpha {
            c = differences_of_devices(program, alpha as f32, c, &z, &mut r)?;
        }
        let sum = summed_in_order(program, sums(program, |exchange| !on_device(exchange)), &c)?;
        let old = z.clone();
        for i in 0..elements {
            z[i] += sum[i];
            if let Some(z_prev) = &z_prev {
                z[i] += momentum * (old[i] - z_prev[i]);
            }
        }
        z_prev = Some(old);
    }
    Ok(z)
}

/// The learners of a device; of all, where none shares its device.
const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);

/// The sums of the first learner that `which` selects.
fn sums(program: &Program, which: impl Fn(&Exchange) -> bool) -> impl Iterator<Item = &Exchange> {
    let all = program.roles[0].exchanges().map(|(_, exchange)| exchange);
    all.filter(move |exchange| exchange.collective != Collective::Broadcast { root: 0 } && which(exchange))
}

/// The difference that each device contributes: on the first device its learners' differences; elsewhere the difference
/// of its reference model, which is updated.
fn differences_of_devices(
    program: &Program,
    alpha: f32,
    c: Vec<Vec<f32>>,
    z: &[f32],
    r: &mut [Vec<f32>],
) -> Result<Vec<Vec<f32>>, ExecError> {
    let mut handed_on = Vec::new();
    for ((device, r), c) in r.iter_mut().enumerate().zip(c.chunks(program.mesh.size(Axis::Learner) as usize)) {
        let mut own = summed_in_order(program, sums(program, |exchange| exchange.axes == LEARNERS), c)?;
        if device > 0 {
            for i in 0..z.len() {
                let sum = std::mem::replace(&mut own[i], alpha * (r[i] - z[i]));
                r[i] = (r[i] + sum) - own[i];
            }
        }
        handed_on.push(own);
    }
    Ok(handed_on)
}

/// The weight decay of each parameter.
pub(super) fn decays(model: &Model, optimizer: &Optimizer) -> Vec<f32> {
    let parameters = model.layers().iter().flat_map(|node| &node.parameters);
    let decay = |decays: bool| if decays || optimizer.decay_batch_norm { optimizer.weight_decay as f32 } else { 0.0 };
    parameters.flat_map(|p| std::iter::repeat_n(decay(p.decay), p.elements() as usize)).collect()
}
