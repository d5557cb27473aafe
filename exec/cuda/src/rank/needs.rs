//! Computes the GPU memory in bytes that a rank needs, and refuses what does not fit.

use lockstep_exec::device::{Blueprint, DeviceError};
use lockstep_models::Buffer;
use lockstep_topology::{Bytes, Dtype, ErrorPlace};

use super::calls::{Share, calls};
use super::chains::{chains, form};
use super::samples::arranged_bytes;
use super::{Chain, Gpus, Work};
use crate::driver::Executor;
use crate::{Activation, Bf16, Scalar};

/// The memory needs of a rank, in bytes.
pub(super) struct Needs {
    /// Micro-batches in flight.
    in_flight: u64,
    /// Activations and their gradients, for each micro-batch in flight.
    pub(super) arena: u64,
    /// Samples: twice as received from the host, and as passes take them, if that differs.
    input: u64,
    /// What kernels keep between passes, for each micro-batch in flight.
    pub(super) kept: u64,
    /// Scratch of kernels during a pass.
    pub(super) scratch: u64,
    /// Buffers and optimizer state.
    buffers: u64,
    /// The libraries' workspace.
    pub(super) workspace: u64,
}

impl Needs {
    /// The needs of a rank that loads this many samples at once, with the libraries' workspace if they are asked for
    /// it: `executor` has then selected all algorithms.
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
        let held = |buffer: Buffer, elements: usize| of.program.dtype(buffer).bytes(elements as u64);
        let declared = of.declared.iter().enumerate();
        let declared: u64 = declared.map(|(index, elements)| held(Buffer::Declared(index), *elements)).sum();
        let placed = [Buffer::Weights, Buffer::Gradients].into_iter().chain(of.places.states());
        let placed: u64 = placed.map(|buffer| held(buffer, of.places.of(buffer).elements())).sum();
        let parameters = held(Buffer::Parameters, of.parameters.len());
        let statistics = Dtype::F32.bytes(of.statistics.len() as u64);
        let sample = of.program.model.sample();
        let input = share.of(of.input_elements() as u64);
        // Two bits per parameter for weight decay.
        let masks = 2 * Dtype::U32.bytes(of.program.model.parameter_elements().div_ceil(32));
        let in_flight = of.contexts() as u64;
        Ok(Needs {
            in_flight,
            arena: share.of(of.plan.bytes as u64),
            input: 2 * sample.dtype.bytes(input) + arranged_bytes(input, sample, form, in_flight),
            kept,
            scratch: chains.iter().map(scratch).max().unwrap_or(0),
            buffers: parameters + placed + statistics + declared + masks,
            workspace: executor.map_or(Ok(0), |executor| executor.choose(&calls(of, &chains, share)))?,
        })
    }

    /// The needs of a rank with all its samples.
    ///
    /// # Errors
    /// As [`Needs::fitted`], except for too little memory.
    pub(super) fn whole(gpus: &Gpus, of: &Blueprint<'_>, executor: &mut Executor) -> Result<Needs, DeviceError> {
        match Scalar::of(gpus.precision) {
            Scalar::F32 => Needs::of::<f32>(of, gpus, Share::all(of), Some(executor)),
            Scalar::Bf16 => Needs::of::<Bf16>(of, gpus, Share::all(of), Some(executor)),
        }
    }

    /// The total.
    pub(super) fn total(&self) -> u64 {
        self.in_flight * (self.arena + self.kept) + self.input + self.scratch + self.buffers + self.workspace
    }

    /// The needs of `rank` on its GPU; if they do not fit, an error that says what would fit, before anything is
    /// allocated. `executor` has then selected all algorithms.
    ///
    /// # Errors
    /// Too little memory; a library has no algorithm for a pass.
    pub(super) fn fitted<A: Activation>(
        (gpus, rank): (&Gpus, u32),
        of: &Blueprint<'_>,
        executor: &mut Executor,
    ) -> Result<Needs, DeviceError> {
        let (gpu, loaded) = (gpus.of(of.program.device_of(rank)), of.loaded() as u64);
        let (free, total) = gpu.context.memory()?;
        let mut plain = Needs::of::<A>(of, gpus, Share::all(of), None)?;
        // Learners of this GPU that are idle have returned their arenas for others.
        let free = free + gpu.arenas(plain.arena).min(plain.in_flight) * plain.arena;
        let mut needs = |samples| Needs::of::<A>(of, gpus, Share { samples, loaded }, Some(executor));
        match needs(loaded) {
            Ok(needs) if needs.total() <= free => return Ok(needs),
            Ok(needs) => plain = needs,
            // A batch that is far too large may be too large for libraries too.
            Err(DeviceError::Refused { .. }) if plain.total() > free => {}
            Err(error) => return Err(error),
        }
        // There is no plan for fewer samples; the arena is assumed to be proportional.
        let (mut fit, mut beyond) = (0, loaded);
        while fit + 1 < beyond {
            let middle = fit + (beyond - fit) / 2;
            *if needs(middle)?.total() <= free { &mut fit } else { &mut beyond } = middle;
        }
        let cure = match fit {
            0 => "not one sample fits: use a smaller model".to_owned(),
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
