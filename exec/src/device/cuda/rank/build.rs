//! A rank's device made of a blueprint: everything that it will ever need is allocated here, or said not to fit.

use std::sync::Arc;

use lockstep_models::{Area, Op};
use lockstep_topology::Bytes;

use super::super::driver::{DeviceMemory, Executor, Fill, Graphs, Limits};
use super::super::layers::{CrossEntropy, Form, Kernel, Space};
use super::super::{Activation, Bf16, Scalar};
use super::due::Due;
use super::gpus::Gpu;
use super::groups::Groups;
use super::held::{ELEMENT, Held};
use super::lanes::{Lane, Lanes};
use super::samples::{Samples, arranged_bytes};
use super::{Chain, Gpus, Masks, Port, Rank, Work};
use crate::device::{Blueprint, Device, DeviceError};

/// Addresses one behind the other.
struct Bump {
    next: u64,
}

impl Space for Bump {
    fn take(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes.next_multiple_of(256);
        address
    }
}

/// The device of `rank` on its GPU.
///
/// # Errors
/// What it needs does not fit, with the memory plan's figure; a library does not start; the GPU is lost.
pub(crate) fn device(gpus: &Gpus, rank: u32, of: Blueprint<'_>) -> Result<Box<dyn Device>, DeviceError> {
    Ok(match gpus.precision.scalar() {
        Scalar::F32 => Box::new(Rank::<f32>::new(gpus, rank, of)?),
        Scalar::Bf16 => Box::new(Rank::<Bf16>::new(gpus, rank, of)?),
    })
}

/// How a rank keeps its activations: channels first where copies, which know no other order, cut images to pieces.
fn form(of: &Blueprint<'_>, gpus: &Gpus) -> Form {
    let is_image = |area: Area| match area {
        Area::Activation(id) | Area::Gradient(id) => {
            let shape = of.program.model.node(id).output;
            shape.height * shape.width > 1
        }
        Area::Buffer(_) => false,
    };
    let cut = of.role.tasks.iter().any(|task| match &task.op {
        Op::Copy(copy) => is_image(copy.from) || is_image(copy.to),
        _ => false,
    });
    Form { precision: gpus.precision, channels_last: gpus.channels_last && !cut }
}

/// The chains with what they keep from `first` on, and where that ends.
fn chains<A: Activation>(of: &Blueprint<'_>, form: Form, first: u64) -> Result<(Vec<Chain<A>>, u64), DeviceError> {
    let mut space = Bump { next: first };
    let model = &of.program.model;
    let mut all = Vec::new();
    for (index, plan) in of.chains.iter().enumerate() {
        let (members, samples) = (of.members(index), plan.samples as u32);
        let head = model.node(plan.layers[0]);
        let work = if head.layer.is_loss() {
            let loss = CrossEntropy::new(&head.layer, model.classes(), samples, &mut space);
            Work::Loss(loss, head.loss_weight)
        } else if Kernel::<A>::fits(&members, samples) {
            Work::Kernel(Kernel::new(&members, samples, form, &mut space))
        } else {
            let reason = format!(
                "{} of {samples} samples has a tensor of 2^32 elements or more: take fewer samples per rank",
                of.program.chain_name(index)
            );
            return Err(DeviceError::Refused { call: "a kernel".to_owned(), reason });
        };
        let (parameters, statistics) = (plan.parameters.clone(), plan.statistics.clone());
        let output = plan.layers[plan.layers.len() - 1];
        all.push(Chain { work, parameters, statistics, feeds_one: model.consumers(output).len() == 1 });
    }
    Ok((all, space.next - first))
}

/// Bytes of the device that a rank takes.
struct Needs {
    arena: u64,
    input: u64,
    kept: u64,
    scratch: u64,
    buffers: u64,
}

impl Needs {
    fn of<A: Activation>(of: &Blueprint<'_>, chains: &[Chain<A>], kept: u64, form: Form) -> Needs {
        let scratch =
            |chain: &Chain<A>| if let Work::Kernel(kernel) = &chain.work { kernel.scratch_bytes() } else { 0 };
        let declared: u64 = of.declared.iter().map(|elements| *elements as u64).sum();
        let (parameters, input) = (of.parameters.len() as u64, of.input_elements() as u64);
        Needs {
            arena: of.plan.elements as u64 * A::SCALAR.bytes(),
            input: 2 * input * ELEMENT + arranged_bytes(input, of.program.model.input(), form),
            kept,
            scratch: chains.iter().map(scratch).max().unwrap_or(0),
            buffers: (3 * parameters + of.statistics.len() as u64 + declared) * ELEMENT,
        }
    }

    fn total(&self) -> u64 {
        self.arena + self.input + self.kept + self.scratch + self.buffers
    }

    /// Refuses what does not fit, before any of it is taken, with what would.
    fn check(&self, gpu: &Gpu, rank: u32, samples: u64) -> Result<(), DeviceError> {
        let (free, total) = gpu.context.memory()?;
        let asked = self.total();
        if asked <= free {
            return Ok(());
        }
        let by_samples = self.arena + self.input + self.kept + self.scratch;
        let fit = free.saturating_sub(self.buffers) * samples / by_samples.max(1);
        let cure = match fit {
            0 => "not one sample fits: take a smaller model".to_owned(),
            fit => format!("about {fit} samples per rank fit, or accumulate with --accumulate"),
        };
        let what = format!(
            "the memory plan of rank {rank} for {samples} samples ({} of it activations; {cure})",
            Bytes(self.arena)
        );
        Err(DeviceError::OutOfMemory { what, asked, free, total })
    }
}

impl<A: Activation> Rank<A> {
    /// As [`device`].
    fn new(gpus: &Gpus, rank: u32, of: Blueprint<'_>) -> Result<Rank<A>, DeviceError> {
        let form = form(&of, gpus);
        let gpu = Arc::clone(gpus.of(rank));
        let context = &gpu.context;
        context.bind()?;
        let (planned, bytes) = chains::<A>(&of, form, 0)?;
        let needs = Needs::of(&of, &planned, bytes, form);
        needs.check(&gpu, rank, of.loaded() as u64)?;
        let kept = DeviceMemory::new(context, "what kernels keep", bytes, Fill::Poison)?;
        let (chains, _) = chains(&of, form, kept.address())?;
        let elements = of.parameters.len();
        let declared = of.declared.iter().map(|elements| Held::new(context, "a buffer of the program", *elements));
        let averages = of.program.averaging.is_some();
        let lanes = Lanes::new(context)?;
        let executor = |lane| Executor::new(lanes.stream(lane), &gpu.modules, Limits::default());
        let graphs = Graphs::new(executor(Lane::Compute)?, gpus.graphs);
        let beside = if averages { Some(executor(Lane::Average)?) } else { None };
        let most = of.chains.iter().map(|chain| chain.samples).max().unwrap_or(0).max(of.loaded());
        let built = Rank {
            graphs,
            beside,
            chains,
            parameters: Held::new(context, "parameters", elements)?,
            gradients: Held::new(context, "gradients", elements)?,
            declared: declared.collect::<Result<_, _>>()?,
            velocity: Held::new(context, "the optimizer's momentum", elements)?,
            statistics: Held::new(context, "running statistics", of.statistics.len())?,
            masks: masks(&of, &lanes, context)?,
            kept,
            scratch: DeviceMemory::new(context, "what kernels need in a pass", needs.scratch, Fill::Poison)?,
            samples: Samples::new(context, (of.loaded(), of.program.model.input()), form, most)?,
            elements: of.plan.elements,
            arena: None,
            preferred: None,
            poison: of.arenas.poison,
            averages,
            gathered: Vec::new(),
            pending: None,
            due: Due::new(context, &lanes)?,
            leaving: Vec::new(),
            left: 0,
            spare: Vec::new(),
            ballast: None,
            groups: Groups::default(),
            port: Box::new(Port::new(&gpu.modules, &gpu.taken)?),
            landings: Vec::new(),
            lanes,
            gpu: Arc::clone(&gpu),
        };
        let write = |held: &Held, values: &[f32]| {
            let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            built.lanes.stream(Lane::Compute).write(held.memory(), 0, &content)
        };
        write(&built.parameters, &of.parameters)?;
        write(&built.statistics, &of.statistics)?;
        Ok(built)
    }
}

/// A bit for each parameter.
fn masks(
    of: &Blueprint<'_>,
    lanes: &Lanes,
    context: &Arc<super::super::driver::Context>,
) -> Result<Masks, DeviceError> {
    let words = of.parameters.len().div_ceil(32);
    let mut own = vec![0u32; words];
    for parameter in of.program.model.layers().iter().flat_map(|node| &node.parameters).filter(|p| p.decay) {
        parameter.range.clone().for_each(|at| own[at as usize / 32] |= 1 << (at % 32));
    }
    let put = |words: &[u32]| -> Result<DeviceMemory, DeviceError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = DeviceMemory::new(context, "which weights decay", bytes.len() as u64, Fill::Zeros)?;
        lanes.stream(Lane::Compute).write(&memory, 0, &bytes)?;
        Ok(memory)
    };
    Ok(Masks { own: put(&own)?, all: put(&vec![u32::MAX; words])? })
}
