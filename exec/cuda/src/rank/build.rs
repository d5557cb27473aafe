//! Builds a rank's device from a blueprint: all memory that it will ever need is allocated here, or reported as not
//! fitting.

use std::sync::Arc;

use lockstep_exec::device::{Blueprint, DeviceError};
use lockstep_models::Buffer;
use lockstep_topology::Dtype;

use super::chains::form;
use super::device_buffer::DeviceBuffer;
use super::gpus::Gpu;
use super::groups::Groups;
use super::in_flight::InFlight;
use super::needs::Needs;
use super::outstanding::Outstanding;
use super::samples::Samples;
use super::streams::{StreamRole, Streams};
use super::{GpuPort, Gpus, Masks, Rank};
use crate::Activation;
use crate::driver::{Executor, Fill, GpuMemory, Graphs, WorkspaceLimits};

impl<A: Activation> Rank<A> {
    /// As [`device`].
    pub(super) fn new(gpus: &Gpus, rank: u32, of: Blueprint<'_>) -> Result<Rank<A>, DeviceError> {
        let form = form(&of, gpus);
        let gpu = gpus.of(of.program.device_of(rank));
        let context = &gpu.context;
        context.bind()?;
        let mut streams = Streams::new(context)?;
        let executor = |role| Executor::new(streams.get(role), &gpu.modules, WorkspaceLimits::default());
        let mut computing = executor(StreamRole::Compute)?;
        let needs = Needs::fitted::<A>((gpus, rank), &of, &mut computing)?;
        computing.take(needs.workspace)?;
        let averages = of.program.averages();
        let beside = if averages { Some(executor(StreamRole::Average)?) } else { None };
        let mut in_flight: Vec<InFlight<A>> =
            (0..of.contexts()).map(|_| InFlight::new(gpu, &of, form, needs.kept)).collect::<Result<_, _>>()?;
        take_arenas(gpu, &mut in_flight, &mut streams, (needs.arena, of.arenas.poison))?;
        let elements = of.parameters.len();
        let held = |what: &str, buffer: Buffer, elements: usize| {
            DeviceBuffer::new(context, what, (elements, of.program.dtype(buffer)))
        };
        let placed = |what: &str, buffer: Buffer| held(what, buffer, of.places.of(buffer).elements());
        let kept = |state| placed("what the optimizer keeps", state);
        let own = |(index, elements): (usize, &usize)| held("a declared buffer", Buffer::Declared(index), *elements);
        let graphs = Graphs::new(computing, gpus.graphs, of.contexts());
        let most = of.chains.iter().map(|chain| chain.samples).max().unwrap_or(0).max(of.loaded());
        let built = Rank {
            graphs,
            beside,
            in_flight,
            at: 0,
            parameters: held("parameters", Buffer::Parameters, elements)?,
            weights: placed("gathered parameters", Buffer::Weights)?,
            gathers: of.program.shares_parameters(),
            gradients: placed("gradients", Buffer::Gradients)?,
            places: of.places.clone(),
            declared: of.declared.iter().enumerate().map(own).collect::<Result<_, _>>()?,
            states: of.places.states().map(kept).collect::<Result<_, _>>()?,
            norm: placed("the sum of squares of gradients", Buffer::Norm)?,
            statistics: DeviceBuffer::new(context, "running statistics", (of.statistics.len(), Dtype::F32))?,
            masks: masks(&of, &streams, context)?,
            scratch: GpuMemory::new(context, "what kernels need in a pass", needs.scratch, Fill::Poison)?,
            samples: Samples::new(
                context,
                (of.input_elements(), of.program.model.sample()),
                form,
                (most, labels_each(&of), of.contexts()),
            )?,
            arena_bytes: of.plan.bytes as u64,
            poison: of.arenas.poison,
            averages,
            gathered: Vec::new(),
            pending: None,
            outstanding: Outstanding::new(context, &streams)?,
            leaving: Vec::new(),
            left: 0,
            spare: Vec::new(),
            ballast: None,
            groups: Groups::default(),
            port: Box::new(GpuPort::new(&gpu.modules, &gpu.taken)?),
            receive_buffers: Vec::new(),
            streams,
            gpu: Arc::clone(gpu),
        };
        let write = |held: &DeviceBuffer, values: &[f32]| {
            let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            built.streams.get(StreamRole::Compute).write(held.memory(), 0, &content)
        };
        write(&built.parameters, &of.parameters)?;
        write(&built.statistics, &of.statistics)?;
        Ok(built)
    }
}

/// Allocates the arenas of the micro-batches in flight.
fn take_arenas<A: Activation>(
    gpu: &Arc<Gpu>,
    in_flight: &mut [InFlight<A>],
    streams: &mut Streams,
    (arena, poison): (u64, bool),
) -> Result<(), DeviceError> {
    if in_flight.len() > 1 {
        return in_flight.iter_mut().try_for_each(|own| own.take(gpu, streams, arena, poison));
    }
    // Allocates an arena for the first learner. No learner prefers it, or those that share the GPU would wait for each
    // other.
    gpu.take_back(gpu.lend(arena, None)?);
    Ok(())
}

/// A bit for each parameter.
fn masks(of: &Blueprint<'_>, streams: &Streams, context: &Arc<crate::driver::Context>) -> Result<Masks, DeviceError> {
    let words = (of.program.model.parameter_elements() as usize).div_ceil(32);
    let mut own = vec![0u32; words];
    for parameter in of.program.model.layers().iter().flat_map(|node| &node.parameters).filter(|p| p.decay) {
        parameter.range.clone().for_each(|at| own[at as usize / 32] |= 1 << (at % 32));
    }
    let put = |words: &[u32]| -> Result<GpuMemory, DeviceError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = GpuMemory::new(context, "which weights decay", bytes.len() as u64, Fill::Zeros)?;
        streams.get(StreamRole::Compute).write(&memory, 0, &bytes)?;
        Ok(memory)
    };
    Ok(Masks { own: put(&own)?, all: put(&vec![u32::MAX; words])? })
}

/// Labels of a sample.
fn labels_each(of: &Blueprint<'_>) -> usize {
    of.program.model.labels().map_or(0, |labels| labels.elements() as usize)
}
