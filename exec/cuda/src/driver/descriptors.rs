//! Owns handles and descriptors of cuDNN and cuBLASLt; each is destroyed when it is dropped.
//!
//! cudarc's safe types lack groups, dilation and cuBLASLt's layouts, and read statuses as enums (`calls`).

use std::ffi::c_int;

use cudarc::cublaslt::sys as lt;
use cudarc::cudnn::sys as dnn;
use lockstep_exec::device::DeviceError;

use super::calls::call;
use super::status::refused;
use crate::command::Convolution;

/// Defines owners: `Name = type, create function with its parameters, destroy function;`.
macro_rules! owners {
    ($($(#[$doc:meta])* $name:ident = $raw:ty, $library:ident::$create:ident($($given:ident: $type:ty),*), $destroy:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name($raw);

        // SAFETY: it is plain data of the library, which this value alone owns.
        unsafe impl Send for $name {}

        impl $name {
            pub(super) fn created($($given: $type),*) -> Result<$name, DeviceError> {
                let mut raw = std::ptr::null_mut();
                // SAFETY: the address outlives the call.
                unsafe { call!($library::$create(&mut raw $(, $given)*)) }.done()?;
                Ok($name(raw))
            }

            pub(super) fn raw(&self) -> $raw {
                self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: it was made by its only constructor, and has no other owner. What is not freed ends with the
                // process.
                let _ = unsafe { call!($library::$destroy(self.0)) };
            }
        }
    )* };
}

owners! {
    /// Shape of a dense tensor `[n, c, h, w]`, or `[n, h, w, c]` with channels last.
    TensorShape = dnn::cudnnTensorDescriptor_t, dnn::cudnnCreateTensorDescriptor(), cudnnDestroyTensorDescriptor;
    /// Shape of dense filters `[k, c, h, w]`, or `[k, h, w, c]` with channels last.
    FilterShape = dnn::cudnnFilterDescriptor_t, dnn::cudnnCreateFilterDescriptor(), cudnnDestroyFilterDescriptor;
    /// A convolution's window.
    Window = dnn::cudnnConvolutionDescriptor_t, dnn::cudnnCreateConvolutionDescriptor(), cudnnDestroyConvolutionDescriptor;
    /// A ReLU.
    Rectifier = dnn::cudnnActivationDescriptor_t, dnn::cudnnCreateActivationDescriptor(), cudnnDestroyActivationDescriptor;
    /// A handle of cuBLASLt.
    Multiplier = lt::cublasLtHandle_t, lt::cublasLtCreate(), cublasLtDestroy;
    /// Layout of a column-major matrix.
    MatrixShape = lt::cublasLtMatrixLayout_t,
        lt::cublasLtMatrixLayoutCreate(of: lt::cudaDataType, rows: u64, columns: u64, stride: i64), cublasLtMatrixLayoutDestroy;
    /// Options of a product.
    Operation = lt::cublasLtMatmulDesc_t,
        lt::cublasLtMatmulDescCreate(factors: lt::cublasComputeType_t, scale: lt::cudaDataType), cublasLtMatmulDescDestroy;
    /// Limits for the choice of its algorithm.
    Preference = lt::cublasLtMatmulPreference_t, lt::cublasLtMatmulPreferenceCreate(), cublasLtMatmulPreferenceDestroy;
}

/// The format of elements; sizes are passed in the same order for both.
fn format(channels_last: bool) -> dnn::cudnnTensorFormat_t {
    if channels_last {
        dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC
    } else {
        dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW
    }
}

impl TensorShape {
    /// For samples, channels, height and width.
    pub(super) fn new(
        of: dnn::cudnnDataType_t,
        channels_last: bool,
        sizes: [u32; 4],
    ) -> Result<TensorShape, DeviceError> {
        let ([n, c, h, w], format) = (sizes_of("a tensor", sizes)?, format(channels_last));
        let shape = TensorShape::created()?;
        // SAFETY: it has just been made.
        unsafe { call!(dnn::cudnnSetTensor4dDescriptor(shape.0, format, of, n, c, h, w)) }.done()?;
        Ok(shape)
    }
}

impl FilterShape {
    /// For filters, channels of a group, height and width.
    pub(super) fn new(
        of: dnn::cudnnDataType_t,
        channels_last: bool,
        sizes: [u32; 4],
    ) -> Result<FilterShape, DeviceError> {
        let ([k, c, h, w], format) = (sizes_of("filters", sizes)?, format(channels_last));
        let shape = FilterShape::created()?;
        // SAFETY: it has just been made.
        unsafe { call!(dnn::cudnnSetFilter4dDescriptor(shape.0, of, format, k, c, h, w)) }.done()?;
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
        let window = Window::created()?;
        // SAFETY: it has just been made.
        unsafe {
            call!(dnn::cudnnSetConvolution2dDescriptor(window.0, pad_h, pad_w, down, right, high, wide, mode, sums))
        }
        .done()?;
        // SAFETY: as above.
        unsafe { call!(dnn::cudnnSetConvolutionGroupCount(window.0, groups)) }.done()?;
        Ok(window)
    }

    pub(super) fn set_math(&self, math: dnn::cudnnMathType_t) -> Result<(), DeviceError> {
        // SAFETY: it is alive.
        unsafe { call!(dnn::cudnnSetConvolutionMathType(self.0, math)) }.done()
    }
}

impl Rectifier {
    pub(super) fn new() -> Result<Rectifier, DeviceError> {
        let mode = dnn::cudnnActivationMode_t::CUDNN_ACTIVATION_RELU;
        // cudnnConvolutionBiasActivationForward supports nothing else; so a NaN becomes visible only in later layers.
        let not_a_number = dnn::cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN;
        let rectifier = Rectifier::created()?;
        // SAFETY: it has just been made.
        unsafe { call!(dnn::cudnnSetActivationDescriptor(rectifier.0, mode, not_a_number, 0.0)) }.done()?;
        Ok(rectifier)
    }
}

impl Operation {
    /// Sets an attribute whose type in C is `T`.
    pub(super) fn set<T: Copy>(&self, what: lt::cublasLtMatmulDescAttributes_t, value: T) -> Result<(), DeviceError> {
        let from = (&raw const value).cast();
        // SAFETY: it is alive, and the library reads exactly the bytes of the value.
        unsafe { call!(lt::cublasLtMatmulDescSetAttribute(self.0, what, from, size_of::<T>())) }.done()
    }
}

impl Preference {
    /// Sets an attribute whose type in C is `T`.
    pub(super) fn set<T: Copy>(
        &self,
        what: lt::cublasLtMatmulPreferenceAttributes_t,
        value: T,
    ) -> Result<(), DeviceError> {
        let from = (&raw const value).cast();
        // SAFETY: it is alive, and the library reads exactly the bytes of the value.
        unsafe { call!(lt::cublasLtMatmulPreferenceSetAttribute(self.0, what, from, size_of::<T>())) }.done()
    }
}

fn sizes_of<const N: usize>(what: &str, sizes: [u32; N]) -> Result<[c_int; N], DeviceError> {
    let refuse = |size| refused(what, format!("a size of {size} does not fit in 31 bits"));
    let mut numbers = [0; N];
    for (number, size) in numbers.iter_mut().zip(sizes) {
        *number = c_int::try_from(size).map_err(|_| refuse(size))?;
    }
    Ok(numbers)
}
