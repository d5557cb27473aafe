//! The bytes of its GPU's memory that a rank takes, and whether they are to be had.

use lockstep_exec::device::{Blueprint, DeviceError};
use lockstep_models::Buffer;
use lockstep_topology::{Bytes, ErrorPlace};

use super::calls::{Share, calls};
use super::chains::{chains, form};
use super::held::ELEMENT;
use super::samples::arranged_bytes;
use super::{Chain, Gpus, Work};
use crate::driver::Executor;
use crate::{Activation, Bf16, Scalar};

/// What a rank takes, in bytes.
pub(super) struct Needs {
    /// Micro-batches in flight.
    in_flight: u64,
    /// Activations and their gradients of each.
    pub(super) arena: u64,
    /// Samples, twice as the host gives them, and as passes take them if that is otherwise.
    input: u64,
    /// What kernels keep from pass to pass for each.
    pub(super) kept: u64,
    /// What kernels need in a pass.
    pub(super) scratch: u64,
    /// Buffers and the optimizer's values.
    buffers: u64,
    /// The libraries' workspace.
    pub(super) workspace: u64,
}

impl Needs {
    /// Those of a rank that loads so many samples at once, and its workspace if libraries are asked for that: `executor` then
    /// knows all algorithms.
    fn of<A: Activation>(
        of: &Blueprint<'_>,
        gpus: &Gpus,
        share: Share,
        executor: Option<&mut Executor>,
    ) -> Result<Needs, DeviceError> {
        let form = form(of, gpus);
        let (chains, kept) = chains::<A>(of, form, share, 0)?;
        let scratch =
            |chain: &Chain<A>| if let Work::Kernel(kernel) = &chain.work { kernel.scratch_bytes() } else { 0 };
        let declared: u64 = of.declared.iter().map(|elements| *elements as u64).sum();
        let (parameters, input) = (of.parameters.len() as u64, share.of(of.input_elements() as u64));
        let places =
            [Buffer::Weights, Buffer::Gradients, Buffer::Momentum].map(|buffer| of.places.of(buffer).elements());
        let beside = (places.iter().sum::<usize>() + of.statistics.len()) as u64;
        // Two bits for each parameter say whether it decays.
        let masks = 2 * of.program.model.parameter_elements().div_ceil(32) * 4;
        let in_flight = of.contexts() as u64;
        Ok(Needs {
            in_flight,
            arena: share.of(of.plan.elements as u64) * A::SCALAR.bytes(),
            input: 2 * input * ELEMENT + arranged_bytes(input, of.program.model.input(), form, in_flight),
            kept,
            scratch: chains.iter().map(scratch).max().unwrap_or(0),
            buffers: (parameters + beside + declared) * ELEMENT + masks,
            workspace: executor.map_or(Ok(0), |executor| executor.choose(&calls(of, &chains, share)))?,
        })
    }

    /// Those of a rank with all its samples.
    ///
    /// # Errors
    /// As [`Needs::settled`], but for what does not fit.
    pub(super) fn whole(gpus: &Gpus, of: &Blueprint<'_>, executor: &mut Executor) -> Result<Needs, DeviceError> {
        match Scalar::of(gpus.precision) {
            Scalar::F32 => Needs::of::<f32>(of, gpus, Share::all(of), Some(executor)),
            Scalar::Bf16 => Needs::of::<Bf16>(of, gpus, Share::all(of), Some(executor)),
        }
    }

    /// All of it.
    pub(super) fn total(&self) -> u64 {
        self.in_flight * (self.arena + self.kept) + self.input + self.scratch + self.buffers + self.workspace
    }

    /// What `rank` takes of its GPU, refused before any of it is taken if it is not there, with what would fit. `executor` knows
    /// all algorithms then.
    ///
    /// # Errors
    /// The memory does not hold it; a library has no algorithm for a pass.
    pub(super) fn settled<A: Activation>(
        (gpus, rank): (&Gpus, u32),
        of: &Blueprint<'_>,
        executor: &mut Executor,
    ) -> Result<Needs, DeviceError> {
        let (gpu, loaded) = (gpus.of(rank), of.loaded() as u64);
        let (free, total) = gpu.context.memory()?;
        let mut plain = Needs::of::<A>(of, gpus, Share::all(of), None)?;
        // Learners of this GPU that are at rest have left their arenas to others.
        let free = free + gpu.arenas(plain.arena).min(plain.in_flight) * plain.arena;
        let mut needs = |samples| Needs::of::<A>(of, gpus, Share { samples, loaded }, Some(executor));
        match needs(loaded) {
            Ok(needs) if needs.total() <= free => return Ok(needs),
            Ok(needs) => plain = needs,
            // What is far too large may be too large for libraries too.
            Err(DeviceError::Refused { .. }) if plain.total() > free => {}
            Err(error) => return Err(error),
        }
        // Of fewer samples nobody has a plan, and its arena is taken to be their share of this one.
        let (mut fit, mut beyond) = (0, loaded);
        while fit + 1 < beyond {
            let middle = fit + (beyond - fit) / 2;
            *if needs(middle)?.total() <= free { &mut fit } else { &mut beyond } = middle;
        }
        let cure = match fit {
            0 => "not one sample fits: take a smaller model".to_owned(),
            fit => format!("about {fit} samples per rank fit, or accumulate with {}", ErrorPlace::Flag("accumulate")),
        };
        let what = format!(
            "the memory plan of rank {rank} for {loaded} samples ({} of it activations, {} the libraries' workspace; {cure})",
            Bytes(plain.in_flight * plain.arena),
            Bytes(plain.workspace)
        );
        Err(DeviceError::OutOfMemory { what, asked: plain.total(), free, total })
    }
}
