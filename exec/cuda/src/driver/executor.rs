//! Executes commands on a stream: the project's kernels, cuDNN's convolutions, cuBLASLt's products.

use std::sync::Arc;

use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::convolutions::Convolutions;
use super::memory::{Fill, GpuMemory};
use super::modules::Modules;
use super::plans::WorkspaceLimits;
use super::products::Products;
use super::status::refused;
use super::stream::GpuStream;
use crate::command::Command;

/// Executes commands on one stream. Only [`Executor::choose`] selects algorithms, and only [`Executor::take`] allocates
/// memory.
#[derive(Debug)]
pub struct Executor {
    convolutions: Convolutions,
    products: Products,
    workspace: Option<GpuMemory>,
    moves: u64,
    limits: WorkspaceLimits,
    modules: Arc<Modules>,
    stream: Arc<GpuStream>,
}

impl Executor {
    /// An executor for a stream of the device that the modules are on.
    ///
    /// # Errors
    /// cuDNN or cuBLASLt does not start, or the modules belong to another device.
    pub fn new(
        stream: &Arc<GpuStream>,
        modules: &Arc<Modules>,
        limits: WorkspaceLimits,
    ) -> Result<Executor, DeviceError> {
        let context = stream.context();
        if context.raw() != modules.context().raw() {
            return Err(refused("a stream", "its kernels are loaded on another device".to_owned()));
        }
        let (convolutions, products) = context.within(|| Ok((Convolutions::new(stream)?, Products::new()?)))?;
        let (modules, stream) = (Arc::clone(modules), Arc::clone(stream));
        Ok(Executor { convolutions, products, workspace: None, moves: 0, limits, modules, stream })
    }

    /// Its stream.
    pub fn stream(&self) -> &Arc<GpuStream> {
        &self.stream
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        self.stream.context()
    }

    /// Bytes of its workspace, which all its commands share.
    pub fn workspace_bytes(&self) -> u64 {
        self.workspace.as_ref().map_or(0, GpuMemory::bytes)
    }

    /// Selects the algorithms of `commands`, and returns the largest workspace in bytes that one of them needs;
    /// allocates nothing. Earlier selections are kept. The thread must be bound to the context.
    ///
    /// # Errors
    /// A library has no algorithm for a command.
    pub fn choose(&mut self, commands: &[Command]) -> Result<u64, DeviceError> {
        let mut bytes = 0;
        for command in commands {
            let wanted = match command {
                Command::Launch(_) | Command::Zero { .. } => 0,
                Command::Convolve(of) => self.convolutions.prepare(of, self.limits)?,
                Command::Multiply(of) => self.products.prepare(of, self.limits)?,
            };
            bytes = bytes.max(wanted);
        }
        Ok(bytes)
    }

    /// Allocates a workspace of at least `bytes` bytes. The thread must be bound to the context.
    ///
    /// # Errors
    /// Too little memory.
    pub fn take(&mut self, bytes: u64) -> Result<(), DeviceError> {
        if bytes > self.workspace_bytes() {
            // The old one is freed first, since both may not fit; work that uses it must end before.
            self.stream.synchronize()?;
            self.workspace = None;
            let what = "the workspace of convolutions and products";
            self.workspace = Some(GpuMemory::new(self.context(), what, bytes, Fill::Poison)?);
            self.moves += 1;
        }
        Ok(())
    }

    /// Selects and allocates, so that [`Executor::play`] does neither.
    ///
    /// # Errors
    /// As [`Executor::choose`] and [`Executor::take`].
    pub fn prepare(&mut self, commands: &[Command]) -> Result<(), DeviceError> {
        let bytes = self.choose(commands)?;
        self.take(bytes)
    }

    /// Submits all of `commands` to the stream, preparing them if needed. The thread must be bound to the context.
    ///
    /// # Errors
    /// A library refuses a command, which may be reported only by a later call; the commands before it have been
    /// submitted.
    ///
    /// # Safety
    /// Addresses are the device's, with as many bytes as the commands access, until the stream is done.
    pub unsafe fn play(&mut self, commands: &[Command]) -> Result<(), DeviceError> {
        self.prepare(commands)?;
        let workspace = self.workspace.as_ref().map_or(0, GpuMemory::address);
        for command in commands {
            let mut rest = None;
            // SAFETY: as the caller promises.
            unsafe {
                match command {
                    Command::Launch(call) => self.modules.launch(&self.stream, call)?,
                    Command::Zero { address, bytes } => self.stream.fill(*address, 0, *bytes)?,
                    Command::Convolve(of) => rest = self.convolutions.play(of, &self.stream, workspace)?,
                    Command::Multiply(of) => rest = self.products.play(of, &self.stream, workspace)?,
                }
                if let Some(call) = rest {
                    self.modules.launch(&self.stream, &call)?;
                }
            }
        }
        Ok(())
    }

    /// How often the workspace has moved: whatever holds its address is invalid after that.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }
}
