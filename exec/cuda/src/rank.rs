//! Implements a rank's device on a GPU: its buffers, the arenas of its micro-batches, its kernels and its streams.
//!
//! | stream | work | waits for |
//! |---|---|---|
//! | compute | passes, updates, copies between tensors; labels | samples, exchanged parameters, average model |
//! | out | copies of ranges of buffers to page-locked host memory, for messages | all work submitted before |
//! | in | copies of the results of exchanges back to the device | nothing: the host has seen that they are complete |
//! | average | updates of the average model and the reference models | results of exchanges; the last correction |
//! | sum | sums of a group by NCCL | all work submitted before; the host sees when they are complete |
//! | samples | copies of the next micro-batch during computation | passes on the last micro-batch in that buffer |
//!
//! Passes are collected as commands until a result is needed or other work must come in between; the collected list is
//! then submitted as a whole, as a CUDA graph if it repeats.

mod build;
mod calls;
mod chains;
mod clock;
mod compute;
mod device_buffer;
mod devices;
mod direct;
mod gpus;
mod groups;
mod in_flight;
mod moves;
mod needs;
mod numbers;
mod outstanding;
mod port;
mod samples;
mod staging;
mod storage;
mod streams;
mod sums;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use lockstep_exec::device::{Arrival, DeviceError, Spot, TensorAddress, Values};
use lockstep_exec::transport::Port;
use lockstep_models::Buffer;
use lockstep_models::memory::BufferAddresses;
use lockstep_topology::Dtype;

use self::device_buffer::DeviceBuffer;
use self::gpus::Gpu;
use self::groups::Groups;
use self::in_flight::InFlight;
use self::outstanding::{Outstanding, bytes};
use self::samples::Samples;
use self::streams::{StreamRole, Streams};
use super::driver::{Event, Executor, GpuMemory, Graphs};
use super::layers::{ChainKernel, CrossEntropyKernels, Pending};
use super::{Activation, Command, View, ViewMut};
use port::GpuPort;

pub use direct::Direct;
pub use gpus::Gpus;
pub use sums::GpuSums;

/// What a chain computes.
enum Work<A> {
    Kernel(ChainKernel<A>),
    /// A loss, and its weight in the sum of losses.
    Loss(CrossEntropyKernels, f32),
    /// Nothing: other ranks run it.
    Elsewhere,
}

/// One kernel or loss, and the place of its parameters.
struct Chain<A> {
    work: Work<A>,
    parameters: Range<usize>,
    /// The place of their gradients.
    gradients: Range<usize>,
    statistics: Range<usize>,
    /// Whether its output is read by a single other chain.
    feeds_one: bool,
}

/// Bit masks of the parameters subject to weight decay: the usual ones, and all.
struct Masks {
    own: GpuMemory,
    all: GpuMemory,
}

/// The source or destination of a copy.
enum Located<A> {
    Buffer(ViewMut<f32>),
    Tensor(ViewMut<A>),
}

/// One rank's memory and kernels on a GPU, whose activations are of type `A`.
pub(crate) struct Rank<A> {
    gpu: Arc<Gpu>,
    streams: Streams,
    graphs: Graphs,
    /// The executor on the average stream, if there is an average model.
    beside: Option<Executor>,
    /// The micro-batches in flight, and the index of the current one.
    in_flight: Vec<InFlight<A>>,
    at: usize,
    parameters: DeviceBuffer,
    /// Gathered parameters; empty where the rank holds all of them.
    weights: DeviceBuffer,
    /// Whether layers read the gathered parameters.
    gathers: bool,
    gradients: DeviceBuffer,
    /// The places of buffers.
    places: BufferAddresses,
    declared: Vec<DeviceBuffer>,
    states: Vec<DeviceBuffer>,
    norm: DeviceBuffer,
    statistics: DeviceBuffer,
    masks: Masks,
    /// Scratch of kernels during a pass.
    scratch: GpuMemory,
    samples: Samples,
    /// Bytes of a micro-batch's arena.
    arena_bytes: u64,
    poison: bool,
    /// Whether the results of exchanges are read by learners' formulas alone, so that passes need not wait for them.
    averages: bool,
    /// Commands collected for the compute stream.
    gathered: Vec<Command>,
    /// The deferred launch of the last command, which the next chain may fuse with its own.
    pending: Option<Pending<A>>,
    outstanding: Outstanding,
    /// Events of copies to the host in flight, by number.
    leaving: Vec<(u64, Event)>,
    left: u64,
    spare: Vec<Event>,
    /// The memory written by fills that delay the device.
    ballast: Option<GpuMemory>,
    /// Groups that sum by NCCL.
    groups: Groups,
    /// The endpoint of messages to its memory. It is never moved, since regions point to it.
    port: Box<GpuPort>,
    /// Receive buffers for partial sums from other processes.
    receive_buffers: Vec<GpuMemory>,
}

impl<A: Activation> Rank<A> {
    fn held(&self, buffer: Buffer) -> &DeviceBuffer {
        match buffer {
            Buffer::Parameters => &self.parameters,
            Buffer::Weights => &self.weights,
            Buffer::Gradients => &self.gradients,
            Buffer::State(index) => &self.states[index],
            Buffer::Norm => &self.norm,
            Buffer::Declared(index) => &self.declared[index],
        }
    }

    fn held_mut(&mut self, buffer: Buffer) -> &mut DeviceBuffer {
        match buffer {
            Buffer::Parameters => &mut self.parameters,
            Buffer::Weights => &mut self.weights,
            Buffer::Gradients => &mut self.gradients,
            Buffer::State(index) => &mut self.states[index],
            Buffer::Norm => &mut self.norm,
            Buffer::Declared(index) => &mut self.declared[index],
        }
    }

    fn values(&self, values: Values) -> &DeviceBuffer {
        match values {
            Values::Buffer(buffer) => self.held(buffer),
            Values::Statistics => &self.statistics,
        }
    }

    /// The endpoint of messages to its memory.
    fn port(&self) -> NonNull<dyn Port> {
        NonNull::from(&*self.port as &dyn Port)
    }

    /// Collects the deferred launch.
    fn gather(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.finish(&mut self.gathered);
        }
    }

    /// Submits all pending work to the compute stream.
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.gather();
        self.give_gathered()
    }

    /// Submits the collected commands to the compute stream.
    fn give_gathered(&mut self) -> Result<(), DeviceError> {
        self.gpu.context.bind()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.streams.give(StreamRole::Compute);
        let commands = std::mem::take(&mut self.gathered);
        // SAFETY: all addresses are of this rank's memory, which is freed after its streams are done, or of an arena
        // that is returned after the commands.
        unsafe { self.graphs.play(&commands) }?;
        self.gathered = commands;
        self.gathered.clear();
        Ok(())
    }

    /// Makes later work of the compute stream wait for all work submitted to `streams`.
    fn wait_for(&mut self, streams: &[StreamRole]) -> Result<(), DeviceError> {
        if streams.iter().any(|role| self.streams.is_behind(StreamRole::Compute, *role)) {
            self.flush()?;
            self.streams.order(StreamRole::Compute, streams)?;
        }
        Ok(())
    }

    /// Waits until all submitted work is done.
    fn quiesce(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        self.streams.synchronize()
    }

    /// A tensor of the micro-batch; `own` is the tensor for `InPlace`.
    fn view(&mut self, place: &TensorAddress, own: ViewMut<A>) -> Result<ViewMut<A>, DeviceError> {
        Ok(match place {
            TensorAddress::Nothing => ViewMut::new(0, 0),
            TensorAddress::InPlace => own,
            TensorAddress::Input => self.samples.input(),
            TensorAddress::Arena(range) => {
                let elements = A::SCALAR.dtype().elements_within(range.len() as u64);
                ViewMut::new(self.arena()? + range.start as u64, elements)
            }
        })
    }

    fn spot(&mut self, spot: &Spot) -> Result<Located<A>, DeviceError> {
        match spot {
            Spot::Buffer(buffer) => Ok(Located::Buffer(self.held(*buffer).all())),
            Spot::Tensor(place) => self.view(place, ViewMut::new(0, 0)).map(Located::Tensor),
        }
    }

    /// The content of a view, after all earlier work.
    fn fetch<T>(&mut self, view: View<T>) -> Result<Vec<u8>, DeviceError> {
        self.flush()?;
        let mut content = vec![0; bytes(&view)];
        let stream = self.streams.give(StreamRole::Compute);
        // SAFETY: the view is of this rank's memory, and the host's buffer lives until the stream is done.
        unsafe { stream.download(content.as_mut_ptr(), view.address(), content.len() as u64) }?;
        stream.synchronize()?;
        Ok(content)
    }

    /// Executes commands that do not repeat, since a step's numbers change.
    fn play(&mut self, role: StreamRole, commands: &[Command]) -> Result<(), DeviceError> {
        self.streams.give(role);
        let executor = match (role, &mut self.beside) {
            (StreamRole::Average, Some(beside)) => beside,
            _ => self.graphs.executor_mut(),
        };
        // SAFETY: as in `flush`.
        unsafe { executor.play(commands) }
    }

    /// Registers a copy to the host that is complete when `event` has passed.
    fn register_copy(&mut self, event: Event) -> Result<Arrival, DeviceError> {
        event.record(self.streams.give(StreamRole::Out))?;
        self.left += 1;
        self.leaving.push((self.left, event));
        Ok(Arrival(self.left))
    }

    fn event(&mut self) -> Result<Event, DeviceError> {
        self.spare.pop().map_or_else(|| Event::new(&self.gpu.context, false), Ok)
    }

    /// The mask of weight decay; `always`: all parameters.
    fn mask(&self, always: bool) -> View<u32> {
        let memory = if always { &self.masks.all } else { &self.masks.own };
        View::new(memory.address(), Dtype::U32.elements_within(memory.bytes()))
    }
}

impl<A> Drop for Rank<A> {
    fn drop(&mut self) {
        // A sum with a missing member would block its stream for ever.
        self.groups.abandon();
        // Nothing is freed that a stream still uses. A lost device uses nothing any more.
        let _ = self.gpu.context.bind().and_then(|()| self.streams.synchronize());
        self.in_flight.iter_mut().filter_map(|of| of.arena.take()).for_each(|lent| self.gpu.take_back(lent));
    }
}
