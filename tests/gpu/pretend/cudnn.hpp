// cuDNN's types and numbers, and its descriptors.

#pragma once
#include "convolution.hpp"
#include "numbers.hpp"
#include "stream.hpp"

namespace pretend {

enum cudnnStatus_t : int {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER = 2003,
    CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT = 2006,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    // One that came after this cuDNN's callers were written.
    CUDNN_STATUS_NOT_SUPPORTED_OF_TOMORROW = 3998,
    CUDNN_STATUS_EXECUTION_FAILED = 5000,
};

enum : int { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_BFLOAT16 = 9 };
enum : int { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1, CUDNN_CROSS_CORRELATION = 1 };
enum : int { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 };
enum : int { CUDNN_ACTIVATION_RELU = 1, CUDNN_ACTIVATION_IDENTITY = 5 };

// A call's answer that is not success.
struct CudnnRefusal {
    cudnnStatus_t status;
};

// A tensor's shape, or a filter's: filters, channels of a group, height, width; in memory these two may come before the
// channels.
struct CudnnTensor {
    bool set = false, channels_last = false;
    Number number = Number::F32;
    int sizes[4] = {};

    size_t elements() const { return size_t(sizes[0]) * sizes[1] * sizes[2] * sizes[3]; }
    size_t bytes() const { return elements() * size_of(number); }
};
struct CudnnFilter : CudnnTensor {};

struct CudnnConvolution {
    bool set = false;
    int padding[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1};
    int groups = 1, math = CUDNN_DEFAULT_MATH;
};

struct CudnnActivation {
    bool set = false;
    int mode = CUDNN_ACTIVATION_IDENTITY;
};

struct CudnnHandle {
    Context& context;
    std::shared_ptr<Stream> stream;
};

Handles<CudnnHandle>& cudnn_handles();
Handles<CudnnTensor>& cudnn_tensors();
Handles<CudnnFilter>& cudnn_filters();
Handles<CudnnConvolution>& cudnn_convolutions();
Handles<CudnnActivation>& cudnn_activations();

// Runs a call; what is refused becomes a status.
template <class Body>
cudnnStatus_t cudnn_call(Body body) {
    std::lock_guard hold(world().lock);
    if (world().fails("cudnn")) return CUDNN_STATUS_NOT_SUPPORTED_OF_TOMORROW;
    try {
        body();
        return CUDNN_STATUS_SUCCESS;
    } catch (const CudnnRefusal& refusal) {
        return refusal.status;
    } catch (const Refusal& refusal) {
        return refusal.code == CUDA_ERROR_INVALID_HANDLE ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_EXECUTION_FAILED;
    }
}

// A descriptor that has been set.
template <class T>
T set_one(const Handles<T>& all, void* handle) {
    const auto found = all.get(handle);
    if (!found->set) throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM};
    return *found;
}

// ---- Algorithms ----

enum class Pass { Forward, BackwardData, BackwardFilter };

// The sizes of a convolution whose descriptors fit together, all with channels last or none; else throws.
ConvolutionSizes sizes_of(const CudnnTensor& x, const CudnnFilter& w, const CudnnConvolution& convolution, const CudnnTensor& y);

// The bytes of scratch that an algorithm takes; throws where it does not do these sizes or this layout.
size_t workspace_of(Pass pass, int algorithm, const ConvolutionSizes& sizes, bool channels_last);

// Whether it ends with the same bits each time.
bool is_deterministic(Pass pass, int algorithm);

}  // namespace pretend
