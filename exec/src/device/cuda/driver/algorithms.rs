//! Which of cuDNN's algorithms a pass of a convolution takes: the first in cuDNN's own order that is allowed.

use std::mem::MaybeUninit;

use cudarc::cudnn::sys as dnn;

use super::descriptors::{FilterShape, TensorShape, Window};
use super::executor::Limits;
use super::status::Status;
use crate::device::DeviceError;
use crate::device::cuda::command::{Convolution, ConvolutionPass, Precision};

/// Answers that cuDNN is asked for: more than any pass has algorithms.
const ASKED: usize = 16;

/// An algorithm of one of the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Forward(dnn::cudnnConvolutionFwdAlgo_t),
    BackwardData(dnn::cudnnConvolutionBwdDataAlgo_t),
    BackwardWeight(dnn::cudnnConvolutionBwdFilterAlgo_t),
}

/// What cuDNN proposes.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    algorithm: Algorithm,
    math: dnn::cudnnMathType_t,
    /// Whether it gives the same bits each time.
    repeats: bool,
}

/// The descriptors of a convolution's tensors, whatever the pass.
#[derive(Debug)]
pub(super) struct Shapes {
    pub(super) input: TensorShape,
    pub(super) filters: FilterShape,
    pub(super) output: TensorShape,
    pub(super) window: Window,
}

impl Shapes {
    pub(super) fn new(of: &Convolution) -> Result<Shapes, DeviceError> {
        let element = match of.precision {
            Precision::F32 | Precision::Tf32 => dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
            Precision::Bf16 => dnn::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        };
        let (input, output) = (of.input, of.output);
        let each = input.channels / of.groups.max(1);
        Ok(Shapes {
            input: TensorShape::new(element, [of.samples, input.channels, input.height, input.width])?,
            filters: FilterShape::new(element, [output.channels, each, of.kernel.0, of.kernel.1])?,
            output: TensorShape::new(element, [of.samples, output.channels, output.height, output.width])?,
            window: Window::new(of)?,
        })
    }

    /// The algorithm of a pass, and the bytes of its workspace; the window is set to its mathematics.
    ///
    /// # Errors
    /// None is within the limits, or the device is lost.
    pub(super) fn choose(
        &self,
        handle: dnn::cudnnHandle_t,
        of: &Convolution,
        pass: ConvolutionPass,
        limits: Limits,
    ) -> Result<(Algorithm, usize), DeviceError> {
        self.window.set_math(math(of.precision))?;
        let mut all = self.candidates(handle, pass)?;
        all.retain(|candidate| candidate.repeats || !limits.repeatable);
        all.push(last_resort(pass, of.precision));
        for Candidate { algorithm, math, .. } in all {
            // cuDNN names for fp32 a kind of mathematics that rounds factors; what was asked for is kept to.
            let math = if of.precision == Precision::F32 { dnn::cudnnMathType_t::CUDNN_FMA_MATH } else { math };
            self.window.set_math(math)?;
            match self.workspace(handle, algorithm) {
                Ok(bytes) if bytes as u64 <= limits.workspace => return Ok((algorithm, bytes)),
                Ok(_) | Err(DeviceError::Refused { .. }) => {}
                Err(lost) => return Err(lost),
            }
        }
        let reason = format!("no algorithm for {of:?} with a workspace of at most {} bytes", limits.workspace);
        Err(DeviceError::Refused { call: format!("a convolution ({pass:?})"), reason })
    }

    fn candidates(&self, handle: dnn::cudnnHandle_t, pass: ConvolutionPass) -> Result<Vec<Candidate>, DeviceError> {
        let Shapes { input, filters, output, window } = self;
        let (x, w, y, window) = (input.raw(), filters.raw(), output.raw(), window.raw());
        // The three passes answer with three types of the same fields.
        macro_rules! ask {
            ($call:ident($($of:expr),*) -> $answer:ident, $kind:ident) => {{
                let mut answers = [const { MaybeUninit::<dnn::$answer>::uninit() }; ASKED];
                let mut count = 0;
                // SAFETY: the descriptors are alive, and there is room for as many answers as are asked for.
                unsafe {
                    dnn::$call(handle, $($of,)* ASKED as i32, &mut count, answers.as_mut_ptr().cast())
                }
                .of(stringify!($call))?;
                let given = usize::try_from(count).unwrap_or(0).min(ASKED);
                // SAFETY: cuDNN has written as many answers as it says.
                let given = answers[..given].iter().map(|answer| unsafe { answer.assume_init() });
                let fit = given.filter(|answer| answer.status == dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS);
                Ok(fit.map(|answer| Candidate {
                    algorithm: Algorithm::$kind(answer.algo),
                    math: answer.mathType,
                    repeats: answer.determinism == dnn::cudnnDeterminism_t::CUDNN_DETERMINISTIC,
                }).collect())
            }};
        }
        match pass {
            ConvolutionPass::Forward => {
                ask!(cudnnGetConvolutionForwardAlgorithm_v7(x, w, window, y) -> cudnnConvolutionFwdAlgoPerf_t, Forward)
            }
            ConvolutionPass::BackwardData => {
                ask!(cudnnGetConvolutionBackwardDataAlgorithm_v7(w, y, window, x) -> cudnnConvolutionBwdDataAlgoPerf_t, BackwardData)
            }
            ConvolutionPass::BackwardWeight => {
                ask!(cudnnGetConvolutionBackwardFilterAlgorithm_v7(x, y, window, w) -> cudnnConvolutionBwdFilterAlgoPerf_t, BackwardWeight)
            }
        }
    }

    /// The bytes that an algorithm wants, as the window is set.
    fn workspace(&self, handle: dnn::cudnnHandle_t, algorithm: Algorithm) -> Result<usize, DeviceError> {
        let Shapes { input, filters, output, window } = self;
        let (x, w, y, window) = (input.raw(), filters.raw(), output.raw(), window.raw());
        let mut bytes = 0;
        // SAFETY: the descriptors are alive, and the number outlives the call.
        let status = unsafe {
            match algorithm {
                Algorithm::Forward(algorithm) => {
                    dnn::cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, window, y, algorithm, &mut bytes)
                }
                Algorithm::BackwardData(algorithm) => {
                    dnn::cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, window, x, algorithm, &mut bytes)
                }
                Algorithm::BackwardWeight(algorithm) => {
                    dnn::cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, window, w, algorithm, &mut bytes)
                }
            }
        };
        status.of("cudnnGetConvolutionWorkspaceSize").map(|()| bytes)
    }
}

/// What cuDNN may do with the factors: as its documentation has it, the default rounds those in fp32 where it can.
fn math(precision: Precision) -> dnn::cudnnMathType_t {
    match precision {
        Precision::F32 => dnn::cudnnMathType_t::CUDNN_FMA_MATH,
        Precision::Tf32 => dnn::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        Precision::Bf16 => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
    }
}

/// Of each pass the algorithm that repeats and takes any sizes.
fn last_resort(pass: ConvolutionPass, precision: Precision) -> Candidate {
    let algorithm = match pass {
        ConvolutionPass::Forward => {
            Algorithm::Forward(dnn::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM)
        }
        ConvolutionPass::BackwardData => {
            Algorithm::BackwardData(dnn::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)
        }
        ConvolutionPass::BackwardWeight => {
            Algorithm::BackwardWeight(dnn::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)
        }
    };
    Candidate { algorithm, math: math(precision), repeats: true }
}
