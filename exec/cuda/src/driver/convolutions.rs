//! Convolutions by cuDNN: a plan for each that a stream is given, made once.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys as dnn;
use lockstep_exec::device::DeviceError;

use super::algorithms::{Algorithm, Shapes};
use super::bias;
use super::calls::{Answer, call};
use super::context::Context;
use super::descriptors::{Rectifier, TensorShape};
use super::executor::Limits;
use super::staging::{self, Staged};
use super::stream::Stream;
use crate::command::{Convolution, ConvolutionPass, Convolve};
use crate::table::Call;
use lockstep_models::Precision;

/// cuDNN on a stream, with the plans made so far.
#[derive(Debug)]
pub(super) struct Convolutions {
    handle: Handle,
    rectifier: Rectifier,
    plans: HashMap<(Convolution, ConvolutionPass), Plan>,
}

#[derive(Debug)]
struct Plan {
    shapes: Shapes,
    bias: TensorShape,
    algorithm: Algorithm,
    workspace: usize,
    /// Whether cuDNN adds biases and rectifies in the same pass, as far as is known: it says so only when asked to do it, and is
    /// not asked in bf16, where it takes biases in bf16 alone.
    fuses: bool,
}

#[derive(Debug)]
struct Handle {
    raw: dnn::cudnnHandle_t,
    context: Arc<Context>,
}

// SAFETY: cuDNN's handles may go from thread to thread, as long as one uses them at a time: whoever has it borrows it for that.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: nobody else has it. What is not freed ends with the process.
        let _ = self.context.within(|| unsafe { call!(dnn::cudnnDestroy(raw)) }.done());
    }
}

impl Convolutions {
    /// cuDNN for the stream's context, which must be current.
    pub(super) fn new(stream: &Stream) -> Result<Convolutions, DeviceError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { call!(dnn::cudnnCreate(&mut raw)) }.done()?;
        let handle = Handle { raw, context: Arc::clone(stream.context()) };
        // SAFETY: both are alive, and whoever has this has the stream.
        unsafe { call!(dnn::cudnnSetStream(raw, stream.raw().cast())) }.done()?;
        Ok(Convolutions { handle, rectifier: Rectifier::new()?, plans: HashMap::new() })
    }

    /// Makes the plan of a pass, if there is none yet, and says how many bytes of workspace it wants.
    pub(super) fn prepare(&mut self, of: &Convolve, limits: Limits) -> Result<u64, DeviceError> {
        check(of)?;
        let copies = staging::bytes(of);
        if let Some(plan) = self.plans.get(&(of.of, of.pass)) {
            return Ok(staging::behind(plan.workspace as u64) + copies);
        }
        let shapes = Shapes::new(&of.of)?;
        let (algorithm, workspace) = shapes.choose(self.handle.raw, &of.of, of.pass, limits)?;
        let channels = [1, of.of.output.channels, 1, 1];
        let bias = TensorShape::new(dnn::cudnnDataType_t::CUDNN_DATA_FLOAT, false, channels)?;
        self.plans.insert((of.of, of.pass), Plan { shapes, bias, algorithm, workspace, fuses: true });
        Ok(staging::behind(workspace as u64) + copies)
    }

    /// Plays a pass that was prepared, with a workspace of at least as many bytes as that said; what is left to do is given back.
    ///
    /// # Safety
    /// The addresses are those of tensors with the convolution's sizes.
    pub(super) unsafe fn play(
        &mut self,
        of: &Convolve,
        stream: &Stream,
        workspace: u64,
    ) -> Result<Option<Call>, DeviceError> {
        let (handle, rectifier) = (self.handle.raw, self.rectifier.raw());
        let Some(plan) = self.plans.get_mut(&(of.of, of.pass)) else {
            let reason = "nobody prepared it".to_owned();
            return Err(DeviceError::Refused { call: format!("{:?}", of.pass), reason });
        };
        let staged = Staged::new(of, workspace + staging::behind(plan.workspace as u64));
        // SAFETY: as the caller says; the workspace has room for the copies.
        unsafe {
            staged.begin(stream)?;
            let added = plan.play(&staged.of, handle, rectifier, workspace)?;
            staged.end(stream)?;
            Ok(if added { None } else { bias::of_channels(of) })
        }
    }
}

impl Plan {
    /// Gives the pass to cuDNN, and says whether the bias is part of it.
    ///
    /// # Safety
    /// As [`Convolutions::play`].
    unsafe fn play(
        &mut self,
        of: &Convolve,
        handle: dnn::cudnnHandle_t,
        rectifier: dnn::cudnnActivationDescriptor_t,
        workspace: u64,
    ) -> Result<bool, DeviceError> {
        let Shapes { input, filters, output, window } = &self.shapes;
        let (x, w, y, window) = (input.raw(), filters.raw(), output.raw(), window.raw());
        let (left, right, result) = (at(of.left).cast_const(), at(of.right).cast_const(), at(of.result));
        let (space, bytes) = (at(workspace), self.workspace);
        let (one, zero) = ((&raw const ONE).cast(), (&raw const ZERO).cast());
        let kept = if of.accumulate { one } else { zero };
        let asked = of.rectified && self.fuses && of.of.precision != Precision::Bf16;
        let fused = of.bias.filter(|bias| asked && bias % staging::ALIGNMENT == 0);
        if let (Algorithm::Forward(algorithm), Some(bias)) = (self.algorithm, fused) {
            let bias = at(bias).cast_const();
            // SAFETY: the descriptors are alive and describe what the caller says is there; factors are the host's.
            let answer = unsafe {
                call!(dnn::cudnnConvolutionBiasActivationForward(
                    handle,
                    one,
                    x,
                    left,
                    w,
                    right,
                    window,
                    algorithm,
                    space,
                    bytes,
                    zero,
                    y,
                    result,
                    self.bias.raw(),
                    bias,
                    rectifier,
                    y,
                    result,
                ))
            };
            if !declines(&answer) {
                return answer.done().map(|()| true);
            }
            self.fuses = false;
        }
        // SAFETY: as above.
        let answer = unsafe {
            match self.algorithm {
                Algorithm::Forward(algorithm) => call!(dnn::cudnnConvolutionForward(
                    handle, one, x, left, w, right, window, algorithm, space, bytes, kept, y, result,
                )),
                Algorithm::BackwardData(algorithm) => call!(dnn::cudnnConvolutionBackwardData(
                    handle, one, w, right, y, left, window, algorithm, space, bytes, kept, x, result,
                )),
                Algorithm::BackwardWeight(algorithm) => call!(dnn::cudnnConvolutionBackwardFilter(
                    handle, one, x, left, y, right, window, algorithm, space, bytes, kept, w, result,
                )),
            }
        };
        answer.done().map(|()| false)
    }
}

static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;

fn at(address: u64) -> *mut c_void {
    address as *mut c_void
}

/// Whether cuDNN has done nothing because it does not do this.
fn declines(answer: &Answer<dnn::cudnnStatus_t>) -> bool {
    answer.code().is_some_and(|code| (2000..4000).contains(&code))
}

/// What a command must be beside its sizes, which cuDNN checks.
fn check(of: &Convolve) -> Result<(), DeviceError> {
    let plain = of.pass == ConvolutionPass::Forward && !of.accumulate;
    let reason = match of {
        Convolve { bias: Some(_), .. } if !plain => "a bias is for a forward pass that does not accumulate",
        Convolve { bias: None, rectified: true, .. } => "only what has a bias is rectified",
        _ => return Ok(()),
    };
    Err(DeviceError::Refused { call: format!("a convolution ({:?})", of.pass), reason: reason.to_owned() })
}
