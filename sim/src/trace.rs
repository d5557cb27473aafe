//! Traces a run for derivatives: which moment each moment follows, and by what.
//!
//! The engine reports it to every solver. One that records it (`derivative.rs`) computes derivatives; for the others it
//! costs nothing.

use lockstep_models::Program;
use lockstep_topology::InputError;
use lockstep_topology::cluster::{DeviceId, LinkId};
use lockstep_topology::nccl::Wire;

use crate::costs::Pair;
use crate::orbits::Orbits;
use crate::platform::Platform;

/// A moment whose derivatives are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The present moment.
    Now,
    /// The next event of a message.
    Message(u32),
    /// When the receiver of a message learns of it.
    Announced(u32),
    /// When a message wakes the receiver's thread.
    Seen(u32),
    /// When a port is free.
    Port(u32),
    /// When the bytes in a port's transmit queue have left.
    Sent(u32),
    /// When the bytes of the message that enters such a queue begin to leave it.
    Begins,
    /// When a unit is done.
    Done(u32),
    /// When a unit is woken.
    Wake(u32),
    /// When a unit had new work.
    Touched(u32),
    /// When a flight with a known total time ends.
    Through(u32),
    /// When a rank has done its last exchange with a known total time.
    Free(u32),
}

/// The time between a moment and the one that it follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Took {
    /// None: they are one moment.
    Nothing,
    /// Multiples of the time that the sender's port takes for a message of a path, and of its latency.
    Path {
        /// The path.
        path: u32,
        /// Times at the port.
        sends: u8,
        /// Latencies.
        latencies: u8,
    },
    /// Bytes on a path that they share with nothing.
    Bytes {
        /// The path.
        path: u32,
        /// How many.
        bytes: f64,
    },
    /// Bytes that leave a transmit queue.
    Queued {
        /// The path.
        path: u32,
        /// How many.
        bytes: f64,
    },
    /// An exchange as a whole.
    Whole {
        /// The exchange.
        group_exchange: u32,
    },
}

impl Took {
    /// One latency.
    pub(crate) const LATENCY: Took = Took::Path { path: 0, sends: 0, latencies: 1 };
    /// One message's time at the sender's port.
    pub(crate) const SEND: Took = Took::Path { path: 0, sends: 1, latencies: 0 };

    /// The same of another path.
    pub(crate) fn on(self, path: u32) -> Took {
        if let Took::Path { sends, latencies, .. } = self { Took::Path { path, sends, latencies } } else { self }
    }
}

/// The activity that starts next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TraceWork {
    /// A task of a list of jobs.
    Job {
        /// The list.
        list: u32,
        /// The task.
        task: u32,
        /// Equal parts of it, of which this is one.
        parts: u32,
    },
    /// Receiving a message.
    Receive {
        /// Its path.
        path: u32,
        /// Its bytes.
        bytes: u64,
        /// Whether it is added to the buffer.
        sums: bool,
    },
    /// Bytes that flow over a path.
    Bytes {
        /// The path.
        path: u32,
    },
}

/// Receives the order of a run's moments. A solver that ignores it costs nothing.
pub trait Trace {
    /// Whether it records.
    const TRACES: bool = false;

    /// Keeps in `slot` the moment that comes after that in `after`.
    #[inline]
    fn keep(&mut self, _slot: Slot, _after: Slot, _took: Took) {}

    /// Reports what starts next.
    #[inline]
    fn about(&mut self, _work: TraceWork) {}

    /// A task of `iteration` ends now.
    #[inline]
    fn ended(&mut self, _iteration: u32) {}

    /// The derivatives of the ends of iterations.
    fn ends(&mut self) -> Option<Vec<Dual>> {
        None
    }

    /// Prices the jobs of a program, if there is one, whose ranks have this number of threads.
    ///
    /// # Errors
    /// Costs that are no numbers.
    fn prepare(&mut self, _program: Option<&Program>, _threads: u32, _orbits: &Orbits) -> Result<(), InputError> {
        Ok(())
    }

    /// Prices the next path from one device to another, which takes these links.
    ///
    /// # Errors
    /// Costs that are no numbers.
    fn path(&mut self, _ends: (DeviceId, DeviceId, Pair, Option<Wire>), _links: &[LinkId]) -> Result<(), InputError> {
        Ok(())
    }

    /// Prices an exchange as a whole.
    ///
    /// # Errors
    /// Errors of `seconds`.
    fn whole(&mut self, _meeting: u32, _seconds: &Seconds<'_>) -> Result<(), InputError> {
        Ok(())
    }
}

/// How long something takes on a platform.
pub(crate) type Seconds<'a> = dyn Fn(&Platform<'_>) -> Result<f64, InputError> + 'a;

/// Parameters that one simulation differentiates by at most.
pub(crate) const LANES: usize = 16;

/// The change of a number per change of each parameter, relative to the parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dual(pub(crate) [f64; LANES]);

impl Dual {
    /// Of a constant.
    pub(crate) const ZERO: Dual = Dual([0.0; LANES]);

    /// Adds `factor` times another one.
    pub(crate) fn add(&mut self, factor: f64, other: &Dual) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own += factor * other;
        }
    }

    /// The same with `factor` times another one.
    pub(crate) fn plus(mut self, factor: f64, other: &Dual) -> Dual {
        self.add(factor, other);
        self
    }

    /// The product with a factor.
    pub(crate) fn times(mut self, factor: f64) -> Dual {
        self.0.iter_mut().for_each(|own| *own *= factor);
        self
    }

    /// The derivative by the parameter of this number.
    pub(crate) fn by(&self, parameter: usize) -> f64 {
        self.0[parameter]
    }
}

impl Default for Dual {
    fn default() -> Dual {
        Dual::ZERO
    }
}
