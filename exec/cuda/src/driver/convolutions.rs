//! Runs convolutions by cuDNN, with a plan for each, made once.

use std::sync::Arc;

use cudarc::cudnn::sys as dnn;
use lockstep_exec::device::DeviceError;
use lockstep_models::Precision;

use super::algorithms::{Pass, Tensors};
use super::bias;
use super::calls::call;
use super::context::Context;
use super::descriptors::{Rectifier, TensorShape};
use super::plans::{Plans, WorkspaceLimits};
use super::staging::{self, Staged};
use super::status::refused;
use super::stream::GpuStream;
use crate::command::{Convolution, ConvolutionPass, Convolve};
use crate::kernel::KernelCall;

/// cuDNN on a stream, with the plans made so far.
#[derive(Debug)]
pub(super) struct Convolutions {
    handle: Handle,
    rectifier: Rectifier,
    plans: Plans<(Convolution, ConvolutionPass), Plan>,
}

#[derive(Debug)]
struct Plan {
    pass: Pass,
    bias: TensorShape,
    /// Whether cuDNN fuses bias and ReLU into the pass, as far as is known: it reports that only when asked to do it.
    /// It is not asked in bf16, where it takes biases in bf16 alone.
    fuses: bool,
}

#[derive(Debug)]
struct Handle {
    raw: dnn::cudnnHandle_t,
    context: Arc<Context>,
}

// SAFETY: cuDNN's handles may move between threads, as long as one uses them at a time; a user borrows it exclusively.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: it has no other owner. What is not freed ends with the process.
        let _ = self.context.within(|| unsafe { call!(dnn::cudnnDestroy(raw)) }.done());
    }
}

impl Convolutions {
    /// cuDNN for the stream's context, which must be current.
    pub(super) fn new(stream: &GpuStream) -> Result<Convolutions, DeviceError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { call!(dnn::cudnnCreate(&mut raw)) }.done()?;
        let handle = Handle { raw, context: Arc::clone(stream.context()) };
        // SAFETY: both are alive, and the owner of this value holds the stream.
        unsafe { call!(dnn::cudnnSetStream(raw, stream.raw().cast())) }.done()?;
        Ok(Convolutions { handle, rectifier: Rectifier::new()?, plans: Plans::new() })
    }

    /// Makes the plan of a pass unless it exists, and returns the bytes of workspace that it needs.
    pub(super) fn prepare(&mut self, of: &Convolve, limits: WorkspaceLimits) -> Result<u64, DeviceError> {
        check(of)?;
        let plan = self.plans.prepare((of.of, of.pass), || {
            let pass = Pass::new(self.handle.raw, &of.of, of.pass, limits)?;
            let channels = [1, of.of.output.channels, 1, 1];
            let bias = TensorShape::new(dnn::cudnnDataType_t::CUDNN_DATA_FLOAT, false, channels)?;
            Ok(Plan { pass, bias, fuses: true })
        })?;
        Ok(staging::behind(plan.pass.workspace as u64) + staging::bytes(of))
    }

    /// Runs a prepared pass, with a workspace of at least the bytes that it needs; returns what is left to do.
    ///
    /// # Safety
    /// The addresses are those of tensors of the convolution's sizes.
    pub(super) unsafe fn play(
        &mut self,
        of: &Convolve,
        stream: &GpuStream,
        workspace: u64,
    ) -> Result<Option<KernelCall>, DeviceError> {
        let plan = self.plans.get((of.of, of.pass))?;
        let staged = Staged::new(of, workspace + staging::behind(plan.pass.workspace as u64));
        // SAFETY: as the caller promises; the workspace has space for the copies.
        unsafe {
            staged.begin(stream)?;
            let added = plan.play(&staged.of, self.handle.raw, &self.rectifier, workspace)?;
            staged.end(stream)?;
            Ok(if added { None } else { bias::of_channels(of) })
        }
    }
}

impl Plan {
    /// Submits the pass to cuDNN, and returns whether it includes the bias.
    ///
    /// # Safety
    /// As [`Convolutions::play`].
    unsafe fn play(
        &mut self,
        of: &Convolve,
        handle: dnn::cudnnHandle_t,
        rectifier: &Rectifier,
        workspace: u64,
    ) -> Result<bool, DeviceError> {
        let [left, right, result, workspace] = [of.left, of.right, of.result, workspace].map(|at| at as *mut _);
        let tensors = Tensors { left, right, result, workspace };
        let asked = of.rectified && self.fuses && of.of.precision != Precision::Bf16;
        if let Some(bias) = of.bias.filter(|bias| asked && bias % staging::ALIGNMENT == 0) {
            // SAFETY: as the caller promises.
            let answer = unsafe {
                self.pass.play_biased(handle, &tensors, (&self.bias, bias as *mut _), rectifier.raw().cast())
            };
            // cuDNN reports so that it has done nothing, because it does not support this.
            self.fuses = !answer.code().is_some_and(|code| (2000..4000).contains(&code));
            if self.fuses {
                return answer.done().map(|()| true);
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.pass.play(handle, &tensors, of.accumulate) }.map(|()| false)
    }
}

/// Checks a command, except for its sizes, which cuDNN checks.
fn check(of: &Convolve) -> Result<(), DeviceError> {
    let plain = of.pass == ConvolutionPass::Forward && !of.accumulate;
    let reason = match of {
        Convolve { bias: Some(_), .. } if !plain => "a bias is for a forward pass that does not accumulate",
        Convolve { bias: None, rectified: true, .. } => "only what has a bias is rectified",
        _ => return Ok(()),
    };
    Err(refused(&format!("a convolution ({:?})", of.pass), reason.to_owned()))
}
