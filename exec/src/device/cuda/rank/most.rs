//! How many ranks of a program the GPUs' memory holds, asked before any of them is made.

use lockstep_models::Program;
use lockstep_models::memory::Plan;

use super::super::driver::{Executor, Limits};
use super::Gpus;
use super::lanes::{Lane, Lanes};
use super::needs::Needs;
use crate::device::{Blueprint, DeviceError};
use crate::init;
use crate::pool::Arenas;

impl Gpus {
    /// How many ranks like the program's first fit on these GPUs, on which ranks go round, with what is free on them now.
    ///
    /// # Errors
    /// A library has no algorithm for a pass; a GPU is lost.
    pub fn most_ranks(&self, program: &Program) -> Result<u32, DeviceError> {
        let role = &program.roles[0];
        let arenas = Arenas::default();
        let plan = Plan::of_role(program, role, arenas.reuse);
        let held = (0..program.buffers.len()).map(|index| program.held(index, role.ranks.first));
        let declared = held.map(|held| (held.end - held.start) as usize).collect();
        let begin = (vec![0.0; program.model.parameter_elements() as usize], init::statistics(&program.model));
        let of = Blueprint::new(program, role, (&plan, &arenas), declared, begin);
        let mut most = u64::from(u32::MAX);
        for ordinal in 0..self.count() as u32 {
            let gpu = self.of(ordinal);
            gpu.context.bind()?;
            let lanes = Lanes::new(&gpu.context)?;
            let mut executor = Executor::new(lanes.stream(Lane::Compute), &gpu.modules, Limits::default())?;
            let each = Needs::whole(self, &of, &mut executor)?.total();
            most = most.min(gpu.context.memory()?.0 / each.max(1));
        }
        Ok((most * self.count() as u64).min(u64::from(u32::MAX)) as u32)
    }
}
