//! Captures repeating lists of commands once as CUDA graphs, and launches these from then on.
//!
//! A list is executed command by command when it is first seen, captured when it is seen again, and launched from then
//! on: a training step costs one launch for each of its lists. A command whose numbers change is executed by itself,
//! and the commands before and after it form lists of their own. Lists are found by a hash and launched only if they
//! are equal, including addresses and numbers.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use lockstep_exec::device::DeviceError;

use super::executor::Executor;
use super::prints::{Forms, Print, evict_least_recent};
use super::status::{Status, refused};
use crate::command::Command;

/// The most lists kept per micro-batch in flight: more than a step has pieces between its exchanges.
const KEPT: usize = 256;
/// Fewest commands of a list that are worth a graph.
const LEAST: usize = 2;

/// Executes lists on an executor's stream, as graphs where they repeat.
#[derive(Debug)]
pub struct Graphs {
    forms: Forms,
    lists: Vec<List>,
    counts: Counts,
    clock: u64,
    kept: usize,
    on: bool,
    executor: Executor,
}

/// How often lists, or pieces between changing commands, were executed in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Command by command.
    pub eager: u64,
    /// Captured.
    pub caught: u64,
    /// As a graph, including the first time after capture.
    pub launched: u64,
    /// Lists that a library would not let be captured.
    pub refused: u64,
}

#[derive(Debug)]
struct List {
    print: u64,
    state: State,
    /// When it was last used.
    used: u64,
}

#[derive(Debug)]
enum State {
    /// Once.
    Seen,
    /// Captured, with the number of moves of the executor's workspace by then.
    Caught { commands: Vec<Command>, graph: Graph, moves: u64 },
    /// A library does not let it be captured.
    Refused,
}

struct Graph(CudaGraph);

// SAFETY: it is only passed to the driver, whose calls may come from any thread, one at a time.
unsafe impl Send for Graph {}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({:?})", self.0.cu_graph_exec())
    }
}

impl Graphs {
    /// For an executor of lists from `in_flight` micro-batches in flight; without `on` every list is executed command
    /// by command.
    pub fn new(executor: Executor, on: bool, in_flight: usize) -> Graphs {
        let (forms, lists, counts) = (Forms::default(), Vec::new(), Counts::default());
        Graphs { forms, lists, counts, clock: 0, kept: KEPT * in_flight, on, executor }
    }

    /// The executor.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The executor, to prepare lists or to execute what does not repeat.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// How lists have been executed so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Submits all of `commands` to the stream. The thread must be bound to the context.
    ///
    /// # Errors
    /// As [`Executor::play`].
    ///
    /// # Safety
    /// As [`Executor::play`].
    pub unsafe fn play(&mut self, commands: &[Command]) -> Result<(), DeviceError> {
        if !self.on {
            // SAFETY: as the caller promises.
            return unsafe { self.eagerly(commands) };
        }
        self.clock += 1;
        let prints: Vec<Print> = commands.iter().map(Print::of).collect();
        for piece in self.forms.pieces(&prints, self.clock, self.kept) {
            let commands = &commands[piece.range];
            match piece.print.filter(|_| commands.len() >= LEAST) {
                // SAFETY: as the caller promises.
                Some(print) => unsafe { self.steady(commands, print) }?,
                // SAFETY: as the caller promises.
                None => unsafe { self.eagerly(commands) }?,
            }
        }
        Ok(())
    }

    /// Executes a list that may repeat.
    ///
    /// # Safety
    /// As [`Executor::play`].
    unsafe fn steady(&mut self, commands: &[Command], print: u64) -> Result<(), DeviceError> {
        let Some(at) = self.lists.iter().position(|list| list.print == print) else {
            evict_least_recent(&mut self.lists, self.kept, |list| list.used);
            self.lists.push(List { print, state: State::Seen, used: self.clock });
            // SAFETY: as the caller promises.
            return unsafe { self.eagerly(commands) };
        };
        self.lists[at].used = self.clock;
        let now = self.executor.moves();
        let stale = match &self.lists[at].state {
            State::Seen => true,
            State::Caught { moves, .. } => *moves != now,
            State::Refused => false,
        };
        if stale {
            // SAFETY: as the caller promises.
            self.lists[at].state = unsafe { self.catch(commands) }?;
        }
        match &self.lists[at].state {
            State::Caught { commands: caught, graph, .. } if caught == commands => {
                graph.0.launch().of("cuGraphLaunch")?;
                self.counts.launched += 1;
                Ok(())
            }
            // SAFETY: as the caller promises.
            _ => unsafe { self.eagerly(commands) },
        }
    }

    /// # Safety
    /// As [`Executor::play`].
    unsafe fn eagerly(&mut self, commands: &[Command]) -> Result<(), DeviceError> {
        self.counts.eager += 1;
        // SAFETY: as the caller promises.
        unsafe { self.executor.play(commands) }
    }

    /// Captures a list without executing it.
    ///
    /// # Errors
    /// The device is lost. On any other error the list is executed command by command, which reports the error again if
    /// it matters.
    ///
    /// # Safety
    /// As [`Executor::play`].
    unsafe fn catch(&mut self, commands: &[Command]) -> Result<State, DeviceError> {
        // Memory cannot be allocated during capture.
        self.executor.prepare(commands)?;
        // SAFETY: as the caller promises.
        match unsafe { self.instance(commands) } {
            Ok(graph) => {
                self.counts.caught += 1;
                Ok(State::Caught { commands: commands.to_vec(), graph, moves: self.executor.moves() })
            }
            Err(lost @ DeviceError::Lost { .. }) => Err(lost),
            Err(_) => {
                self.counts.refused += 1;
                Ok(State::Refused)
            }
        }
    }

    /// # Safety
    /// As [`Executor::play`].
    unsafe fn instance(&mut self, commands: &[Command]) -> Result<Graph, DeviceError> {
        let stream = Arc::clone(self.executor.stream().cuda());
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).of("cuStreamBeginCapture")?;
        // SAFETY: as the caller promises.
        let played = unsafe { self.executor.play(commands) };
        let made = stream.end_capture(CUgraphInstantiate_flags(0)).of("a graph's capture");
        played?;
        made?.map(Graph).ok_or_else(|| refused("a graph's capture", "it is empty".to_owned()))
    }
}
