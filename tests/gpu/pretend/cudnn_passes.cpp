// cuDNN's passes of a convolution, as work of a stream.

#include "cudnn.hpp"
#include "memory.hpp"
#include "workspace.hpp"

namespace pretend {

namespace {

// Of all addresses, in bytes.
constexpr CUdeviceptr ALIGNMENT = 16;

struct Scratch {
    CUdeviceptr address;
    size_t bytes;
};

// result ← alpha·sums + beta·result + addend·more + bias, rectified or not. What is multiplied by 0 is not read.
struct Ending {
    float alpha = 1, beta = 0, addend = 0;
    CUdeviceptr more = 0, bias = 0;
    bool rectified = false;
};

struct Task {
    Pass pass;
    ConvolutionSizes sizes;
    Number number;
    bool channels_last;
    int math, algorithm;
    CUdeviceptr left, right, result;
    Ending ending;
};

// A tensor's sizes: samples or filters, channels, pixels of a channel.
struct Extent {
    size_t outer, channels, plane;

    size_t count() const { return outer * channels * plane; }
    // Where in memory lies what the loops have at `at`, which is with channels first.
    size_t place(size_t at, bool channels_last) const {
        if (!channels_last) return at;
        const size_t pixel = at % plane, channel = at / plane % channels, first = at / plane / channels;
        return (first * plane + pixel) * channels + channel;
    }
};

Extent extent_of(const Task& task, int operand) {
    const ConvolutionSizes& of = task.sizes;
    const Extent input{size_t(of.samples), size_t(of.channels), size_t(of.height * of.width)};
    const Extent weights{size_t(of.filters), size_t(of.channels / of.groups), size_t(of.kernel_height * of.kernel_width)};
    const Extent output{size_t(of.samples), size_t(of.filters), size_t(of.out_height * of.out_width)};
    switch (task.pass) {
        case Pass::Forward: return operand == 0 ? input : operand == 1 ? weights : output;
        case Pass::BackwardData: return operand == 0 ? weights : operand == 1 ? output : input;
        case Pass::BackwardFilter: return operand == 0 ? input : operand == 1 ? output : weights;
    }
    return input;
}

void finish(const Context& context, const Task& task, const std::vector<double>& sums) {
    const Number number = task.number;
    const Ending& ending = task.ending;
    const size_t bytes = size_of(number) * sums.size(), plane = size_t(task.sizes.out_height * task.sizes.out_width);
    const Extent extent = extent_of(task, 2);
    char* result = range(context, task.result, bytes, "a convolution's result");
    const char* more = ending.addend != 0 ? range(context, ending.more, bytes, "a convolution's addend") : nullptr;
    const char* bias =
        ending.bias ? range(context, ending.bias, 4 * size_t(task.sizes.filters), "a convolution's bias") : nullptr;
    const bool exact = is_deterministic(task.pass, task.algorithm);
    for (size_t at = 0; at < sums.size(); ++at) {
        const size_t place = extent.place(at, task.channels_last);
        double value = double(ending.alpha) * sums[at];
        if (ending.beta != 0) value = double(float(value)) + double(ending.beta) * read_one(result, place, number);
        if (more) value += double(ending.addend) * read_one(more, place, number);
        if (bias) value = double(float(value)) + read_one(bias, at / plane % size_t(task.sizes.filters), Number::F32);
        float rounded = float(value);
        if (!exact && world().draw(4) == 0) rounded = std::nextafter(rounded, 0.0f);
        // NaNs are not handed on, as the descriptor has it.
        if (ending.rectified && !(rounded > 0)) rounded = 0;
        write_one(result, place, rounded, number);
    }
}

void compute(const Context& context, const Task& task) {
    // Tensor cores see fp32 numbers with 10 bits of mantissa; only FMA math forbids them, and only since Ampere.
    const bool tf32 = task.math != CUDNN_FMA_MATH && world().settings.major >= 8;
    const auto operand = [&](CUdeviceptr address, int which) {
        const Extent extent = extent_of(task, which);
        const size_t count = extent.count();
        const char* from = range(context, address, count * size_of(task.number), "a convolution's operand");
        std::vector<float> all = read(from, count, task.number, tf32);
        if (!task.channels_last) return all;
        std::vector<float> first(count);
        for (size_t at = 0; at < count; ++at) first[at] = all[extent.place(at, true)];
        return first;
    };
    const std::vector<float> left = operand(task.left, 0), right = operand(task.right, 1);
    std::vector<double> sums(extent_of(task, 2).count());
    switch (task.pass) {
        case Pass::Forward: convolve_forward(task.sizes, left.data(), right.data(), sums.data()); break;
        case Pass::BackwardData: convolve_backward_data(task.sizes, left.data(), right.data(), sums.data()); break;
        case Pass::BackwardFilter: convolve_backward_filter(task.sizes, left.data(), right.data(), sums.data()); break;
    }
    finish(context, task, sums);
}

void give(void* handle, const Task& task, Scratch scratch) {
    const auto own = cudnn_handles().get(handle);
    Context& context = current();
    if (&own->context != &context || own->stream->destroyed) throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM};
    const size_t wanted = workspace_of(task.pass, task.algorithm, task.sizes, task.channels_last);
    if (scratch.bytes < wanted || (wanted > 0 && scratch.address == 0))
        throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT};
    if (!task.left || !task.right || !task.result) throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM};
    for (const CUdeviceptr at : {task.left, task.right, task.result, task.ending.more, task.ending.bias, scratch.address})
        if (at % ALIGNMENT != 0) throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER};
    Context* of = &context;
    enqueue(*own->stream, with_workspace(context, scratch.address, wanted, [of, task] { compute(*of, task); }));
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

float number(const void* host) { return *static_cast<const float*>(host); }

Task task_of(Pass pass, void* x, void* w, void* convolution, void* y, int algorithm) {
    const auto rules = set_one(cudnn_convolutions(), convolution);
    const CudnnTensor input = set_one(cudnn_tensors(), x);
    const ConvolutionSizes sizes = sizes_of(input, set_one(cudnn_filters(), w), rules, set_one(cudnn_tensors(), y));
    return Task{pass, sizes, input.number, input.channels_last, rules.math, algorithm, 0, 0, 0, {}};
}

}  // namespace

PRETEND_API cudnnStatus_t cudnnConvolutionForward(
    void* handle, const void* alpha, void* x_shape, const void* x, void* w_shape, const void* w, void* convolution,
    int algorithm, void* scratch, size_t scratch_bytes, const void* beta, void* y_shape, void* y) {
    return cudnn_call([&] {
        Task task = task_of(Pass::Forward, x_shape, w_shape, convolution, y_shape, algorithm);
        task.left = address(x), task.right = address(w), task.result = address(y);
        task.ending.alpha = number(alpha), task.ending.beta = number(beta);
        give(handle, task, {address(scratch), scratch_bytes});
    });
}

PRETEND_API cudnnStatus_t cudnnConvolutionBackwardData(
    void* handle, const void* alpha, void* w_shape, const void* w, void* d_y_shape, const void* d_y, void* convolution,
    int algorithm, void* scratch, size_t scratch_bytes, const void* beta, void* d_x_shape, void* d_x) {
    return cudnn_call([&] {
        Task task = task_of(Pass::BackwardData, d_x_shape, w_shape, convolution, d_y_shape, algorithm);
        task.left = address(w), task.right = address(d_y), task.result = address(d_x);
        task.ending.alpha = number(alpha), task.ending.beta = number(beta);
        give(handle, task, {address(scratch), scratch_bytes});
    });
}

PRETEND_API cudnnStatus_t cudnnConvolutionBackwardFilter(
    void* handle, const void* alpha, void* x_shape, const void* x, void* d_y_shape, const void* d_y, void* convolution,
    int algorithm, void* scratch, size_t scratch_bytes, const void* beta, void* d_w_shape, void* d_w) {
    return cudnn_call([&] {
        Task task = task_of(Pass::BackwardFilter, x_shape, d_w_shape, convolution, d_y_shape, algorithm);
        task.left = address(x), task.right = address(d_y), task.result = address(d_w);
        task.ending.alpha = number(alpha), task.ending.beta = number(beta);
        give(handle, task, {address(scratch), scratch_bytes});
    });
}

// Refuses what cuDNN might: filters whose number leaves 2 when divided by four, groups, and bf16.
PRETEND_API cudnnStatus_t cudnnConvolutionBiasActivationForward(
    void* handle, const void* alpha, void* x_shape, const void* x, void* w_shape, const void* w, void* convolution,
    int algorithm, void* scratch, size_t scratch_bytes, const void* addend, void* z_shape, const void* z, void* bias_shape,
    const void* bias, void* activation, void* y_shape, void* y) {
    return cudnn_call([&] {
        Task task = task_of(Pass::Forward, x_shape, w_shape, convolution, y_shape, algorithm);
        const auto form = set_one(cudnn_tensors(), bias_shape);
        const auto z_form = set_one(cudnn_tensors(), z_shape);
        const auto mode = set_one(cudnn_activations(), activation).mode;
        if (form.elements() != size_t(task.sizes.filters) || form.sizes[1] != task.sizes.filters || !bias || !z ||
            z_form.elements() != task.sizes.outputs() || z_form.channels_last != task.channels_last)
            throw CudnnRefusal{CUDNN_STATUS_BAD_PARAM};
        if (task.sizes.filters % 4 == 2 || task.sizes.groups > 1 || task.number != Number::F32 || form.number != Number::F32 ||
            (mode == CUDNN_ACTIVATION_IDENTITY && algorithm != 1))
            throw CudnnRefusal{CUDNN_STATUS_NOT_SUPPORTED};
        task.left = address(x), task.right = address(w), task.result = address(y);
        task.ending.alpha = number(alpha), task.ending.addend = number(addend), task.ending.more = address(z);
        task.ending.bias = address(bias), task.ending.rectified = mode == CUDNN_ACTIVATION_RELU;
        give(handle, task, {address(scratch), scratch_bytes});
    });
}

}  // namespace pretend
