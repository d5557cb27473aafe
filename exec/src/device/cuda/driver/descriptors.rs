//! cuDNN's and cuBLASLt's descriptors, each destroyed when it is dropped.

use std::ffi::c_int;

use cudarc::cublaslt::sys as lt;
use cudarc::cudnn::sys as dnn;

use super::status::Status;
use crate::device::DeviceError;
use crate::device::cuda::command::Convolution;

/// Defines owners: `Name = type, function that destroys it;`.
macro_rules! owners {
    ($($(#[$doc:meta])* $name:ident = $raw:ty, $destroy:path;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name($raw);

        // SAFETY: a descriptor is plain data of the library, and belongs to nobody else.
        unsafe impl Send for $name {}

        impl $name {
            pub(super) fn raw(&self) -> $raw {
                self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: it was made by its only constructor, and nobody else has it. What is not freed ends with the process.
                let _ = unsafe { $destroy(self.0) };
            }
        }
    )* };
}

owners! {
    /// A tensor `[n, c, h, w]` without gaps.
    TensorShape = dnn::cudnnTensorDescriptor_t, dnn::cudnnDestroyTensorDescriptor;
    /// Filters `[k, c, h, w]` without gaps.
    FilterShape = dnn::cudnnFilterDescriptor_t, dnn::cudnnDestroyFilterDescriptor;
    /// A convolution's window.
    Window = dnn::cudnnConvolutionDescriptor_t, dnn::cudnnDestroyConvolutionDescriptor;
    /// A ReLU.
    Rectifier = dnn::cudnnActivationDescriptor_t, dnn::cudnnDestroyActivationDescriptor;
    /// A matrix, column by column.
    MatrixShape = lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayoutDestroy;
    /// What a product does.
    Operation = lt::cublasLtMatmulDesc_t, lt::cublasLtMatmulDescDestroy;
    /// What its algorithm may take.
    Preference = lt::cublasLtMatmulPreference_t, lt::cublasLtMatmulPreferenceDestroy;
}

const NCHW: dnn::cudnnTensorFormat_t = dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;

impl TensorShape {
    pub(super) fn new(of: dnn::cudnnDataType_t, sizes: [u32; 4]) -> Result<TensorShape, DeviceError> {
        let [n, c, h, w] = sizes_of("a tensor", sizes)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { dnn::cudnnCreateTensorDescriptor(&mut raw) }.of("cudnnCreateTensorDescriptor")?;
        let shape = TensorShape(raw);
        // SAFETY: it has just been made.
        unsafe { dnn::cudnnSetTensor4dDescriptor(raw, NCHW, of, n, c, h, w) }.of("cudnnSetTensor4dDescriptor")?;
        Ok(shape)
    }
}

impl FilterShape {
    pub(super) fn new(of: dnn::cudnnDataType_t, sizes: [u32; 4]) -> Result<FilterShape, DeviceError> {
        let [k, c, h, w] = sizes_of("filters", sizes)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { dnn::cudnnCreateFilterDescriptor(&mut raw) }.of("cudnnCreateFilterDescriptor")?;
        let shape = FilterShape(raw);
        // SAFETY: it has just been made.
        unsafe { dnn::cudnnSetFilter4dDescriptor(raw, of, NCHW, k, c, h, w) }.of("cudnnSetFilter4dDescriptor")?;
        Ok(shape)
    }
}

impl Window {
    /// Sums are fp32; the filters are not mirrored.
    pub(super) fn new(of: &Convolution) -> Result<Window, DeviceError> {
        let ((pad_h, pad_w), (down, right), (high, wide)) = (of.padding, of.stride, of.dilation);
        let sizes = [pad_h, pad_w, down, right, high, wide, of.groups];
        let [pad_h, pad_w, down, right, high, wide, groups] = sizes_of("a window", sizes)?;
        let mode = dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        let sums = dnn::cudnnDataType_t::CUDNN_DATA_FLOAT;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { dnn::cudnnCreateConvolutionDescriptor(&mut raw) }.of("cudnnCreateConvolutionDescriptor")?;
        let window = Window(raw);
        // SAFETY: it has just been made.
        unsafe { dnn::cudnnSetConvolution2dDescriptor(raw, pad_h, pad_w, down, right, high, wide, mode, sums) }
            .of("cudnnSetConvolution2dDescriptor")?;
        // SAFETY: as above.
        unsafe { dnn::cudnnSetConvolutionGroupCount(raw, groups) }.of("cudnnSetConvolutionGroupCount")?;
        Ok(window)
    }

    pub(super) fn set_math(&self, math: dnn::cudnnMathType_t) -> Result<(), DeviceError> {
        // SAFETY: it is alive.
        unsafe { dnn::cudnnSetConvolutionMathType(self.0, math) }.of("cudnnSetConvolutionMathType")
    }
}

impl Rectifier {
    pub(super) fn new() -> Result<Rectifier, DeviceError> {
        let mode = dnn::cudnnActivationMode_t::CUDNN_ACTIVATION_RELU;
        // The only choice that fused convolutions take.
        let not_a_number = dnn::cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { dnn::cudnnCreateActivationDescriptor(&mut raw) }.of("cudnnCreateActivationDescriptor")?;
        let rectifier = Rectifier(raw);
        // SAFETY: it has just been made.
        unsafe { dnn::cudnnSetActivationDescriptor(raw, mode, not_a_number, 0.0) }
            .of("cudnnSetActivationDescriptor")?;
        Ok(rectifier)
    }
}

impl MatrixShape {
    /// Of `rows` and `columns`, whose columns follow each other.
    pub(super) fn new(of: lt::cudaDataType, rows: u32, columns: u32) -> Result<MatrixShape, DeviceError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { lt::cublasLtMatrixLayoutCreate(&mut raw, of, rows.into(), columns.into(), rows.into()) }
            .of("cublasLtMatrixLayoutCreate")?;
        Ok(MatrixShape(raw))
    }
}

impl Operation {
    pub(super) fn new(factors: lt::cublasComputeType_t) -> Result<Operation, DeviceError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { lt::cublasLtMatmulDescCreate(&mut raw, factors, lt::cudaDataType::CUDA_R_32F) }
            .of("cublasLtMatmulDescCreate")?;
        Ok(Operation(raw))
    }

    /// Sets an attribute whose type in C is `T`.
    pub(super) fn set<T: Copy>(&self, what: lt::cublasLtMatmulDescAttributes_t, value: T) -> Result<(), DeviceError> {
        let from = (&raw const value).cast();
        // SAFETY: it is alive, and the library reads as many bytes of the value as it has.
        unsafe { lt::cublasLtMatmulDescSetAttribute(self.0, what, from, size_of::<T>()) }
            .of("cublasLtMatmulDescSetAttribute")
    }
}

impl Preference {
    pub(super) fn new() -> Result<Preference, DeviceError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address outlives the call.
        unsafe { lt::cublasLtMatmulPreferenceCreate(&mut raw) }.of("cublasLtMatmulPreferenceCreate")?;
        Ok(Preference(raw))
    }

    /// Sets an attribute whose type in C is `T`.
    pub(super) fn set<T: Copy>(
        &self,
        what: lt::cublasLtMatmulPreferenceAttributes_t,
        value: T,
    ) -> Result<(), DeviceError> {
        let from = (&raw const value).cast();
        // SAFETY: it is alive, and the library reads as many bytes of the value as it has.
        unsafe { lt::cublasLtMatmulPreferenceSetAttribute(self.0, what, from, size_of::<T>()) }
            .of("cublasLtMatmulPreferenceSetAttribute")
    }
}

fn sizes_of<const N: usize>(what: &str, sizes: [u32; N]) -> Result<[c_int; N], DeviceError> {
    let mut numbers = [0; N];
    for (number, size) in numbers.iter_mut().zip(sizes) {
        *number = c_int::try_from(size).map_err(|_| DeviceError::Refused {
            call: what.to_owned(),
            reason: format!("a size of {size} does not fit in 31 bits"),
        })?;
    }
    Ok(numbers)
}
