//! Selects cuDNN's algorithm for a pass of a convolution: the first in cuDNN's own order that is allowed.
//!
//! cudarc's safe convolutions take the first proposal, deterministic or not. The functions of the three passes differ
//! only in names and in the order of descriptors, so they are looked up by name, and algorithms are numbers.

use std::ffi::{c_int, c_void};

use cudarc::cudnn::sys as dnn;
use lockstep_exec::device::DeviceError;
use lockstep_models::{ImageShape, Precision};

use super::calls::{Answer, found};
use super::descriptors::{FilterShape, TensorShape, Window};
use super::plans::WorkspaceLimits;
use super::status::refused;
use crate::command::{Convolution, ConvolutionPass};

/// Proposals requested from cuDNN: more than any pass has algorithms.
const ASKED: usize = 16;

/// A descriptor of any kind, or memory.
pub(super) type Pointer = *mut c_void;

/// `cudnnConvolutionFwdAlgoPerf_t` and its counterparts, with numbers for enums, which a newer cuDNN extends.
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

/// Proposals for two operands, a window and a result: the numbers requested and returned, and where.
#[rustfmt::skip]
type Propose = unsafe extern "C" fn(
    dnn::cudnnHandle_t, Pointer, Pointer, Pointer, Pointer, c_int, *mut c_int, *mut Proposal) -> u32;
/// The bytes of workspace that an algorithm needs for these.
type Measure = unsafe extern "C" fn(dnn::cudnnHandle_t, Pointer, Pointer, Pointer, Pointer, u32, *mut usize) -> u32;
/// The pass: α, both operands' descriptors and tensors, window, algorithm, workspace, β, and the result's.
#[rustfmt::skip]
type Play = unsafe extern "C" fn(
    dnn::cudnnHandle_t, *const f32, Pointer, Pointer, Pointer, Pointer, Pointer, u32, Pointer, usize, *const f32, Pointer, Pointer,
) -> u32;
/// The forward pass, then a tensor added times a factor, a bias added, and a ReLU.
#[rustfmt::skip]
type PlayBiased = unsafe extern "C" fn(
    dnn::cudnnHandle_t, *const f32, Pointer, Pointer, Pointer, Pointer, Pointer, u32, Pointer, usize, *const f32, Pointer, Pointer,
    Pointer, Pointer, Pointer, Pointer, Pointer,
) -> u32;

/// A pass's cuDNN functions.
#[derive(Debug)]
struct Functions {
    names: [&'static str; 3],
    propose: Propose,
    measure: Measure,
    play: Play,
    play_biased: PlayBiased,
    /// The number of algorithms that the bindings know, from 0 on.
    algorithms: u32,
    /// The deterministic one for all sizes.
    last_resort: u32,
}

const BIASED: &str = "cudnnConvolutionBiasActivationForward";

/// Names of a pass's functions.
macro_rules! names {
    ($pass:literal) => {
        [
            concat!("cudnnGetConvolution", $pass, "Algorithm_v7"),
            concat!("cudnnGetConvolution", $pass, "WorkspaceSize"),
            concat!("cudnnConvolution", $pass),
        ]
    };
}

impl Functions {
    fn of(pass: ConvolutionPass) -> Result<Functions, DeviceError> {
        use dnn::cudnnConvolutionBwdDataAlgo_t::*;
        use dnn::cudnnConvolutionBwdFilterAlgo_t::*;
        use dnn::cudnnConvolutionFwdAlgo_t::*;
        let (names, algorithms, last_resort) = match pass {
            ConvolutionPass::Forward => (
                names!("Forward"),
                CUDNN_CONVOLUTION_FWD_ALGO_COUNT as u32,
                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM as u32,
            ),
            ConvolutionPass::BackwardData => (
                names!("BackwardData"),
                CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT as u32,
                CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 as u32,
            ),
            ConvolutionPass::BackwardWeight => (
                names!("BackwardFilter"),
                CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT as u32,
                CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 as u32,
            ),
        };
        let [propose, measure, play] = names;
        // SAFETY: the library is loaded, and its functions have these types: descriptors are pointers, enums int-wide.
        unsafe {
            let library = dnn::culib();
            let (propose, measure) = (found(library, propose)?, found(library, measure)?);
            let (play, play_biased) = (found(library, play)?, found(library, BIASED)?);
            Ok(Functions { names, propose, measure, play, play_biased, algorithms, last_resort })
        }
    }
}

/// A pass of a convolution as cuDNN knows it.
#[derive(Debug)]
pub(super) struct Pass {
    kind: ConvolutionPass,
    functions: Functions,
    input: TensorShape,
    filters: FilterShape,
    output: TensorShape,
    window: Window,
    algorithm: u32,
    pub(super) workspace: usize,
}

/// The tensors of a pass, with the operands of [`Convolve`](crate::Convolve).
pub(super) struct Tensors {
    pub(super) left: Pointer,
    pub(super) right: Pointer,
    pub(super) result: Pointer,
    pub(super) workspace: Pointer,
}

const ONE: &f32 = &1.0;
const ZERO: &f32 = &0.0;

impl Pass {
    /// A pass with its algorithm.
    ///
    /// # Errors
    /// None is allowed, or the device is lost.
    pub(super) fn new(
        handle: dnn::cudnnHandle_t,
        of: &Convolution,
        kind: ConvolutionPass,
        limits: WorkspaceLimits,
    ) -> Result<Pass, DeviceError> {
        let element = match of.precision {
            Precision::F32 | Precision::Tf32 => dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
            Precision::Bf16 => dnn::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
            other => return Err(unserved(other)),
        };
        let (input, output) = (of.input, of.output);
        let each = input.channels / of.groups.max(1);
        let tensor = |shape: ImageShape| {
            let [channels, height, width] = shape.sizes();
            let sizes = [of.samples, channels, height, width];
            TensorShape::new(element, of.channels_last, sizes)
        };
        let mut pass = Pass {
            kind,
            functions: Functions::of(kind)?,
            input: tensor(input)?,
            filters: FilterShape::new(element, of.channels_last, [output.channels, each, of.kernel.0, of.kernel.1])?,
            output: tensor(output)?,
            window: Window::new(of)?,
            algorithm: 0,
            workspace: 0,
        };
        pass.choose(handle, of, limits)?;
        Ok(pass)
    }

    /// The descriptors of both operands, as cuDNN orders them, and of the result.
    fn shapes(&self) -> [Pointer; 3] {
        let (x, w, y) = (self.input.raw().cast(), self.filters.raw().cast(), self.output.raw().cast());
        match self.kind {
            ConvolutionPass::Forward => [x, w, y],
            ConvolutionPass::BackwardData => [w, y, x],
            ConvolutionPass::BackwardWeight => [x, y, w],
        }
    }

    /// Selects the first algorithm within the workspace limit, else the one that needs the least, and sets the window's
    /// math type.
    fn choose(
        &mut self,
        handle: dnn::cudnnHandle_t,
        of: &Convolution,
        limits: WorkspaceLimits,
    ) -> Result<(), DeviceError> {
        let plain = math(of.precision);
        self.window.set_math(plain)?;
        let proposals = self.proposals(handle)?;
        let allowed = proposals.iter().filter(|proposal| {
            proposal.status == dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS as u32
                && (proposal.determinism == dnn::cudnnDeterminism_t::CUDNN_DETERMINISTIC as u32 || !limits.repeatable)
                && proposal.algorithm < self.functions.algorithms
        });
        let known = |proposal: &Proposal| Some((proposal.algorithm, kind_of_math(proposal.math)?));
        // With tensor cores the last resort may exceed the workspace limit: it copies tensors with channels first.
        let last = [plain, dnn::cudnnMathType_t::CUDNN_FMA_MATH].map(|math| (self.functions.last_resort, math));
        let mut least: Option<(usize, u32, dnn::cudnnMathType_t)> = None;
        for (algorithm, math) in allowed.filter_map(known).chain(last) {
            // For fp32 cuDNN proposes a math type that rounds factors; the requested type is kept.
            let math = if of.precision == Precision::F32 { plain } else { math };
            self.window.set_math(math)?;
            match self.measured(handle, algorithm) {
                Ok(bytes) if bytes as u64 <= limits.workspace => {
                    (self.algorithm, self.workspace) = (algorithm, bytes);
                    return Ok(());
                }
                Ok(bytes) if least.is_none_or(|(known, ..)| bytes < known) => least = Some((bytes, algorithm, math)),
                Ok(_) | Err(DeviceError::Refused { .. }) => {}
                Err(lost) => return Err(lost),
            }
        }
        let none = || refused(&format!("a convolution ({:?})", self.kind), format!("no algorithm for {of:?}"));
        let (bytes, algorithm, math) = least.ok_or_else(none)?;
        (self.algorithm, self.workspace) = (algorithm, bytes);
        self.window.set_math(math)
    }

    fn proposals(&self, handle: dnn::cudnnHandle_t) -> Result<Vec<Proposal>, DeviceError> {
        let [first, second, result] = self.shapes();
        let (mut answers, mut count) = (vec![Proposal::default(); ASKED], 0);
        let (window, asked, into) = (self.window.raw().cast(), ASKED as c_int, answers.as_mut_ptr());
        // SAFETY: the descriptors are alive, with space for as many answers as requested.
        let code = unsafe { (self.functions.propose)(handle, first, second, window, result, asked, &mut count, into) };
        self.answer(0, code).done()?;
        answers.truncate(usize::try_from(count).unwrap_or(0));
        Ok(answers)
    }

    /// An algorithm's workspace in bytes, as the window is set.
    fn measured(&self, handle: dnn::cudnnHandle_t, algorithm: u32) -> Result<usize, DeviceError> {
        let [first, second, result] = self.shapes();
        let (window, mut bytes) = (self.window.raw().cast(), 0);
        // SAFETY: the descriptors are alive, and the number outlives the call.
        let code = unsafe { (self.functions.measure)(handle, first, second, window, result, algorithm, &mut bytes) };
        self.answer(1, code).done().map(|()| bytes)
    }

    /// Runs the pass by cuDNN.
    ///
    /// # Safety
    /// The tensors have the convolution's sizes, the workspace as many bytes as the pass needs.
    pub(super) unsafe fn play(
        &self,
        handle: dnn::cudnnHandle_t,
        of: &Tensors,
        accumulate: bool,
    ) -> Result<(), DeviceError> {
        let ([one, two, result], window) = (self.shapes(), self.window.raw().cast());
        let (first, second) = match self.kind {
            ConvolutionPass::BackwardData => (of.right, of.left),
            ConvolutionPass::Forward | ConvolutionPass::BackwardWeight => (of.left, of.right),
        };
        let (kept, algorithm, play) = (if accumulate { ONE } else { ZERO }, self.algorithm, self.functions.play);
        let (space, bytes) = (of.workspace, self.workspace);
        // SAFETY: the descriptors are alive and describe the tensors, as promised; factors are the host's.
        let code = unsafe {
            play(handle, ONE, one, first, two, second, window, algorithm, space, bytes, kept, result, of.result)
        };
        self.answer(2, code).done()
    }

    /// Runs the forward pass, bias and ReLU by cuDNN, which may decline.
    ///
    /// # Safety
    /// As [`Pass::play`].
    pub(super) unsafe fn play_biased(
        &self,
        handle: dnn::cudnnHandle_t,
        of: &Tensors,
        (shape, bias): (&TensorShape, Pointer),
        rectifier: Pointer,
    ) -> Answer<dnn::cudnnStatus_t> {
        let ([x, w, y], window) = (self.shapes(), self.window.raw().cast());
        let (algorithm, play, bias_shape) = (self.algorithm, self.functions.play_biased, shape.raw().cast());
        let (left, right, result, space, bytes) = (of.left, of.right, of.result, of.workspace, self.workspace);
        // SAFETY: as above.
        #[rustfmt::skip]
        let code = unsafe {
            play(handle, ONE, x, left, w, right, window, algorithm, space, bytes, ZERO, y, result, bias_shape, bias, rectifier, y, result)
        };
        Answer::new(BIASED, Some(code))
    }

    fn answer(&self, function: usize, code: u32) -> Answer<dnn::cudnnStatus_t> {
        Answer::new(self.functions.names[function], Some(code))
    }
}

/// The math type of this number, if the bindings know it.
fn kind_of_math(number: u32) -> Option<dnn::cudnnMathType_t> {
    use dnn::cudnnMathType_t::*;
    let all = [CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, CUDNN_FMA_MATH];
    all.into_iter().find(|one| *one as u32 == number)
}

/// What cuDNN may do with the factors: by its documentation, the default rounds fp32 ones where it can.
fn math(precision: Precision) -> dnn::cudnnMathType_t {
    match precision {
        Precision::F32 => dnn::cudnnMathType_t::CUDNN_FMA_MATH,
        Precision::Tf32 => dnn::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        Precision::Bf16 | Precision::F16 | Precision::F8 => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
    }
}

/// The error: no kernel here has this precision.
pub(super) fn unserved(precision: Precision) -> DeviceError {
    let reason = format!("`{precision}`: kernels are of fp32, tf32 and bf16");
    DeviceError::Refused { call: "precision".to_owned(), reason }
}
