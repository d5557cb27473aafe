//! Which of cuDNN's algorithms a pass of a convolution takes: the first in cuDNN's own order that is allowed.

use std::ffi::c_int;

use cudarc::cudnn::sys as dnn;
use lockstep_exec::device::DeviceError;
use lockstep_models::{Precision, Shape};

use super::calls::call;
use super::descriptors::{FilterShape, TensorShape, Window};
use super::executor::Limits;
use crate::command::{Convolution, ConvolutionPass};

/// Answers that cuDNN is asked for: more than any pass has algorithms.
const ASKED: usize = 16;

/// An algorithm of one of the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Forward(dnn::cudnnConvolutionFwdAlgo_t),
    BackwardData(dnn::cudnnConvolutionBwdDataAlgo_t),
    BackwardWeight(dnn::cudnnConvolutionBwdFilterAlgo_t),
}

/// `cudnnConvolutionFwdAlgoPerf_t` and its twins, with numbers for what they have as enums: a newer cuDNN has more of them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Proposal {
    algorithm: u32,
    status: u32,
    milliseconds: f32,
    bytes: usize,
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}
const _: () = assert!(size_of::<Proposal>() == size_of::<dnn::cudnnConvolutionFwdAlgoPerf_t>());
const _: () = assert!(size_of::<Proposal>() == size_of::<dnn::cudnnConvolutionBwdDataAlgoPerf_t>());
const _: () = assert!(size_of::<Proposal>() == size_of::<dnn::cudnnConvolutionBwdFilterAlgoPerf_t>());

impl Proposal {
    /// What is proposed, if it is something that the bindings know and that does these sizes.
    fn candidate(&self, pass: ConvolutionPass) -> Option<Candidate> {
        if self.status != dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS as u32 {
            return None;
        }
        let algorithm = Algorithm::of(pass, self.algorithm)?;
        let math = MATHEMATICS.into_iter().find(|one| *one as u32 == self.math)?;
        let repeats = self.determinism == dnn::cudnnDeterminism_t::CUDNN_DETERMINISTIC as u32;
        Some(Candidate { algorithm, math, repeats })
    }
}

/// Every kind of mathematics.
const MATHEMATICS: [dnn::cudnnMathType_t; 4] = {
    use dnn::cudnnMathType_t::*;
    [CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, CUDNN_FMA_MATH]
};

impl Algorithm {
    /// The one that has this number, if the bindings know it.
    fn of(pass: ConvolutionPass, number: u32) -> Option<Algorithm> {
        use dnn::cudnnConvolutionBwdDataAlgo_t::*;
        use dnn::cudnnConvolutionBwdFilterAlgo_t::*;
        use dnn::cudnnConvolutionFwdAlgo_t::*;
        let forward = [
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
            CUDNN_CONVOLUTION_FWD_ALGO_FFT,
            CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
            CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
            CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
        ];
        let backward_data = [
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
        ];
        let backward_weight = [
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
        ];
        match pass {
            ConvolutionPass::Forward => forward.into_iter().find(|one| *one as u32 == number).map(Algorithm::Forward),
            ConvolutionPass::BackwardData => {
                backward_data.into_iter().find(|one| *one as u32 == number).map(Algorithm::BackwardData)
            }
            ConvolutionPass::BackwardWeight => {
                backward_weight.into_iter().find(|one| *one as u32 == number).map(Algorithm::BackwardWeight)
            }
        }
    }
}

/// What cuDNN proposes and the bindings know.
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
        let tensor = |shape: Shape| {
            let sizes = [of.samples, shape.channels, shape.height, shape.width];
            TensorShape::new(element, of.channels_last, sizes)
        };
        Ok(Shapes {
            input: tensor(input)?,
            filters: FilterShape::new(element, of.channels_last, [output.channels, each, of.kernel.0, of.kernel.1])?,
            output: tensor(output)?,
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
        let mut answers = [Proposal::default(); ASKED];
        let (mut count, asked) = (0, ASKED as i32);
        // SAFETY: the descriptors are alive, and there is room for as many answers as are asked for.
        unsafe {
            let into = answers.as_mut_ptr();
            match pass {
                ConvolutionPass::Forward => call!(dnn::cudnnGetConvolutionForwardAlgorithm_v7(
                    handle,
                    x,
                    w,
                    window,
                    y,
                    asked,
                    &mut count,
                    into.cast()
                )),
                ConvolutionPass::BackwardData => call!(dnn::cudnnGetConvolutionBackwardDataAlgorithm_v7(
                    handle,
                    w,
                    y,
                    window,
                    x,
                    asked,
                    &mut count,
                    into.cast()
                )),
                ConvolutionPass::BackwardWeight => call!(dnn::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                    handle,
                    x,
                    y,
                    window,
                    w,
                    asked,
                    &mut count,
                    into.cast()
                )),
            }
        }
        .done()?;
        let given = usize::try_from(count).unwrap_or(0).min(ASKED);
        Ok(answers[..given].iter().filter_map(|answer| answer.candidate(pass)).collect())
    }

    /// The bytes that an algorithm wants, as the window is set.
    fn workspace(&self, handle: dnn::cudnnHandle_t, algorithm: Algorithm) -> Result<usize, DeviceError> {
        let Shapes { input, filters, output, window } = self;
        let (x, w, y, window) = (input.raw(), filters.raw(), output.raw(), window.raw());
        let mut bytes = 0;
        // SAFETY: the descriptors are alive, and the number outlives the call.
        let answer = unsafe {
            match algorithm {
                Algorithm::Forward(algorithm) => {
                    call!(dnn::cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, window, y, algorithm, &mut bytes))
                }
                Algorithm::BackwardData(algorithm) => {
                    call!(dnn::cudnnGetConvolutionBackwardDataWorkspaceSize(
                        handle, w, y, window, x, algorithm, &mut bytes
                    ))
                }
                Algorithm::BackwardWeight(algorithm) => {
                    call!(dnn::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                        handle, x, y, window, w, algorithm, &mut bytes
                    ))
                }
            }
        };
        answer.done().map(|()| bytes)
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
