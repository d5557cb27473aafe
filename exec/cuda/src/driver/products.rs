//! Multiplies matrices by cuBLASLt, with a plan for each product, made once.
//!
//! cudarc's safe products search for an algorithm again each time, and do not support bf16 factors with an fp32 result.
//!
//! cuBLASLt's matrices are column-major. A row-major matrix is the transpose of a column-major one, so `C = A·B` is
//! computed as `Cᵀ = Bᵀ·Aᵀ`: B is passed first, and what was not transposed needs no transposition.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys as lt;
use lockstep_exec::device::DeviceError;
use lockstep_models::Precision;

use super::algorithms::unserved;
use super::bias;
use super::calls::call;
use super::descriptors::{MatrixShape, Multiplier, Operation, Preference};
use super::plans::{Plans, WorkspaceLimits};
use super::status::refused;
use super::stream::GpuStream;
use crate::argument::Scalar;
use crate::command::Multiply;
use crate::kernel::KernelCall;
use lt::cublasLtMatmulDescAttributes_t as Attribute;
use lt::cublasLtMatmulPreferenceAttributes_t as Wish;

/// Number of algorithms to request from cuBLASLt.
const ASKED: usize = 8;
/// The largest alignment that matters, in bytes.
const ALIGNMENT: u64 = 256;
/// The alignment of a bias that cuBLASLt adds.
const BIAS_ALIGNMENT: u64 = 16;

/// cuBLASLt, with the plans made so far: keyed by the product, with the alignments of its addresses in their place.
#[derive(Debug)]
pub(super) struct Products {
    handle: Multiplier,
    plans: Plans<Multiply, Plan>,
}

#[derive(Debug)]
struct Plan {
    operation: Operation,
    first: MatrixShape,
    second: MatrixShape,
    result: MatrixShape,
    algorithm: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
    /// Whether it includes the bias, and the ReLU if there is one.
    fuses: bool,
}

/// `cublasLtMatmulHeuristicResult_t`, with a number for its status.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proposal {
    algorithm: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
    status: u32,
    waves: f32,
    reserved: [c_int; 4],
}
const _: () = assert!(size_of::<Proposal>() == size_of::<lt::cublasLtMatmulHeuristicResult_t>());

const NOTHING: Proposal = Proposal {
    algorithm: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
    workspace: 0,
    status: lt::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as u32,
    waves: 0.0,
    reserved: [0; 4],
};

impl Products {
    /// cuBLASLt for the current context.
    pub(super) fn new() -> Result<Products, DeviceError> {
        Ok(Products { handle: Multiplier::created()?, plans: Plans::new() })
    }

    /// Makes the plan of a product unless it exists, and returns the bytes of workspace that it needs.
    pub(super) fn prepare(&mut self, of: &Multiply, limits: WorkspaceLimits) -> Result<u64, DeviceError> {
        check(of)?;
        let plan = self.plans.prepare(key(of), || {
            // Kernels read four floats of a bias at once.
            let fits = of.bias.is_some_and(|bias| bias % BIAS_ALIGNMENT == 0);
            let fused = match fits.then(|| plan(&self.handle, of, true, limits)) {
                // Some types of C and of the bias cannot be combined; the plain product works with all.
                None | Some(Err(DeviceError::Refused { .. })) => None,
                Some(plan) => plan?,
            };
            let plan = match fused {
                Some(plan) => Some(plan),
                None => plan(&self.handle, of, false, limits)?,
            };
            plan.ok_or_else(|| limits.exceeded("a product of matrices", of))
        })?;
        Ok(plan.workspace as u64)
    }

    /// Runs a prepared product, with a workspace of at least the bytes that it needs; returns what is left to do.
    ///
    /// # Safety
    /// The addresses are those of matrices of the product's sizes.
    pub(super) unsafe fn play(
        &mut self,
        of: &Multiply,
        stream: &GpuStream,
        workspace: u64,
    ) -> Result<Option<KernelCall>, DeviceError> {
        let plan = self.plans.get(key(of))?;
        if let (true, Some(bias)) = (plan.fuses, of.bias) {
            plan.operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let (alpha, beta) = (1.0f32, if of.accumulate { 1.0f32 } else { 0.0 });
        let at = |address: u64| address as *mut c_void;
        let c = plan.result.raw();
        // SAFETY: the descriptors are alive and describe the matrices, as the caller promises; both factors outlive the
        // call.
        let answer = unsafe {
            call!(lt::cublasLtMatmul(
                self.handle.raw(),
                plan.operation.raw(),
                (&raw const alpha).cast(),
                at(of.b),
                plan.first.raw(),
                at(of.a),
                plan.second.raw(),
                (&raw const beta).cast(),
                at(of.c),
                c,
                at(of.c),
                c,
                &plan.algorithm,
                at(workspace),
                plan.workspace,
                stream.raw().cast(),
            ))
        };
        answer.done()?;
        Ok(if plan.fuses { None } else { bias::of_columns(of) })
    }
}

/// The plan of a product, if cuBLASLt has an algorithm for it; `fused` includes the bias and ReLU.
fn plan(handle: &Multiplier, of: &Multiply, fused: bool, limits: WorkspaceLimits) -> Result<Option<Plan>, DeviceError> {
    let (element, factors) = match of.precision {
        Precision::F32 => (lt::cudaDataType::CUDA_R_32F, lt::cublasComputeType_t::CUBLAS_COMPUTE_32F),
        Precision::Tf32 => (lt::cudaDataType::CUDA_R_32F, lt::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32),
        Precision::Bf16 => (lt::cudaDataType::CUDA_R_16BF, lt::cublasComputeType_t::CUBLAS_COMPUTE_32F),
        other => return Err(unserved(other)),
    };
    let result = match of.result {
        Scalar::F32 => lt::cudaDataType::CUDA_R_32F,
        Scalar::Bf16 => lt::cudaDataType::CUDA_R_16BF,
    };
    // Columns are contiguous.
    let matrix = |of, rows: u32, columns: u32, transposed: bool| {
        let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
        MatrixShape::created(of, rows.into(), columns.into(), rows.into())
    };
    let operation = operation(of, fused, factors, result)?;
    let first = matrix(element, of.columns, of.depth, of.transposed_b)?;
    let second = matrix(element, of.depth, of.rows, of.transposed_a)?;
    let result = matrix(result, of.columns, of.rows, false)?;
    let wishes = wishes(of, limits)?;
    let mut answers = [NOTHING; ASKED];
    let mut count = 0;
    // SAFETY: the descriptors are alive, and there is space for as many results as are requested.
    let answer = unsafe {
        call!(lt::cublasLtMatmulAlgoGetHeuristic(
            handle.raw(),
            operation.raw(),
            first.raw(),
            second.raw(),
            result.raw(),
            result.raw(),
            wishes.raw(),
            ASKED as i32,
            answers.as_mut_ptr().cast(),
            &mut count,
        ))
    };
    if answer.code() == Some(lt::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as u32) {
        return Ok(None);
    }
    answer.done()?;
    let given = usize::try_from(count).unwrap_or(0).min(ASKED);
    let fits = |one: &&Proposal| {
        one.status == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS as u32 && one.workspace as u64 <= limits.workspace
    };
    let chosen = answers[..given].iter().find(fits);
    Ok(chosen.map(|chosen| Plan {
        operation,
        first,
        second,
        result,
        algorithm: chosen.algorithm,
        workspace: chosen.workspace,
        fuses: fused,
    }))
}

/// What is computed: the sides that are transposed, and the bias and ReLU that `fused` includes.
fn operation(
    of: &Multiply,
    fused: bool,
    factors: lt::cublasComputeType_t,
    result: lt::cudaDataType,
) -> Result<Operation, DeviceError> {
    let operation = Operation::created(factors, lt::cudaDataType::CUDA_R_32F)?;
    let turned = |transposed: bool| i32::from(transposed);
    operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, turned(of.transposed_b))?;
    operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, turned(of.transposed_a))?;
    let epilogue = match (fused, of.rectified) {
        (false, _) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
        (true, false) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
        (true, true) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
    };
    operation.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as u32)?;
    if let (true, Some(bias)) = (fused, of.bias) {
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        if result != lt::cudaDataType::CUDA_R_32F {
            // By default it would have the type of C.
            let bias = lt::cudaDataType::CUDA_R_32F as i32;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias)?;
        }
    }
    Ok(operation)
}

/// What an algorithm may need: workspace, and the alignment of the operands.
fn wishes(of: &Multiply, limits: WorkspaceLimits) -> Result<Preference, DeviceError> {
    let wishes = Preference::created()?;
    wishes.set(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limits.workspace)?;
    let Multiply { a, b, c, .. } = key(of);
    for (wish, aligned) in [
        (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
        (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
        (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
        (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
    ] {
        wishes.set(wish, aligned as u32)?;
    }
    Ok(wishes)
}

/// The key of its plan.
fn key(of: &Multiply) -> Multiply {
    let aligned = |address: u64| 1 << (address | ALIGNMENT).trailing_zeros();
    let (a, b, c, bias) = (aligned(of.a), aligned(of.b), aligned(of.c), of.bias.map(aligned));
    Multiply { a, b, c, bias, accumulate: false, ..*of }
}

/// Checks a command, except for its sizes, which cuBLASLt checks.
fn check(of: &Multiply) -> Result<(), DeviceError> {
    let reason = match of {
        Multiply { bias: Some(_), accumulate: true, .. } => "a bias is for a product that does not accumulate",
        Multiply { bias: None, rectified: true, .. } => "only what has a bias is rectified",
        _ => return Ok(()),
    };
    Err(refused("a product of matrices", reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_powers_of_two_up_to_256() {
        let product = Multiply {
            rows: 2,
            columns: 3,
            depth: 4,
            a: 0x1_0000,
            transposed_a: false,
            b: 0x1_0040,
            transposed_b: true,
            c: 0x2_0020,
            bias: Some(0x3_0004),
            rectified: false,
            accumulate: false,
            precision: Precision::F32,
            result: Scalar::F32,
        };
        let of = key(&product);
        assert_eq!((of.a, of.b, of.c, of.bias), (256, 64, 32, Some(4)));
        assert_eq!(key(&Multiply { a: 0x7_0000, b: 0x40, accumulate: true, ..product }), of);
        assert_ne!(key(&Multiply { bias: None, ..product }), of);
    }
}
