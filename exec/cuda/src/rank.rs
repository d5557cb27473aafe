//! A GPU as a rank's device: its buffers, the arenas of its micro-batches, its kernels and its streams.
//!
//! | stream | what it does | what it waits for |
//! |---|---|---|
//! | compute | passes, steps, copies between tensors; labels | samples and exchanged parameters; a correction also for the average model |
//! | out | ranges of buffers to page-locked host memory, where messages read them | all that was told before |
//! | in | what exchanges have left there | nothing: the host has seen that it is there |
//! | average | the average model's and reference models' steps | what exchanges have left; the last correction |
//! | sum | what a group adds up by NCCL | all that was told before; the host sees when it is there |
//! | samples | the next micro-batch, while this one is computed on | passes on the micro-batch that lay there |
//!
//! Passes are gathered as commands until somebody wants to know or something else must come in between; what is gathered goes
//! to the device as a whole, as a CUDA graph where it has gone before.

mod build;
mod calls;
mod chains;
mod clock;
mod compute;
mod devices;
mod direct;
mod due;
mod gpus;
mod groups;
mod held;
mod in_flight;
mod lanes;
mod moves;
mod needs;
mod numbers;
mod port;
mod samples;
mod staging;
mod storage;
mod sums;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use lockstep_exec::device::{Arrival, DeviceError, Place, Spot, Values};
use lockstep_exec::transport::Port;
use lockstep_models::Buffer;
use lockstep_models::memory::BufferPlaces;

use self::due::{Due, bytes};
use self::gpus::Gpu;
use self::groups::Groups;
use self::held::{ELEMENT, Held};
use self::in_flight::InFlight;
use self::lanes::{Lane, Lanes};
use self::samples::Samples;
use super::driver::{DeviceMemory, Event, Executor, Graphs};
use super::layers::{CrossEntropy, Kernel, Pending};
use super::{Activation, Command, View, ViewMut};
use port::GpuPort;

pub use direct::Direct;
pub use gpus::Gpus;
pub use sums::Sums;

/// What a chain computes.
enum Work<A> {
    Kernel(Kernel<A>),
    /// A loss, and what it counts in the sum of losses.
    Loss(CrossEntropy, f32),
    /// Nothing here: other ranks run it.
    Elsewhere,
}

/// One kernel or loss, and where its parameters are.
struct Chain<A> {
    work: Work<A>,
    parameters: Range<usize>,
    /// Where their gradients lie.
    gradients: Range<usize>,
    statistics: Range<usize>,
    /// Whether nobody reads its output but one other chain.
    feeds_one: bool,
}

/// Which parameters' weights decay, a bit each: those that say so themselves, and all.
struct Masks {
    own: DeviceMemory,
    all: DeviceMemory,
}

/// Where a copy reads or writes.
enum Lying<A> {
    Buffer(ViewMut<f32>),
    Tensor(ViewMut<A>),
}

/// One rank's memory and kernels on a GPU, whose activations are of type `A`.
pub(crate) struct Rank<A> {
    gpu: Arc<Gpu>,
    lanes: Lanes,
    graphs: Graphs,
    /// What plays on the average lane, where there is an average model.
    beside: Option<Executor>,
    /// The micro-batches in flight, and which of them is at hand.
    in_flight: Vec<InFlight<A>>,
    at: usize,
    parameters: Held,
    /// Gathered parameters; empty where the rank has all of them.
    weights: Held,
    /// Whether layers read those.
    gathers: bool,
    gradients: Held,
    /// Where the elements of buffers lie.
    places: BufferPlaces,
    declared: Vec<Held>,
    momentum: Held,
    statistics: Held,
    masks: Masks,
    /// What kernels need in a pass.
    scratch: DeviceMemory,
    samples: Samples,
    /// Elements of a micro-batch's arena.
    elements: usize,
    poison: bool,
    /// Whether what exchanges leave is read by averaging alone, so that passes need not wait for it.
    averages: bool,
    /// Commands that the compute stream will be given.
    gathered: Vec<Command>,
    /// What the last of them leave undone, for the next chain to do with its own.
    pending: Option<Pending<A>>,
    due: Due,
    /// Events of ranges on their way to the host, by number.
    leaving: Vec<(u64, Event)>,
    left: u64,
    spare: Vec<Event>,
    /// What fills that delay the device write.
    ballast: Option<DeviceMemory>,
    /// In which sums are NCCL's.
    groups: Groups,
    /// Where messages reach its memory. It stays where it is, for regions point to it.
    port: Box<GpuPort>,
    /// Where parts of sums arrive from other processes.
    landings: Vec<DeviceMemory>,
}

impl<A: Activation> Rank<A> {
    fn held(&self, buffer: Buffer) -> &Held {
        match buffer {
            Buffer::Parameters => &self.parameters,
            Buffer::Weights => &self.weights,
            Buffer::Gradients => &self.gradients,
            Buffer::Momentum => &self.momentum,
            Buffer::Declared(index) => &self.declared[index],
        }
    }

    fn held_mut(&mut self, buffer: Buffer) -> &mut Held {
        match buffer {
            Buffer::Parameters => &mut self.parameters,
            Buffer::Weights => &mut self.weights,
            Buffer::Gradients => &mut self.gradients,
            Buffer::Momentum => &mut self.momentum,
            Buffer::Declared(index) => &mut self.declared[index],
        }
    }

    fn values(&self, values: Values) -> &Held {
        match values {
            Values::Buffer(buffer) => self.held(buffer),
            Values::Statistics => &self.statistics,
        }
    }

    /// Where messages reach its memory.
    fn port(&self) -> NonNull<dyn Port> {
        NonNull::from(&*self.port as &dyn Port)
    }

    /// Gathers what was left undone.
    fn gather(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.finish(&mut self.gathered);
        }
    }

    /// Gives the compute stream all that it was told to do.
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.gather();
        self.give_gathered()
    }

    /// Gives the compute stream what was gathered.
    fn give_gathered(&mut self) -> Result<(), DeviceError> {
        self.gpu.context.bind()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.lanes.give(Lane::Compute);
        let commands = std::mem::take(&mut self.gathered);
        // SAFETY: all addresses are of this rank's memory, which it frees when its streams are through, or of an arena that is
        // given back behind them.
        unsafe { self.graphs.play(&commands) }?;
        self.gathered = commands;
        self.gathered.clear();
        Ok(())
    }

    /// Lets what the compute stream is given from now on come after all that `lanes` were given.
    fn wait_for(&mut self, lanes: &[Lane]) -> Result<(), DeviceError> {
        if lanes.iter().any(|lane| self.lanes.is_behind(Lane::Compute, *lane)) {
            self.flush()?;
            self.lanes.order(Lane::Compute, lanes)?;
        }
        Ok(())
    }

    /// Waits until all that the device was told is done.
    fn quiesce(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        self.lanes.synchronize()
    }

    /// A tensor of the micro-batch; `own` is what lies in place.
    fn view(&mut self, place: &Place, own: ViewMut<A>) -> Result<ViewMut<A>, DeviceError> {
        Ok(match place {
            Place::Nothing => ViewMut::new(0, 0),
            Place::InPlace => own,
            Place::Input => self.samples.input(),
            Place::Arena(range) => {
                ViewMut::new(self.arena()? + range.start as u64 * A::SCALAR.bytes(), range.len() as u64)
            }
        })
    }

    fn spot(&mut self, spot: &Spot) -> Result<Lying<A>, DeviceError> {
        match spot {
            Spot::Buffer(buffer) => Ok(Lying::Buffer(self.held(*buffer).all())),
            Spot::Tensor(place) => self.view(place, ViewMut::new(0, 0)).map(Lying::Tensor),
        }
    }

    /// What lies at a view, when all before is done.
    fn fetch<T>(&mut self, view: View<T>) -> Result<Vec<u8>, DeviceError> {
        self.flush()?;
        let mut content = vec![0; bytes(&view)];
        let stream = self.lanes.give(Lane::Compute);
        // SAFETY: the view is of this rank's memory, and the host's lives until the stream is through.
        unsafe { stream.download(content.as_mut_ptr(), view.address(), content.len() as u64) }?;
        stream.synchronize()?;
        Ok(content)
    }

    /// Plays what does not repeat: a step's numbers change.
    fn play(&mut self, lane: Lane, commands: &[Command]) -> Result<(), DeviceError> {
        self.lanes.give(lane);
        let executor = match (lane, &mut self.beside) {
            (Lane::Average, Some(beside)) => beside,
            _ => self.graphs.executor_mut(),
        };
        // SAFETY: as in `flush`.
        unsafe { executor.play(commands) }
    }

    /// What passes when all before has been done.
    fn leave_behind(&mut self, event: Event) -> Result<Arrival, DeviceError> {
        event.record(self.lanes.give(Lane::Out))?;
        self.left += 1;
        self.leaving.push((self.left, event));
        Ok(Arrival(self.left))
    }

    fn event(&mut self) -> Result<Event, DeviceError> {
        self.spare.pop().map_or_else(|| Event::new(&self.gpu.context, false), Ok)
    }

    /// Which weights decay; `always`: all.
    fn mask(&self, always: bool) -> View<u32> {
        let memory = if always { &self.masks.all } else { &self.masks.own };
        View::new(memory.address(), memory.bytes() / 4)
    }
}

impl<A> Drop for Rank<A> {
    fn drop(&mut self) {
        // A sum for which a member is missing would hold its stream for ever.
        self.groups.abandon();
        // Nothing is freed that a stream still uses. A lost device uses nothing any more.
        let _ = self.gpu.context.bind().and_then(|()| self.lanes.synchronize());
        self.in_flight.iter_mut().filter_map(|of| of.arena.take()).for_each(|lent| self.gpu.take_back(lent));
    }
}
