//! A replica whose tasks are timed on its device, one by one, outside of any run.

use std::time::{Duration, Instant};

use lockstep_models::{Op, Phase, Program, SgdStep};

use super::{Making, Replica};
use crate::data::Dataset;
use crate::device::cpu::Threads;
use crate::device::{DeviceError, Devices, Mode, Settled};
use crate::{Arenas, init};

/// A device that says nothing for so long says nothing any more.
const PATIENCE: Duration = Duration::from_secs(600);

impl Replica {
    /// The replica of a program's first role on the device that `rank` of a run would have, its parameters drawn with `seed`.
    ///
    /// # Errors
    /// The device's: its memory does not hold the plan.
    pub fn of_rank(devices: &Devices, rank: u32, program: &Program, seed: u64) -> Result<Replica, DeviceError> {
        let (arenas, threads) = (Arenas::default(), Threads::one());
        let parameters = init::parameters(&program.model, seed);
        let making = Making { devices, rank, arenas: &arenas, declared: Vec::new(), seed, threads: &threads };
        Replica::with_parameters(program, &program.roles[0], parameters, making)
    }

    /// Runs one task of a single worker's step, whatever came before it: a load of the samples `indices`, a pass, or an update with so
    /// small a rate that the weights stay where they are however often it is timed. Other tasks are nothing here.
    ///
    /// # Errors
    /// The device's.
    pub fn alone(&mut self, op: &Op, data: &Dataset, indices: &[u32]) -> Result<(), DeviceError> {
        match op {
            Op::Load { .. } => self.load(data, indices, 0),
            Op::Compute { chain, phase: Phase::Forward, .. } => self.forward(*chain, Mode::Train).map(drop),
            Op::Compute { chain, phase, samples, .. } => self.backward(*chain, *phase, 1.0 / *samples as f32, false),
            Op::Update { range } => self.update(range.start as usize..range.end as usize, &SgdStep::plain(1e-9, 0.9)),
            Op::Averaging { .. } | Op::Repeat { .. } | Op::Exchange(_) | Op::Copy(_) | Op::Callback { .. } => Ok(()),
        }
    }

    /// Notes when the device has done all that it was told so far; the n-th of an iteration is the n-th of its times.
    ///
    /// # Errors
    /// The device's.
    pub fn mark(&mut self) -> Result<(), DeviceError> {
        self.device.mark().map(drop)
    }

    /// Keeps the device busy, so that what it is told next is there before it begins with it: then its times are its own and not
    /// those of the host that tells it.
    ///
    /// # Errors
    /// The device's.
    pub fn delay(&mut self, times: u32) -> Result<(), DeviceError> {
        self.device.delay(times)
    }

    /// Ends an iteration; [`Replica::settle`] gives its times.
    ///
    /// # Errors
    /// The device's.
    pub fn seal(&mut self) -> Result<(), DeviceError> {
        self.device.seal()
    }

    /// What the oldest iteration that was ended has to say, when it is done.
    ///
    /// # Errors
    /// The device's; it is not done after ten minutes.
    pub fn settle(&mut self) -> Result<Settled, DeviceError> {
        let began = Instant::now();
        loop {
            if let Some(settled) = self.device.settled()? {
                return Ok(settled);
            }
            if began.elapsed() > PATIENCE {
                let reason = format!("that a step is not done after {} s", PATIENCE.as_secs());
                return Err(DeviceError::Lost { call: "the wait for a step".to_owned(), reason });
            }
            std::thread::yield_now();
        }
    }
}
