// cuDNN and cuBLASLt: their sums against each other and against loops, and what they refuse.

#include "check.hpp"

namespace {

double dot(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t at = 0; at < a.size(); ++at) sum += double(a[at]) * b[at];
    return sum;
}

// Descriptors of a convolution, fp32 or bf16.
struct Convolution {
    void *handle, *x, *w, *y, *rules;

    Convolution(const int (&in)[4], const int (&filter)[4], const int (&out)[4], int padding, int stride, int groups) {
        OK(cudnnCreate(&handle));
        OK(cudnnCreateTensorDescriptor(&x));
        OK(cudnnCreateTensorDescriptor(&y));
        OK(cudnnCreateFilterDescriptor(&w));
        OK(cudnnCreateConvolutionDescriptor(&rules));
        OK(cudnnSetTensor4dDescriptor(x, 0, 0, in[0], in[1], in[2], in[3]));
        OK(cudnnSetTensor4dDescriptor(y, 0, 0, out[0], out[1], out[2], out[3]));
        OK(cudnnSetFilter4dDescriptor(w, 0, 0, filter[0], filter[1], filter[2], filter[3]));
        OK(cudnnSetConvolution2dDescriptor(rules, padding, padding, stride, stride, 1, 1, 1, 0));
        OK(cudnnSetConvolutionGroupCount(rules, groups));
        OK(cudnnSetConvolutionMathType(rules, 3));
    }
};

const float ONE = 1, NOTHING = 0;

// A convolution is linear in each operand, so ⟨y, d⟩ = ⟨x, its gradient⟩ = ⟨w, its gradient⟩; integers make that exact. The
// forward pass is held to a sum written by hand: four channels in two groups, stride 2, padding 1.
void adjoint() {
    const Device device;
    const Convolution of({2, 4, 7, 7}, {6, 2, 3, 3}, {2, 6, 4, 4}, 1, 2, 2);
    const auto x = integers(2 * 4 * 49, 1), w = integers(6 * 2 * 9, 2), d = integers(2 * 6 * 16, 3);
    const CUdeviceptr x_at = upload(x), w_at = upload(w), d_at = upload(d);
    const CUdeviceptr y_at = new_memory(4 * d.size()), d_x_at = new_memory(4 * x.size()), d_w_at = upload(w);
    OK(cudnnConvolutionForward(
        of.handle, &ONE, of.x, pointer(x_at), of.w, pointer(w_at), of.rules, 0, nullptr, 0, &NOTHING, of.y, pointer(y_at)));
    size_t bytes = 0;
    OK(cudnnGetConvolutionForwardWorkspaceSize(of.handle, of.x, of.w, of.rules, of.y, 1, &bytes));
    EXPECT(bytes > 0);
    const CUdeviceptr scratch = new_memory(bytes);
    OK(cudnnConvolutionBackwardData(
        of.handle, &ONE, of.w, pointer(w_at), of.y, pointer(d_at), of.rules, 1, pointer(scratch), bytes, &NOTHING, of.x,
        pointer(d_x_at)));
    OK(cudnnConvolutionBackwardFilter(
        of.handle, &ONE, of.x, pointer(x_at), of.y, pointer(d_at), of.rules, 1, pointer(scratch), bytes, &ONE, of.w,
        pointer(d_w_at)));
    const auto y = download(y_at, d.size()), d_x = download(d_x_at, x.size());
    auto d_w = download(d_w_at, w.size());
    for (size_t at = 0; at < w.size(); ++at) d_w[at] -= w[at];
    EXPECT(dot(y, d) == dot(x, d_x) && dot(y, d) == dot(w, d_w) && dot(y, d) != 0);
    // Sample 1, filter 4 (group 1, channels 2 and 3), row 3, column 0: rows 5..7 and columns −1..1 of the input.
    float sum = 0;
    for (int channel = 0; channel < 2; ++channel)
        for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s)
                if (5 + r < 7 && s >= 1)
                    sum += x[size_t(((4 + 2 + channel) * 7 + 5 + r) * 7 + s - 1)] * w[size_t(((4 * 2 + channel) * 3 + r) * 3 + s)];
    EXPECT(y[size_t(((6 + 4) * 4 + 3) * 4)] == sum);
    REFUSED(2006, cudnnConvolutionForward(
        of.handle, &ONE, of.x, pointer(x_at), of.w, pointer(w_at), of.rules, 1, nullptr, 0, &NOTHING, of.y, pointer(y_at)));
}

// y ← relu(conv + bias) where cuDNN does it.
void activated() {
    const Device device;
    Convolution of({1, 1, 2, 2}, {4, 1, 1, 1}, {1, 4, 2, 2}, 0, 1, 1);
    void *bias_form, *rectifier;
    OK(cudnnCreateTensorDescriptor(&bias_form));
    OK(cudnnSetTensor4dDescriptor(bias_form, 0, 0, 1, 4, 1, 1));
    OK(cudnnCreateActivationDescriptor(&rectifier));
    OK(cudnnSetActivationDescriptor(rectifier, 1, 0, 0));
    const CUdeviceptr x = upload({1, 2, 3, 4}), w = upload({1, -1, 2, 0}), bias = upload({0, 2, -3, -1}), y = new_memory(64);
    const auto run = [&](CUdeviceptr bias_at) {
        return cudnnConvolutionBiasActivationForward(
            of.handle, &ONE, of.x, pointer(x), of.w, pointer(w), of.rules, 0, nullptr, 0, &NOTHING, of.y, pointer(y), bias_form,
            pointer(bias_at), rectifier, of.y, pointer(y));
    };
    OK(run(bias));
    EXPECT(download(y, 16) == std::vector<float>({1, 2, 3, 4, 1, 0, 0, 0, 0, 1, 3, 5, 0, 0, 0, 0}));
    REFUSED(2003, run(bias + 4));
    OK(cudnnSetTensor4dDescriptor(of.y, 0, 0, 1, 2, 2, 2));
    OK(cudnnSetFilter4dDescriptor(of.w, 0, 0, 2, 1, 1, 1));
    OK(cudnnSetTensor4dDescriptor(bias_form, 0, 0, 1, 2, 1, 1));
    REFUSED(3000, run(bias));
}

// Two streams that share scratch: some of 20 seeds find it, and none where they wait.
unsigned clashes(bool waits) {
    unsigned found = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
        pretend_seed(seed);
        const Device device;
        const Convolution of({1, 1, 4, 4}, {1, 1, 3, 3}, {1, 1, 2, 2}, 0, 1, 1);
        const CUdeviceptr x = upload(integers(16, 1)), w = upload(integers(9, 2)), scratch = new_memory(4096);
        const CUstream streams[] = {new_stream(), new_stream()};
        const CUevent between = new_event();
        for (int turn = 0; turn < 2; ++turn) {
            OK(cudnnSetStream(of.handle, streams[turn]));
            if (waits && turn == 1) OK(cuStreamWaitEvent(streams[1], between, 0));
            OK(cudnnConvolutionForward(
                of.handle, &ONE, of.x, pointer(x), of.w, pointer(w), of.rules, 1, pointer(scratch), 4096, &NOTHING, of.y,
                pointer(new_memory(16))));
            OK(cuEventRecord(between, streams[turn]));
        }
        found += cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return found;
}

// D ← op(A)·op(B) (+ C, or + bias, rectified), column by column, in all four forms, against loops; then the same algorithm with
// too little scratch.
void products() {
    const Device device;
    void *handle, *preference, *layouts[3];
    OK(cublasLtCreate(&handle));
    OK(cublasLtMatmulPreferenceCreate(&preference));
    const uint64_t room = 1 << 20;
    OK(cublasLtMatmulPreferenceSetAttribute(preference, 1, &room, sizeof room));
    constexpr size_t rows = 33, columns = 17, depth = 26;
    const auto a = integers(rows * depth, 1), b = integers(depth * columns, 2), c = integers(rows * columns, 3);
    const CUdeviceptr a_at = upload(a), b_at = upload(b), bias_at = upload(integers(rows, 4)), scratch = new_memory(room);
    const auto bias = download(bias_at, rows);
    for (int form = 0; form < 8; ++form) {
        const int32_t transposed_a = form & 1, transposed_b = form >> 1 & 1;
        const bool ends = form >= 4;
        const float beta = ends ? 0.0f : 1.0f;
        const uint32_t epilogue = ends ? 6 : 1;
        void* product;
        OK(cublasLtMatmulDescCreate(&product, 68, 0));
        OK(cublasLtMatmulDescSetAttribute(product, 3, &transposed_a, 4));
        OK(cublasLtMatmulDescSetAttribute(product, 4, &transposed_b, 4));
        OK(cublasLtMatmulDescSetAttribute(product, 7, &epilogue, 4));
        OK(cublasLtMatmulDescSetAttribute(product, 8, &bias_at, 8));
        OK(cublasLtMatrixLayoutCreate(&layouts[0], 0, transposed_a ? depth : rows, transposed_a ? rows : depth, transposed_a ? depth : rows));
        OK(cublasLtMatrixLayoutCreate(&layouts[1], 0, transposed_b ? columns : depth, transposed_b ? depth : columns, transposed_b ? columns : depth));
        OK(cublasLtMatrixLayoutCreate(&layouts[2], 0, rows, columns, rows));
        struct {
            uint64_t algorithm[8], bytes;
            int state;
            float waves;
            int reserved[4];
        } found[8];
        int count = 0;
        OK(cublasLtMatmulAlgoGetHeuristic(
            handle, product, layouts[0], layouts[1], layouts[2], layouts[2], preference, 8, found, &count));
        EXPECT(count == 2 && found[0].state == 0 && found[0].bytes > 0);
        const CUdeviceptr d = upload(c);
        const auto run = [&](size_t bytes) {
            return cublasLtMatmul(
                handle, product, &ONE, pointer(a_at), layouts[0], pointer(b_at), layouts[1], &beta, pointer(d), layouts[2],
                pointer(d), layouts[2], found[0].algorithm, pointer(scratch), bytes, nullptr);
        };
        REFUSED(7, run(0));
        OK(run(room));
        std::vector<float> expected = ends ? std::vector<float>(rows * columns) : c;
        for (size_t column = 0; column < columns; ++column) {
            for (size_t row = 0; row < rows; ++row) {
                float& sum = expected[column * rows + row];
                for (size_t inner = 0; inner < depth; ++inner)
                    sum += a[transposed_a ? row * depth + inner : inner * rows + row] *
                           b[transposed_b ? inner * columns + column : column * depth + inner];
                if (ends) sum = std::fmax(sum + bias[row], 0.0f);
            }
        }
        EXPECT(download(d, rows * columns) == expected);
    }
}

// A bias that does not lie in sixteens of bytes loses the device.
void misaligned() {
    const Device device;
    void *handle, *product, *layout;
    OK(cublasLtCreate(&handle));
    OK(cublasLtMatmulDescCreate(&product, 68, 0));
    OK(cublasLtMatrixLayoutCreate(&layout, 0, 2, 2, 2));
    const uint32_t epilogue = 4;
    OK(cublasLtMatmulDescSetAttribute(product, 7, &epilogue, 4));
    const CUdeviceptr of = upload({1, 2, 3, 4}), d = new_memory(16);
    const auto run = [&](CUdeviceptr bias) {
        OK(cublasLtMatmulDescSetAttribute(product, 8, &bias, 8));
        OK(cublasLtMatmul(
            handle, product, &ONE, pointer(of), layout, pointer(of), layout, &NOTHING, pointer(d), layout, pointer(d), layout,
            nullptr, nullptr, 0, nullptr));
        return cuCtxSynchronize();
    };
    OK(run(of));
    EXPECT(download(d, 4) == std::vector<float>({8, 12, 16, 24}));
    REFUSED(716, run(of + 4));
}

}  // namespace

void check_libraries() {
    adjoint();
    activated();
    EXPECT(clashes(false) > 0);
    EXPECT(clashes(true) == 0);
    products();
    misaligned();
}
