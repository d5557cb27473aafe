//! Times one rank's steps: tasks in the order of a step, each between two marks on the device's own clock.

use std::time::Instant;

use lockstep_data::Dataset;
use lockstep_exec::ExecError;
use lockstep_exec::device::{DeviceError, Devices, IterationResults};
use lockstep_exec::replica::Replica;
use lockstep_models::{Elementwise, Op, Optimizer, Program};

/// Warm-up steps: library plans are chosen and graphs captured in them.
pub(super) const WARM_UP: u32 = 3;
/// Fractions of the parameters whose updates are timed separately.
const SHARES: [u64; 3] = [4, 16, 64];
/// The most fills that keep the device from starting.
const MOST_FILLS: u32 = 1024;
const SEED: u64 = 1;

/// A program with its data and devices.
pub(super) struct Stand<'a> {
    pub(super) devices: &'a dyn Devices,
    pub(super) program: &'a Program,
    pub(super) data: &'a Dataset,
}

/// A rank that runs steps.
pub(super) struct Rank<'a> {
    replica: Replica,
    program: &'a Program,
    data: &'a Dataset,
    tasks: Vec<&'a Op>,
    indices: Vec<u32>,
}

/// Seconds of each task, step by step.
pub(super) struct Laps {
    /// Passes and the update of all parameters.
    pub(super) tasks: Vec<(Op, Vec<f64>)>,
    /// Updates, by number of parameters.
    pub(super) updates: Vec<(u64, Vec<f64>)>,
    /// Two marks with nothing in between.
    pub(super) marks: Vec<f64>,
}

impl<'a> Stand<'a> {
    /// The rank with this number, which determines its GPU.
    pub(super) fn rank(&self, rank: u32) -> Result<Rank<'a>, DeviceError> {
        let timed = |op: &&Op| matches!(op, Op::Load { .. } | Op::Compute { .. }) || op.update().is_some();
        let tasks = self.program.roles[0].tasks.iter().map(|task| &task.op).filter(timed).collect();
        let samples = self.data.len().max(1) as u32;
        Ok(Rank {
            replica: Replica::of_rank(self.devices, rank, self.program, SEED)?,
            program: self.program,
            data: self.data,
            tasks,
            indices: (0..self.program.batch_per_rank).map(|index| index % samples).collect(),
        })
    }
}

impl Rank<'_> {
    /// Runs a whole step untimed.
    pub(super) fn step(&mut self) -> Result<(), ExecError> {
        for task in 0..self.tasks.len() {
            self.run(task)?;
        }
        self.replica.end_iteration()?;
        Ok(self.replica.wait_for_iteration().map(drop)?)
    }

    /// Submits a step, with a mark before its load and one after.
    pub(super) fn hand_over(&mut self) -> Result<(), ExecError> {
        for task in 0..self.tasks.len() {
            let loads = matches!(self.tasks[task], Op::Load { .. });
            if loads {
                self.replica.mark()?;
            }
            self.run(task)?;
            if loads {
                self.replica.mark()?;
            }
        }
        Ok(self.replica.end_iteration()?)
    }

    /// Waits for the oldest submitted step.
    pub(super) fn wait_for_iteration(&mut self) -> Result<IterationResults, DeviceError> {
        self.replica.wait_for_iteration()
    }

    /// Times each task, `steps` times.
    pub(super) fn laps(&mut self, steps: u32) -> Result<Laps, ExecError> {
        let parameters = self.program.model.parameter_elements();
        let parts = SHARES.map(|share| parameters / share);
        let parts: Vec<u64> = parts.into_iter().filter(|elements| *elements > 0).collect();
        let of_tasks = self.tasks.iter().map(|op| ((*op).clone(), Vec::new())).collect();
        let updates = parts.iter().map(|elements| (*elements, Vec::new())).collect();
        let mut laps = Laps { tasks: of_tasks, updates, marks: Vec::new() };
        let (mut fills, mut handing) = (1, f64::INFINITY);
        for step in 0..WARM_UP + steps {
            self.replica.mark()?;
            self.replica.delay(fills)?;
            self.replica.mark()?;
            self.replica.mark()?;
            let begun = Instant::now();
            for task in 0..self.tasks.len() {
                self.run(task)?;
                self.replica.mark()?;
            }
            for elements in &parts {
                let update = Op::Elementwise(Elementwise::new(Optimizer::update(1.0, false), 0..*elements));
                self.replica.alone(&update, self.data, &self.indices)?;
                self.replica.mark()?;
            }
            self.replica.end_iteration()?;
            handing = begun.elapsed().as_secs_f64().min(handing);
            let passed = self.replica.wait_for_iteration()?.times;
            let seconds = |from: usize| match (passed.get(from), passed.get(from + 1)) {
                (Some(from), Some(to)) => to.saturating_duration_since(*from).as_secs_f64(),
                _ => 0.0,
            };
            // Delays the device for 1.5 times the time that submitting the step takes.
            let fill = (seconds(0) / f64::from(fills)).max(1e-6);
            fills = ((1.5 * handing / fill).ceil() as u32).clamp(1, MOST_FILLS);
            if step < WARM_UP {
                continue;
            }
            let mark = seconds(1);
            laps.marks.push(mark);
            let of_tasks = laps.tasks.iter_mut().map(|(_, seconds)| seconds);
            let of_updates = laps.updates.iter_mut().map(|(_, seconds)| seconds);
            for (number, lap) in of_tasks.chain(of_updates).enumerate() {
                lap.push((seconds(2 + number) - mark).max(0.0));
            }
        }
        for (op, seconds) in &laps.tasks {
            if let Some(of) = op.update() {
                laps.updates.push((of.range.end - of.range.start, seconds.clone()));
            }
        }
        Ok(laps)
    }

    fn run(&mut self, task: usize) -> Result<(), ExecError> {
        self.replica.alone(self.tasks[task], self.data, &self.indices)
    }
}
