//! Implements distributed training as a slow, obvious reference: one rank, one micro-batch after the other, every
//! gradient kept, every tensor in a place of its own.
//!
//! It trains what `workers × accumulate` micro-batches train, but has no ranks, messages or streams: it adds each
//! element's gradients in the reduction order that the symbolic checker reports for the exchange, so its weights equal
//! those of the distributed run to the bit.

mod learners;
mod local_sgd;
mod split;

use std::collections::BTreeMap;

use lockstep_data::{Dataset, Parts, Sampler};
use lockstep_exec::device::cpu::{Threads, add_into};
use lockstep_exec::device::{Cpus, DeviceError, Devices, Mode};
use lockstep_exec::replica::Replica;
use lockstep_exec::{Arenas, ExecError};
use lockstep_models::memory::Reuse;
use lockstep_models::{
    Buffer, Claim, Coefficient, Exchange, Gradients, Job, Moments, Op, Optimizer, Phase, PipelinePass, Program,
    RunLength, SquareSum, StageBody, StepNumbers, Task,
};
use lockstep_topology::{Collective, Dtype, InputError, check};

/// Learnable parameters after `steps` steps of `program` on one rank.
///
/// # Errors
/// When the data do not fit the model or fill no global batch, or an exchange is not a correct sum.
pub(crate) fn train(
    program: &Program,
    data: &Dataset,
    steps: u32,
    seed: u64,
    optimizer: &Optimizer,
) -> Result<Vec<f32>, ExecError> {
    train_as_claimed(program, data, steps, seed, optimizer, &[])
}

/// As [`train`], with micro-batches assigned to learners as in `claims`; returns their average model.
///
/// # Errors
/// As there.
pub(crate) fn train_as_claimed(
    program: &Program,
    data: &Dataset,
    steps: u32,
    seed: u64,
    optimizer: &Optimizer,
    claims: &[Claim],
) -> Result<Vec<f32>, ExecError> {
    if let (None, Some(sharding)) = (&program.averaging, &program.sharding) {
        data.check_fits(&program.model)?;
        return split::train(program, sharding, data, steps, seed, optimizer);
    }
    train_on(&Cpus, program, data, steps, seed, optimizer, claims)
}

/// As [`train_as_claimed`], with gradients computed on one of `devices`; sums and averages are computed here.
///
/// # Errors
/// As there, and device errors.
pub(crate) fn train_on(
    devices: &dyn Devices,
    program: &Program,
    data: &Dataset,
    steps: u32,
    seed: u64,
    optimizer: &Optimizer,
    claims: &[Claim],
) -> Result<Vec<f32>, ExecError> {
    data.check_fits(&program.model)?;
    if let Some(averaging) = &program.averaging {
        return learners::train(devices, program, averaging, (data, claims), steps, seed, optimizer);
    }
    if program.trains_apart() {
        return local_sgd::train(devices, program, data, steps, seed, optimizer);
    }
    if program.sharding.is_some() {
        let message = "has layers that ranks share, whose reference computes on the CPU alone: compare with that";
        return Err(InputError::new("reference", program.model.name(), message).into());
    }
    let (workers, accumulate) = (program.pools.iter().sum::<u32>(), program.accumulate);
    let samples = program.batch_per_rank;
    let sampler = Sampler::new(data.len(), samples, accumulate, &program.pools, seed)?;
    let parts = Parts::new(program, data.len() as u32, seed)?;
    // One rank has all layers, all parameters, and the whole optimizer state.
    let shares = |task: &Task| matches!(&task.op, Op::Elementwise(of) if !of.shared.is_empty());
    let in_parts = program.roles[0].order().is_some() || program.roles[0].tasks.iter().any(shares);
    let in_one = alone(program)?;
    // Gradients and moments are rounded here, as the program stores them.
    let whole = if in_parts { in_one } else { program.clone() };
    let whole = &Program { gradients: Gradients::F32, moments: Moments::F32, ..whole };
    // Every tensor has a place of its own: errors of a memory plan show in the weights.
    let apart = Arenas { reuse: Reuse::Nothing, ..Arenas::default() };
    let mut replica = Replica::on(devices, whole, &whole.roles[0], &apart, seed, &Threads::one())?;
    let run_length = RunLength {
        global_batch: program.global_batch(),
        steps_per_epoch: sampler.batches_per_epoch(),
        steps: u64::from(steps),
    };
    let elements = program.model.parameter_elements() as usize;
    // Micro-batches whose gradients workers sum before they exchange the sum: all of a step, or each.
    let sums_each = program.roles.iter().any(|role| {
        let mut of_gradients = role.exchanges().filter(|(_, exchange)| exchange.buffer == Buffer::Gradients);
        of_gradients.any(|(task, _)| role.runs_of(task) > 1)
    });
    let mut total = Vec::new();
    let at_once = if sums_each { 1 } else { accumulate };
    for (step, first) in
        (0..steps).flat_map(|step| (0..accumulate).step_by(at_once as usize).map(move |first| (step, first)))
    {
        let mut sums: Vec<Vec<f32>> = Vec::new();
        for worker in 0..workers {
            let mut sum = Vec::new();
            for repetition in first..first + at_once {
                let mut indices = Vec::new();
                let place = sampler.micro_batch(u64::from(step), worker, repetition, &mut indices);
                if let Some(parts) = &parts {
                    indices = parts.samples(u64::from(step), worker, repetition);
                }
                replica.load(data, &indices, place)?;
                let gradient = stored(program, gradients(whole, program.gradient_samples(), &mut replica)?);
                sum = if repetition == first { gradient } else { sum_of(program, sum, &gradient) };
            }
            sums.push(sum);
        }
        let sum = added_up(program, &sums)?;
        match first {
            0 => total = sum,
            _ => add_into(&mut total, &sum),
        }
        if first + at_once == accumulate {
            replica.set_gradients(&total)?;
            let numbers = optimizer.numbers(u64::from(step), &run_length);
            let (factors, numbers) = clipped(optimizer, numbers, &total);
            replica.evaluate_formula(0..elements, &program.rule.update(&factors, false), &numbers)?;
            let states = replica.states()?.into_iter().map(|of| rounded(program.moments.dtype(), of));
            replica.set_states(states)?;
        }
    }
    Ok(replica.parameters()?)
}

/// The factors of a gradient whose elements are all given, and the numbers with which a step clips it.
fn clipped(optimizer: &Optimizer, numbers: StepNumbers, gradient: &[f32]) -> (Vec<Coefficient>, StepNumbers) {
    match optimizer.clip_norm {
        None => (Vec::new(), numbers),
        Some(most) => {
            let clip = SquareSum::of(gradient).clip_coefficient(most);
            (vec![Coefficient::CLIP], StepNumbers { clip, ..numbers })
        }
    }
}

/// The passes of all stages on one rank, in the same chains: a fused kernel may round differently from the two that it
/// replaces.
fn alone(program: &Program) -> Result<Program, ExecError> {
    let alone = Job {
        rule: program.rule,
        precision: program.precision,
        ..Job::new(program.model.clone(), 1, program.batch_per_rank)
    };
    let mut alone = alone.program()?;
    // By the distance of a chunk from the start of its pass; a program without stages has one.
    let mut passes: BTreeMap<(PipelinePass, u32), &[Task]> = BTreeMap::new();
    for role in &program.roles {
        match (role.order(), role.tasks.iter().position(|task| matches!(task.op, Op::Schedule(_)))) {
            (Some(order), Some(list)) => {
                let mut start = list + 1;
                for StageBody { chunk, pass, tasks } in order.bodies.iter().copied() {
                    let distance = if pass == PipelinePass::Forward { chunk } else { u32::MAX - chunk };
                    passes.insert((pass, distance), &role.tasks[start..start + tasks]);
                    start += tasks;
                }
            }
            _ => drop(passes.insert((PipelinePass::Forward, 0), &role.tasks)),
        }
    }
    let load = alone.roles[0].tasks.iter().find(|task| matches!(task.op, Op::Load { .. })).into_iter();
    let computes = passes.into_values().flatten().filter(|task| matches!(task.op, Op::Compute { .. }));
    let tasks = load.chain(computes).map(|task| Task { after: Vec::new(), ..task.clone() }).collect();
    (alone.chains, alone.roles[0].tasks) = (program.chains.clone(), tasks);
    Ok(alone)
}

/// Forward and backward of one micro-batch of a step over `samples`; returns its gradient alone.
pub(crate) fn gradients(program: &Program, samples: u64, replica: &mut Replica) -> Result<Vec<f32>, DeviceError> {
    let scale = 1.0 / samples as f32;
    for task in &program.roles[0].tasks {
        match task.op {
            Op::Compute { chain, phase: Phase::Forward, .. } => {
                replica.forward(chain, Mode::Train)?;
            }
            Op::Compute { chain, phase, .. } => drop(replica.backward(chain, phase, scale, false)?),
            _ => {}
        }
    }
    replica.gradients()
}

/// The sum of two gradients, as the program stores it.
fn sum_of(program: &Program, mut a: Vec<f32>, b: &[f32]) -> Vec<f32> {
    add_into(&mut a, b);
    stored(program, a)
}

/// Gradients as the program stores them.
fn stored(program: &Program, values: Vec<f32>) -> Vec<f32> {
    rounded(program.dtype(Buffer::Gradients), values)
}

/// Numbers as a format stores them: in bf16 the nearest ones, by definition. Of fp32 numbers it drops 16 bits, and is
/// then either of the two neighbours; of equally near ones it is that with an even last bit.
pub(crate) fn rounded(dtype: Dtype, values: Vec<f32>) -> Vec<f32> {
    if dtype == Dtype::F32 {
        return values;
    }
    let nearest = |value: f32| {
        let below = value.to_bits() >> 16 << 16;
        let [low, high] = [below, below + (1 << 16)].map(f32::from_bits);
        let [down, up] = [low, high].map(|of| (f64::from(value) - f64::from(of)).abs());
        if up < down || (up == down && below >> 16 & 1 == 1) { high } else { low }
    };
    values.into_iter().map(nearest).collect()
}

/// The gradients of the ranks that draw samples, by number, summed as by the exchanges of gradients.
fn added_up(program: &Program, gradients: &[Vec<f32>]) -> Result<Vec<f32>, ExecError> {
    let workers = program.roles.iter().filter(|role| role.ranks.first() < program.workers());
    let exchanges = workers.flat_map(|role| role.exchanges().map(|(_, exchange)| exchange));
    let exchanges = exchanges.filter(|exchange| exchange.buffer == Buffer::Gradients);
    let (parts, whole): (Vec<&Exchange>, Vec<&Exchange>) = exchanges.partition(|exchange| !exchange.shared.is_empty());
    let Some(part) = parts.first() else { return summed_in_order(program, whole.into_iter(), gradients) };
    // Replicas sum their own ranks' gradients; then each part of these sums is summed over the replicas.
    let within = |replica: u32| {
        let ranks = program.mesh.group_of(part.shared, replica);
        let own: Vec<Vec<f32>> = ranks.iter().map(|rank| gradients[program.source(rank) as usize].clone()).collect();
        summed_in_order(program, whole.iter().copied(), &own)
    };
    let of_replicas: Vec<Vec<f32>> = program.group_of(part, 0).iter().map(within).collect::<Result<_, _>>()?;
    summed_in_order(program, parts.into_iter(), &of_replicas)
}

/// The sum over the members of a group, element by element in the reduction order of the exchange that computes it.
fn summed_in_order<'p>(
    program: &Program,
    exchanges: impl Iterator<Item = &'p Exchange>,
    sums: &[Vec<f32>],
) -> Result<Vec<f32>, ExecError> {
    let mut total = sums[0].clone();
    for exchange in exchanges.filter(|exchange| exchange.collective != Collective::AllGather) {
        let groups = if exchange.shared.is_empty() { 1 } else { program.group_count(exchange) };
        for members in (0..groups).map(|number| program.group(exchange, number)) {
            let reduction_order = check(&program.schedule_among(exchange, &members)?)
                .map_err(|fault| InputError::new("exchange", exchange.algorithm.to_string(), fault.to_string()))?;
            let start = program.part_of(exchange, &members).start;
            for (part, expression) in reduction_order.ranges() {
                // The padding follows the range.
                let at = |element: u64| (start + element).min(exchange.range.end) as usize;
                let range = at(part.start)..at(part.end);
                let leaf = |member: u32| sums[member as usize][range.clone()].to_vec();
                let value = reduction_order.fold(expression, leaf, |a: Vec<f32>, b: Vec<f32>| sum_of(program, a, &b));
                total[range].copy_from_slice(&value);
            }
        }
    }
    Ok(total)
}
