//! Defines the tasks of a program: what they do, on which memory, on which stream, and what they wait for.

mod arithmetic;
mod bound;
mod buffer;
mod coefficient;
mod copy;
mod formula;
mod squares;
mod step_numbers;
mod turns;

use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective, Time};

use crate::{AxisSet, ByCoordinate, Phase, StageOrder};
pub use arithmetic::Arithmetic;
pub use bound::{BoundBuffer, BoundFormula, BoundTerm};
pub use buffer::{Buffer, Declared, Start};
pub use coefficient::{Coefficient, OfStep};
pub use copy::{Area, Copy, Rows};
pub use formula::{Elementwise, Formula, Operand, Term};
pub use squares::Squares;
pub use step_numbers::{MomentStep, SgdStep, StepNumbers};
pub use turns::Turns;

/// Index of a task in its role.
pub type TaskId = usize;

/// A queue of tasks that run in order on their rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Kernels, loads and updates.
    Compute,
    /// Exchanges; several may be in flight, each starts when what it is `after` is done.
    Exchange,
    /// Receives from other stages of a pipeline, posted ahead of the sends, and models that the first learner of a device
    /// delivers to the others: exchanges in their own order.
    Receive,
    /// Reads samples from storage, ahead of the compute stream; one batch after the other.
    Read,
    /// Decodes samples by threads of the host, ahead of the compute stream; one batch after the other.
    Decode,
    /// Copies batches from the host's memory to the device, ahead of the compute stream; one batch after the other.
    Upload,
    /// Updates of shared state beside the compute stream, as soon as what they are `after` is done: on a GPU a kernel
    /// beside others, on a CPU between two compute tasks.
    Synchronisation,
}

impl Stream {
    /// The streams of input tasks, in the order in which a batch passes them.
    pub const INPUT: [Stream; 3] = [Stream::Read, Stream::Decode, Stream::Upload];

    /// Its position among them; `None` for streams of the rank itself.
    pub fn input(self) -> Option<usize> {
        Stream::INPUT.iter().position(|stream| *stream == self)
    }
}

/// What a task waits for: the completion of `task` on the same rank, `lag` iterations ago, or `lag` micro-batches ago
/// where both are in one `Repeat` or one `Schedule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct After {
    /// The task waited for; if it is in a `Repeat` or `Schedule` that does not hold the waiting task, its last run.
    pub task: TaskId,
    /// 0: the run of this iteration (micro-batch), 1: that before it (satisfied in the first).
    pub lag: u32,
}

/// A collective among a group, over a range of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// What it computes.
    pub collective: Collective,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// The axes over which its members extend: each rank exchanges with those that differ from it on these axes alone.
    pub axes: AxisSet,
    /// The coordinates of its only two members on the only one of `axes`, the lower first; `None`: all are members.
    pub between: Option<(u32, u32)>,
    /// Those of `axes` along which members count as one node of a hierarchical algorithm; none: the machines
    /// are its nodes.
    pub node_axes: AxisSet,
    /// What is exchanged.
    pub buffer: Buffer,
    /// Elements of the buffer, in the first run.
    pub range: Range<u64>,
    /// The axes along which the range is sharded, so that each group exchanges its members' part of it
    /// ([`Program::part_of`](crate::Program::part_of)); none: all of it.
    pub shared: AxisSet,
    /// The ranges of other runs.
    pub turns: Turns,
    /// Elements per lane; 0: the algorithm's own choice.
    pub chunk: u64,
    /// Lanes in flight; 0: the algorithm's own choice.
    pub window: u32,
    /// Whether it is rounded up to equal parts, by padding after its range in memory that no task reads.
    pub padded: bool,
}

impl Exchange {
    /// A collective among all ranks along `axes`, over a range of a buffer, the same in every run; lanes are the
    /// algorithm's choice.
    pub fn new(
        collective: Collective,
        algorithm: Algorithm,
        axes: AxisSet,
        buffer: Buffer,
        range: Range<u64>,
    ) -> Exchange {
        Exchange {
            collective,
            algorithm,
            axes,
            between: None,
            node_axes: AxisSet::default(),
            buffer,
            range,
            shared: AxisSet::default(),
            turns: Turns::ONE,
            chunk: 0,
            window: 0,
            padded: false,
        }
    }
}

/// The direction in which samples in ranks' memory move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleMove {
    /// From the rank's part to messages, by destination.
    Pack,
    /// From messages to the rank's new part, each sample to its position.
    Unpack,
}

/// What a task is.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Takes the batch that the driver names from a pool of samples.
    Load {
        /// Samples taken; 0 where another rank takes them for this one.
        samples: u32,
        /// `None`: the rank's own micro-batch; else the samples of that pass.
        pass: Option<u32>,
        /// `None`: into the input of the first layers; else into this declared buffer.
        into: Option<usize>,
    },
    /// Reads the stored samples of the next batch, from storage or the system's page cache.
    Read {
        /// Samples of the micro-batch.
        samples: u32,
    },
    /// Prepares a batch: decodes, crops, flips and normalises.
    Decode {
        /// Samples of the micro-batch.
        samples: u32,
    },
    /// Copies the batch from the host's memory to the device; a no-op where the device is the host's CPU.
    Upload {
        /// Samples of the micro-batch.
        samples: u32,
    },
    /// Takes the labels of a micro-batch whose samples another stage of a pipeline takes, and its position among all,
    /// which determines dropout's masks.
    Labels {
        /// Samples of the micro-batch.
        samples: u32,
        /// As in `Load`.
        pass: Option<u32>,
    },
    /// Runs a chain of layers.
    Compute {
        /// Index into [`Program::chains`](crate::Program::chains).
        chain: usize,
        /// Which pass or passes.
        phase: Phase,
        /// Samples in the (micro-)batch; 0 where other ranks have some and this one does not.
        samples: u32,
        /// `None`: the rank's own micro-batch; else which of the [`Sharding`](crate::Sharding)'s passes its
        /// samples are from.
        pass: Option<u32>,
    },
    /// Arithmetic on a range of buffers, element by element.
    Elementwise(Elementwise),
    /// A part of the sum of the squares of all gradients.
    Squares(Squares),
    /// Runs the next `body` tasks `count` times.
    Repeat {
        /// Repetitions.
        count: u32,
        /// How many of the following tasks form the body.
        body: usize,
        /// Whether a batch is claimed from the driver before each repetition.
        claimed: bool,
    },
    /// Runs the bodies after it, passes of micro-batches through chunks of layers, in the order of a pipeline's stage.
    Schedule(Arc<StageOrder>),
    /// A collective with other ranks.
    Exchange(Exchange),
    /// Copies areas inside the rank's memory: each rank has areas of its own, by its coordinate.
    Copy(ByCoordinate<Copy>),
    /// Moves samples between the memory of a rank that keeps a part of them and messages (Kumar et al. 2018 §4.1).
    Samples {
        /// In which direction.
        to: SampleMove,
        /// Bytes of the samples that are moved.
        bytes: u64,
    },
    /// Writes the state of the training to the host's storage.
    Save {
        /// Bytes written.
        bytes: u64,
    },
    /// The rank's host is busy for a stated time, and its device idle: work of a framework around kernels and messages.
    Host {
        /// The number of consecutive calls.
        calls: u32,
        /// The time of each.
        each: Time,
    },
}

impl Op {
    /// The kind under which reports sum tasks.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Load { .. } | Op::Labels { .. } => "load",
            Op::Read { .. } => "read",
            Op::Decode { .. } => "decode",
            Op::Upload { .. } => "upload",
            Op::Compute { phase, .. } => phase.name(),
            Op::Elementwise(of) => of.formula.name(),
            Op::Squares(_) => "squares",
            Op::Repeat { .. } => "repeat",
            Op::Schedule(_) => "schedule",
            Op::Exchange(_) => "exchange",
            Op::Copy(_) => "copy",
            Op::Samples { .. } => "samples",
            Op::Save { .. } => "save",
            Op::Host { .. } => "host",
        }
    }

    /// The stream that it queues on, if it is an input task.
    pub fn input(&self) -> Option<Stream> {
        match self {
            Op::Read { .. } => Some(Stream::Read),
            Op::Decode { .. } => Some(Stream::Decode),
            Op::Upload { .. } => Some(Stream::Upload),
            _ => None,
        }
    }

    /// The optimizer's step on a range of the parameters, if it is one.
    pub fn update(&self) -> Option<&Elementwise> {
        match self {
            Op::Elementwise(of) if of.formula.is_update() => Some(of),
            _ => None,
        }
    }

    /// Whether it is arithmetic that reads gradients.
    pub fn uses_gradients(&self) -> bool {
        matches!(self, Op::Elementwise(of) if of.formula.reads(Buffer::Gradients))
    }

    /// Whether the first repetition of an iteration leaves it out.
    pub fn skips_first(&self) -> bool {
        matches!(self, Op::Elementwise(of) if of.skips_first)
    }
}

/// One task of a role.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Unique in its role, the same in every timeline: `forward conv1+relu1+pool1`.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// The stream on which it queues.
    pub stream: Stream,
    /// What it waits for beyond its stream's order.
    pub after: Vec<After>,
}
