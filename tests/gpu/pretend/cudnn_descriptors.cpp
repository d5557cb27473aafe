// cuDNN's handles and descriptors.

#include "cudnn.hpp"

namespace pretend {

#define REGISTRY(name, type)                      \
    Handles<type>& name() {                       \
        static auto& all = *new Handles<type>;    \
        return all;                               \
    }
REGISTRY(cudnn_handles, CudnnHandle)
REGISTRY(cudnn_tensors, CudnnTensor)
REGISTRY(cudnn_filters, CudnnFilter)
REGISTRY(cudnn_convolutions, CudnnConvolution)
REGISTRY(cudnn_activations, CudnnActivation)
#undef REGISTRY

namespace {

void need(bool holds, cudnnStatus_t otherwise = CUDNN_STATUS_BAD_PARAM) {
    if (!holds) throw CudnnRefusal{otherwise};
}

Number number_of(int type) {
    need(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16, CUDNN_STATUS_NOT_SUPPORTED);
    return type == CUDNN_DATA_FLOAT ? Number::F32 : Number::Bf16;
}

void set(CudnnTensor& tensor, int format, int type, int first, int second, int third, int fourth) {
    need(first > 0 && second > 0 && third > 0 && fourth > 0);
    need(format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC, CUDNN_STATUS_NOT_SUPPORTED);
    tensor.number = number_of(type), tensor.channels_last = format == CUDNN_TENSOR_NHWC, tensor.set = true;
    tensor.sizes[0] = first, tensor.sizes[1] = second, tensor.sizes[2] = third, tensor.sizes[3] = fourth;
}

template <class T>
cudnnStatus_t create(Handles<T>& all, void** handle) {
    return cudnn_call([&] { *handle = all.add(std::make_shared<T>()); });
}

template <class T>
cudnnStatus_t destroy(Handles<T>& all, void* handle) {
    return cudnn_call([&] { all.take(handle); });
}

}  // namespace

PRETEND_API size_t cudnnGetVersion() { return 90999; }

PRETEND_API const char* cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
        case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
        case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
        case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
        case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER: return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
        case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT: return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
        case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
        case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
        case CUDNN_STATUS_NOT_SUPPORTED_OF_TOMORROW: break;
    }
    return "CUDNN_STATUS unknown";
}

PRETEND_API cudnnStatus_t cudnnCreate(void** handle) {
    return cudnn_call([&] {
        need(world().initialised, CUDNN_STATUS_NOT_INITIALIZED);
        Context& context = current();
        not_while_capturing();
        *handle = cudnn_handles().add(std::make_shared<CudnnHandle>(CudnnHandle{context, context.null_stream}));
    });
}

PRETEND_API cudnnStatus_t cudnnDestroy(void* handle) { return destroy(cudnn_handles(), handle); }

PRETEND_API cudnnStatus_t cudnnSetStream(void* handle, CUstream stream) {
    return cudnn_call([&] {
        const auto own = cudnn_handles().get(handle);
        own->stream = stream_of(own->context, stream);
    });
}

PRETEND_API cudnnStatus_t cudnnCreateTensorDescriptor(void** handle) { return create(cudnn_tensors(), handle); }
PRETEND_API cudnnStatus_t cudnnDestroyTensorDescriptor(void* handle) { return destroy(cudnn_tensors(), handle); }
PRETEND_API cudnnStatus_t cudnnCreateFilterDescriptor(void** handle) { return create(cudnn_filters(), handle); }
PRETEND_API cudnnStatus_t cudnnDestroyFilterDescriptor(void* handle) { return destroy(cudnn_filters(), handle); }
PRETEND_API cudnnStatus_t cudnnCreateConvolutionDescriptor(void** handle) { return create(cudnn_convolutions(), handle); }
PRETEND_API cudnnStatus_t cudnnDestroyConvolutionDescriptor(void* handle) { return destroy(cudnn_convolutions(), handle); }
PRETEND_API cudnnStatus_t cudnnCreateActivationDescriptor(void** handle) { return create(cudnn_activations(), handle); }
PRETEND_API cudnnStatus_t cudnnDestroyActivationDescriptor(void* handle) { return destroy(cudnn_activations(), handle); }

PRETEND_API cudnnStatus_t cudnnSetTensor4dDescriptor(void* handle, int format, int type, int n, int c, int h, int w) {
    return cudnn_call([&] { set(*cudnn_tensors().get(handle), format, type, n, c, h, w); });
}

PRETEND_API cudnnStatus_t cudnnSetFilter4dDescriptor(void* handle, int type, int format, int k, int c, int h, int w) {
    return cudnn_call([&] { set(*cudnn_filters().get(handle), format, type, k, c, h, w); });
}

PRETEND_API cudnnStatus_t cudnnSetConvolution2dDescriptor(
    void* handle, int padding_height, int padding_width, int stride_height, int stride_width, int dilation_height,
    int dilation_width, int mode, int type) {
    return cudnn_call([&] {
        need(padding_height >= 0 && padding_width >= 0 && stride_height > 0 && stride_width > 0);
        need(dilation_height > 0 && dilation_width > 0);
        need(mode == CUDNN_CROSS_CORRELATION && type == CUDNN_DATA_FLOAT, CUDNN_STATUS_NOT_SUPPORTED);
        CudnnConvolution& own = *cudnn_convolutions().get(handle);
        own.set = true;
        own.padding[0] = padding_height, own.padding[1] = padding_width;
        own.stride[0] = stride_height, own.stride[1] = stride_width;
        own.dilation[0] = dilation_height, own.dilation[1] = dilation_width;
    });
}

PRETEND_API cudnnStatus_t cudnnSetConvolutionGroupCount(void* handle, int groups) {
    return cudnn_call([&] {
        need(groups > 0);
        cudnn_convolutions().get(handle)->groups = groups;
    });
}

PRETEND_API cudnnStatus_t cudnnSetConvolutionMathType(void* handle, int math) {
    return cudnn_call([&] {
        need(math >= CUDNN_DEFAULT_MATH && math <= CUDNN_FMA_MATH);
        cudnn_convolutions().get(handle)->math = math;
    });
}

PRETEND_API cudnnStatus_t cudnnSetActivationDescriptor(void* handle, int mode, int, double) {
    return cudnn_call([&] {
        need(mode == CUDNN_ACTIVATION_RELU || mode == CUDNN_ACTIVATION_IDENTITY, CUDNN_STATUS_NOT_SUPPORTED);
        const auto own = cudnn_activations().get(handle);
        own->set = true, own->mode = mode;
    });
}

}  // namespace pretend
