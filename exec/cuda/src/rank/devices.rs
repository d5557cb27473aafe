//! Provides GPUs as the devices of a run: assigns GPUs to ranks, and computes how many ranks fit in their memory.

use std::sync::PoisonError;

use lockstep_exec::Arenas;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::device::{Blueprint, DeviceError, Devices, RankDevice, unkept};
use lockstep_exec::{ExecError, init};
use lockstep_models::memory::{ActivationFormat, BufferAddresses, Flattening, Plan};
use lockstep_models::{Gradients, Moments, Precision, Program};
use lockstep_topology::{Dtype, InputError};

use super::needs::Needs;
use super::streams::{StreamRole, Streams};
use super::{Gpus, Rank};
use crate::driver::{Executor, WorkspaceLimits};
use crate::{Bf16, Scalar};

impl Devices for Gpus {
    fn device(&self, rank: u32, of: Blueprint<'_>, _: &Threads) -> Result<Box<dyn RankDevice>, DeviceError> {
        Ok(match Scalar::of(self.precision) {
            Scalar::F32 => Box::new(Rank::<f32>::new(self, rank, of)?),
            Scalar::Bf16 => Box::new(Rank::<Bf16>::new(self, rank, of)?),
        })
    }

    /// Flattened features are in the order of channels first.
    fn activations(&self, _: Precision) -> ActivationFormat {
        let flattening = if self.channels_last { Flattening::Moves } else { Flattening::View };
        ActivationFormat { dtype: Scalar::of(self.precision).dtype(), flattening }
    }

    /// Their own precision, which programs that state none have too.
    fn check_precision(&self, precision: Precision) -> Result<(), InputError> {
        if [Precision::F32, self.precision].contains(&precision) {
            return Ok(());
        }
        let message = format!("is not that of the GPUs, which compute in {}: open them in {precision}", self.precision);
        Err(InputError::flag("precision", precision.to_string(), message))
    }

    fn check_gradients(&self, gradients: Gradients, precision: Precision) -> Result<(), InputError> {
        match gradients.dtype(precision) {
            Dtype::F32 => Ok(()),
            other => Err(unkept(gradients, other)),
        }
    }

    fn check_moments(&self, moments: Moments) -> Result<(), InputError> {
        if moments == Moments::F32 {
            return Ok(());
        }
        let message = "is predicted on GPUs, whose updates take moments of fp32 here: leave it out, use device cpu, or predict with \
                       lockstep sim predict";
        Err(InputError::flag("moments", moments.to_string(), message))
    }

    /// GPU memory is checked when its ranks are made.
    fn check_memory(&self, _: &Program, _: &[u32], _: usize) -> Result<(), InputError> {
        Ok(())
    }

    /// Devices are distributed round-robin over the GPUs; their free memory now counts.
    fn most_ranks(&self, program: &Program, _: usize) -> Result<u32, ExecError> {
        let role = &program.roles[0];
        let arenas = Arenas::default();
        let plan = Plan::on_device(program, role, arenas.reuse, self.activations(program.precision));
        let places = BufferAddresses::of_role(program, (role, role.ranks.first()), arenas.reuse);
        let held = (0..program.buffers.len()).map(|index| program.held_elements(&places, index, role.ranks.first()));
        let declared = held.map(|elements| elements as usize).collect();
        let begin = (vec![0.0; program.model.parameter_elements() as usize], init::statistics(&program.model));
        let of = Blueprint::new(program, (role, role.ranks.first()), (&plan, &arenas), declared, begin);
        let mut most = u64::from(u32::MAX);
        for ordinal in 0..self.count() as u32 {
            let gpu = self.of(ordinal);
            gpu.context.bind()?;
            let streams = Streams::new(&gpu.context)?;
            let mut executor =
                Executor::new(streams.get(StreamRole::Compute), &gpu.modules, WorkspaceLimits::default())?;
            let each = Needs::whole(self, &of, &mut executor)?.total();
            most = most.min(gpu.context.memory()?.0 / each.max(1));
        }
        Ok((most * self.count() as u64).min(u64::from(u32::MAX)) as u32)
    }

    fn check_clipping(&self) -> Result<(), InputError> {
        let message = "is predicted on GPUs, which sum no squares of gradients here yet: leave it out, use device cpu, or predict \
                       with lockstep sim predict";
        Err(InputError::flag("clip_norm", "", message))
    }

    fn check_sums(&self, here: &[u32]) -> Result<(), InputError> {
        let refuse = |message: &str| Err(InputError::flag("algorithm", "library:nccl", message));
        if let Some(reason) = self.all.iter().find_map(|gpu| gpu.no_nccl.as_ref()) {
            return refuse(&format!("needs NCCL, and there is {reason}; or use ring"));
        }
        let mut on: Vec<usize> = here.iter().map(|rank| *rank as usize % self.count()).collect();
        on.sort_unstable();
        if on.windows(2).any(|two| two[0] == two[1]) {
            let (ranks, gpus) = (here.len(), self.count());
            return refuse(&format!(
                "needs a GPU for each rank, and this process has {ranks} ranks on {gpus} GPUs: use at most {gpus} ranks, or an \
                 algorithm of lockstep's own, such as ring"
            ));
        }
        Ok(())
    }

    fn reach(&self, ranks: &mut dyn Iterator<Item = u32>) -> Result<bool, DeviceError> {
        let mut on: Vec<usize> = ranks.map(|rank| rank as usize % self.count()).collect();
        on.sort_unstable();
        on.dedup();
        for one in &on {
            for other in &on {
                if !self.peers || !self.all[*one].context.reach(&self.all[*other].context)? {
                    return Ok(false);
                }
            }
        }
        Ok(self.peers)
    }

    fn clear(&self) {
        for gpu in &self.all {
            gpu.pool.lock().unwrap_or_else(PoisonError::into_inner).free.clear();
        }
    }
}
