//! Products of matrices by cuBLASLt: a plan for each that a stream is given, made once.
//!
//! cuBLASLt's matrices lie column by column. A matrix that lies row by row is the transposed one that lies column by column, so
//! `C = A·B` is asked for as `Cᵀ = Bᵀ·Aᵀ`: B goes in first, and what was not transposed needs no transposition.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys as lt;
use lockstep_exec::device::DeviceError;

use super::bias;
use super::calls::call;
use super::descriptors::{MatrixShape, Operation, Preference};
use super::executor::Limits;
use super::stream::Stream;
use crate::argument::Scalar;
use crate::command::Multiply;
use crate::table::Call;
use lockstep_models::Precision;
use lt::cublasLtMatmulDescAttributes_t as Attribute;
use lt::cublasLtMatmulPreferenceAttributes_t as Wish;

/// Algorithms that cuBLASLt is asked for.
const ASKED: usize = 8;
/// The largest alignment that counts, in bytes.
const ALIGNMENT: u64 = 256;
/// What the address of a bias is a multiple of where cuBLASLt adds it.
const BIAS_ALIGNMENT: u64 = 16;

/// cuBLASLt, with the plans made so far.
#[derive(Debug)]
pub(super) struct Products {
    handle: Handle,
    plans: HashMap<Key, Plan>,
}

/// All of a product but its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    rows: u32,
    columns: u32,
    depth: u32,
    transposed: (bool, bool),
    precision: Precision,
    result: Scalar,
    bias: bool,
    rectified: bool,
    /// The powers of two that the addresses of A, B, C and the bias are multiples of.
    aligned: [u32; 4],
}

#[derive(Debug)]
struct Plan {
    operation: Operation,
    first: MatrixShape,
    second: MatrixShape,
    result: MatrixShape,
    algorithm: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
    /// Whether the bias, and the ReLU if there is one, are part of it.
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

#[derive(Debug)]
struct Handle(lt::cublasLtHandle_t);

// SAFETY: cuBLASLt's handles hold nothing that belongs to a thread.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. What is not freed ends with the process.
        let _ = unsafe { call!(lt::cublasLtDestroy(self.0)) };
    }
}

impl Products {
    /// cuBLASLt for the context that is current.
    pub(super) fn new() -> Result<Products, DeviceError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { call!(lt::cublasLtCreate(&mut raw)) }.done()?;
        Ok(Products { handle: Handle(raw), plans: HashMap::new() })
    }

    /// Makes the plan of a product, if there is none yet, and says how many bytes of workspace it wants.
    pub(super) fn prepare(&mut self, of: &Multiply, limits: Limits) -> Result<u64, DeviceError> {
        check(of)?;
        let key = key(of);
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan.workspace as u64);
        }
        // Kernels read four of a bias' floats at once.
        let fits = of.bias.is_some_and(|bias| bias % BIAS_ALIGNMENT == 0);
        let fused = match fits.then(|| self.plan(of, key, true, limits)) {
            // Some types of C and of the bias do not go together; the plain product goes with all.
            None | Some(Err(DeviceError::Refused { .. })) => None,
            Some(plan) => plan?,
        };
        let plan = match fused {
            Some(plan) => Some(plan),
            None => self.plan(of, key, false, limits)?,
        };
        let Some(plan) = plan else {
            let reason = format!("no algorithm for {of:?} with a workspace of at most {} bytes", limits.workspace);
            return Err(DeviceError::Refused { call: "a product of matrices".to_owned(), reason });
        };
        let workspace = plan.workspace as u64;
        self.plans.insert(key, plan);
        Ok(workspace)
    }

    /// Plays a product that was prepared, with a workspace of at least as many bytes as that said; what is left to do is given
    /// back.
    ///
    /// # Safety
    /// The addresses are those of matrices with the product's sizes.
    pub(super) unsafe fn play(
        &mut self,
        of: &Multiply,
        stream: &Stream,
        workspace: u64,
    ) -> Result<Option<Call>, DeviceError> {
        let Some(plan) = self.plans.get(&key(of)) else {
            let reason = "nobody prepared it".to_owned();
            return Err(DeviceError::Refused { call: "a product of matrices".to_owned(), reason });
        };
        if let (true, Some(bias)) = (plan.fuses, of.bias) {
            plan.operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let (alpha, beta) = (1.0f32, if of.accumulate { 1.0f32 } else { 0.0 });
        let at = |address: u64| address as *mut c_void;
        let c = plan.result.raw();
        // SAFETY: the descriptors are alive and describe what the caller says is there; both factors outlive the call.
        let answer = unsafe {
            call!(lt::cublasLtMatmul(
                self.handle.0,
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

    /// The plan of a product, if cuBLASLt has an algorithm for it; `fused` with what follows it.
    fn plan(&self, of: &Multiply, key: Key, fused: bool, limits: Limits) -> Result<Option<Plan>, DeviceError> {
        let (element, factors) = match of.precision {
            Precision::F32 => (lt::cudaDataType::CUDA_R_32F, lt::cublasComputeType_t::CUBLAS_COMPUTE_32F),
            Precision::Tf32 => (lt::cudaDataType::CUDA_R_32F, lt::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32),
            Precision::Bf16 => (lt::cudaDataType::CUDA_R_16BF, lt::cublasComputeType_t::CUBLAS_COMPUTE_32F),
        };
        let result = match of.result {
            Scalar::F32 => lt::cudaDataType::CUDA_R_32F,
            Scalar::Bf16 => lt::cudaDataType::CUDA_R_16BF,
        };
        let matrix = |rows, columns, transposed: bool| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            MatrixShape::new(element, rows, columns)
        };
        let operation = Operation::new(factors)?;
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
                // Else it is taken to be made of what C is made of.
                let bias = lt::cudaDataType::CUDA_R_32F as i32;
                operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias)?;
            }
        }
        let first = matrix(of.columns, of.depth, of.transposed_b)?;
        let second = matrix(of.depth, of.rows, of.transposed_a)?;
        let result = MatrixShape::new(result, of.columns, of.rows)?;
        let wishes = Preference::new()?;
        wishes.set(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limits.workspace)?;
        let [a, b, c, _] = key.aligned;
        for (wish, aligned) in [
            (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
            (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
            (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
        ] {
            wishes.set(wish, aligned)?;
        }
        let mut answers = [NOTHING; ASKED];
        let mut count = 0;
        // SAFETY: the descriptors are alive, and there is room for as many answers as are asked for.
        let answer = unsafe {
            call!(lt::cublasLtMatmulAlgoGetHeuristic(
                self.handle.0,
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
}

fn key(of: &Multiply) -> Key {
    let aligned = |address: u64| 1 << (address | ALIGNMENT).trailing_zeros();
    Key {
        rows: of.rows,
        columns: of.columns,
        depth: of.depth,
        transposed: (of.transposed_a, of.transposed_b),
        precision: of.precision,
        result: of.result,
        bias: of.bias.is_some(),
        rectified: of.rectified,
        aligned: [of.a, of.b, of.c, of.bias.unwrap_or(0)].map(aligned),
    }
}

/// What a command must be beside its sizes, which cuBLASLt checks.
fn check(of: &Multiply) -> Result<(), DeviceError> {
    let reason = match of {
        Multiply { bias: Some(_), accumulate: true, .. } => "a bias is for a product that does not accumulate",
        Multiply { bias: None, rectified: true, .. } => "only what has a bias is rectified",
        _ => return Ok(()),
    };
    Err(DeviceError::Refused { call: "a product of matrices".to_owned(), reason: reason.to_owned() })
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
        assert_eq!(key(&product).aligned, [256, 64, 32, 4]);
        assert_eq!(key(&Multiply { bias: None, ..product }).aligned, [256, 64, 32, 256]);
    }
}
