//! Implements local SGD as a slow, obvious reference: Stich 2019, Alg. 1, rank by rank, each step as in the paper, and
//! with momentum from mean to mean: Wang et al. 2020, Alg. 1, with u times the learning rate.

use lockstep_data::{Dataset, Sampler};
use lockstep_exec::device::Devices;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_exec::{Arenas, ExecError};
use lockstep_models::memory::Reuse;
use lockstep_models::{Coefficient, Op, Optimizer, Program, RunLength};

use super::learners::decays;
use super::{gradients, summed_in_order};

/// The mean model after `steps` iterations of `program`.
pub(super) fn train(
    devices: &dyn Devices,
    program: &Program,
    data: &Dataset,
    steps: u32,
    seed: u64,
    optimizer: &Optimizer,
) -> Result<Vec<f32>, ExecError> {
    let (k, tau, samples) = (program.workers(), program.accumulate, program.batch_per_rank);
    let sampler = Sampler::new(data.len(), samples, tau, &program.pools, seed)?;
    let apart = Arenas { reuse: Reuse::Nothing, ..Arenas::default() };
    let mut replica = Replica::on(devices, program, &program.roles[0], &apart, seed, &Threads::one())?;
    let steps_per_epoch = sampler.batches_per_epoch();
    let run_length = RunLength { global_batch: u64::from(samples), steps_per_epoch, steps: u64::from(steps) };
    let decays = decays(&program.model, optimizer);
    let mut mean = replica.parameters()?;
    let (beta, mut u) = (slow_momentum(program), vec![0.0; mean.len()]);
    for step in 0..steps {
        let rate = optimizer.rate(u64::from(step), &run_length) as f32;
        let mut models = vec![mean.clone(); k as usize];
        for (rank, w) in (0..).zip(&mut models) {
            for repetition in 0..tau {
                let mut indices = Vec::new();
                let place = sampler.micro_batch(u64::from(step), rank, repetition, &mut indices);
                replica.load(data, &indices, place)?;
                replica.set_parameters(w)?;
                let gradient = gradients(program, program.gradient_samples(), &mut replica)?;
                (0..w.len()).for_each(|i| w[i] -= rate * (gradient[i] + decays[i] * w[i]));
            }
        }
        let before = mean;
        mean = summed_in_order(program, program.roles[0].exchanges().map(|(_, exchange)| exchange), &models)?;
        let share = (1.0 / f64::from(k)) as f32;
        mean.iter_mut().for_each(|w| *w *= share);
        if let Some(beta) = beta {
            for (i, w) in mean.iter_mut().enumerate() {
                u[i] = (before[i] - *w) + beta * u[i];
                *w = before[i] - u[i];
            }
        }
    }
    Ok(mean)
}

/// β of the program's steps from mean to mean, if they have momentum.
fn slow_momentum(program: &Program) -> Option<f32> {
    let formulas = program.roles[0].tasks.iter().filter_map(|task| match &task.op {
        Op::Elementwise(of) if of.formula.name() == "slow step" => Some(&of.formula),
        _ => None,
    });
    formulas.into_iter().find_map(|formula| match formula.terms()[2].factor {
        Coefficient::Constant(beta) => Some(beta as f32),
        _ => None,
    })
}
