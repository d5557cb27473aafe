// Which algorithms cuDNN offers for a pass, best first: some that a careful caller must not take are among them.

#include <vector>

#include "cudnn.hpp"

namespace pretend {

namespace {

// More than any device has.
constexpr size_t HUGE_BYTES = size_t(1) << 40;

enum class Scratch { None, Some, Huge, Unsupported };

struct Algorithm {
    int number;
    bool deterministic;
    Scratch scratch;
    // As the tables of cuDNN's manual have it: FFT and Winograd want channels first.
    bool channels_last = false;
};

// One that nobody knew when this cuDNN's callers were written.
constexpr int NEWER = 97;

// FFT wants too much, GEMM does nothing here, Winograd wants a little, implicit GEMM nothing.
const std::vector<Algorithm> FORWARD = {
    {NEWER, true, Scratch::None, true}, {4, true, Scratch::Huge}, {7, true, Scratch::Some},
    {1, true, Scratch::Some, true}, {0, true, Scratch::None, true}, {2, true, Scratch::Unsupported}};
const std::vector<Algorithm> BACKWARD_DATA = {
    {0, false, Scratch::None, true}, {2, true, Scratch::Huge}, {5, true, Scratch::Some},
    {1, true, Scratch::Some, true}, {3, true, Scratch::Unsupported}};
const std::vector<Algorithm> BACKWARD_FILTER = {
    {0, false, Scratch::None, true}, {2, true, Scratch::Huge}, {5, true, Scratch::Some},
    {1, true, Scratch::Some, true}, {3, false, Scratch::Some}};

const std::vector<Algorithm>& all(Pass pass) {
    return pass == Pass::Forward ? FORWARD : pass == Pass::BackwardData ? BACKWARD_DATA : BACKWARD_FILTER;
}

const Algorithm& one(Pass pass, int number) {
    for (const Algorithm& algorithm : all(pass))
        if (algorithm.number == number) return algorithm;
    throw CudnnRefusal{CUDNN_STATUS_NOT_SUPPORTED};
}

bool does(const Algorithm& algorithm, bool channels_last) {
    return algorithm.scratch != Scratch::Unsupported && (algorithm.channels_last || !channels_last);
}

// As cudnnConvolutionFwdAlgoPerfStruct and its siblings.
struct Performance {
    int algorithm;
    cudnnStatus_t status;
    float seconds;
    size_t bytes;
    int deterministic, math;
    int reserved[3];
};
static_assert(sizeof(Performance) == 48);

cudnnStatus_t offer(Pass pass, void* handle, void* x, void* w, void* convolution, void* y, int wanted, int* count, Performance* into) {
    return cudnn_call([&] {
        cudnn_handles().get(handle);
        const auto rules = set_one(cudnn_convolutions(), convolution);
        const auto sizes = sizes_of(set_one(cudnn_tensors(), x), set_one(cudnn_filters(), w), rules, set_one(cudnn_tensors(), y));
        if (wanted < 1 || !into || !count) throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM};
        *count = 0;
        const bool channels_last = set_one(cudnn_tensors(), x).channels_last;
        for (const Algorithm& algorithm : all(pass)) {
            if (*count == wanted) break;
            Performance& own = into[*count];
            own = {algorithm.number, CUDNN_STATUS_SUCCESS, 1e-3f * float(++*count), 0, algorithm.deterministic, rules.math, {}};
            // The reason is one that only this version gives.
            if (!does(algorithm, channels_last)) own.status = CUDNN_STATUS_NOT_SUPPORTED_OF_TOMORROW, own.seconds = -1;
            else own.bytes = workspace_of(pass, algorithm.number, sizes, channels_last);
        }
    });
}

cudnnStatus_t ask(Pass pass, void* handle, void* x, void* w, void* convolution, void* y, int algorithm, size_t* bytes) {
    return cudnn_call([&] {
        cudnn_handles().get(handle);
        const auto rules = set_one(cudnn_convolutions(), convolution);
        const auto sizes = sizes_of(set_one(cudnn_tensors(), x), set_one(cudnn_filters(), w), rules, set_one(cudnn_tensors(), y));
        *bytes = workspace_of(pass, algorithm, sizes, set_one(cudnn_tensors(), x).channels_last);
    });
}

}  // namespace

ConvolutionSizes sizes_of(const CudnnTensor& x, const CudnnFilter& w, const CudnnConvolution& own, const CudnnTensor& y) {
    const ConvolutionSizes sizes{
        x.sizes[0], x.sizes[1], x.sizes[2], x.sizes[3], w.sizes[0], y.sizes[2], y.sizes[3], w.sizes[2], w.sizes[3],
        own.stride[0], own.stride[1], own.padding[0], own.padding[1], own.dilation[0], own.dilation[1], own.groups};
    const auto outputs = [&](long size, int kernel, int axis) {
        const long reach = long(own.dilation[axis]) * (kernel - 1) + 1;
        return (size + 2 * own.padding[axis] - reach) / own.stride[axis] + 1;
    };
    const bool fits = y.sizes[0] == x.sizes[0] && y.sizes[1] == w.sizes[0] && x.sizes[1] == w.sizes[1] * own.groups &&
                      w.sizes[0] % own.groups == 0 && y.sizes[2] == outputs(x.sizes[2], w.sizes[2], 0) &&
                      y.sizes[3] == outputs(x.sizes[3], w.sizes[3], 1) && x.number == w.number && x.number == y.number;
    if (!fits) throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM};
    if (x.channels_last != w.channels_last || x.channels_last != y.channels_last)
        throw CudnnRefusal{CUDNN_STATUS_NOT_SUPPORTED};
    return sizes;
}

size_t workspace_of(Pass pass, int number, const ConvolutionSizes& sizes, bool channels_last) {
    const Algorithm& algorithm = one(pass, number);
    if (!does(algorithm, channels_last)) throw CudnnRefusal{CUDNN_STATUS_NOT_SUPPORTED_OF_TOMORROW};
    switch (algorithm.scratch) {
        case Scratch::None: return 0;
        case Scratch::Some: return 512 + 4 * sizes.weights();
        case Scratch::Huge: return HUGE_BYTES;
        case Scratch::Unsupported: break;
    }
    throw CudnnRefusal{CUDNN_STATUS_NOT_SUPPORTED};
}

bool is_deterministic(Pass pass, int number) { return one(pass, number).deterministic; }

PRETEND_API cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    void* handle, void* x, void* w, void* convolution, void* y, int wanted, int* count, Performance* into) {
    return offer(Pass::Forward, handle, x, w, convolution, y, wanted, count, into);
}
PRETEND_API cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    void* handle, void* w, void* d_y, void* convolution, void* d_x, int wanted, int* count, Performance* into) {
    return offer(Pass::BackwardData, handle, d_x, w, convolution, d_y, wanted, count, into);
}
PRETEND_API cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    void* handle, void* x, void* d_y, void* convolution, void* d_w, int wanted, int* count, Performance* into) {
    return offer(Pass::BackwardFilter, handle, x, d_w, convolution, d_y, wanted, count, into);
}

PRETEND_API cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    void* handle, void* x, void* w, void* convolution, void* y, int algorithm, size_t* bytes) {
    return ask(Pass::Forward, handle, x, w, convolution, y, algorithm, bytes);
}
PRETEND_API cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    void* handle, void* w, void* d_y, void* convolution, void* d_x, int algorithm, size_t* bytes) {
    return ask(Pass::BackwardData, handle, d_x, w, convolution, d_y, algorithm, bytes);
}
PRETEND_API cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    void* handle, void* x, void* d_y, void* convolution, void* d_w, int algorithm, size_t* bytes) {
    return ask(Pass::BackwardFilter, handle, x, d_w, convolution, d_y, algorithm, bytes);
}

}  // namespace pretend
