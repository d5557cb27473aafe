// Layers whose elements depend on one element of each input, rows that move, sums of two buffers, and bf16.

// y ← a + b, or relu(a + b). y may be a or b.
extern "C" __global__ void add(const float* a, const float* b, float* y, u32 elements, bool rectified) {
    each_group(elements, [&](const Group& group) {
        float left[4], right[4];
        load(a, group, left);
        load(b, group, right);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float sum = left[lane] + right[lane];
            left[lane] = rectified ? relu(sum) : sum;
        }
        store(y, group, left);
    }, y, a, b);
}

// y ← relu(x). y may be x.
extern "C" __global__ void relu_forward(const float* x, float* y, u32 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = relu(values[lane]);
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y where y > 0, else 0, or adds that. d_x may be d_y.
extern "C" __global__ void relu_backward(const float* d_y, const float* y, float* d_x, u32 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float slopes[4], values[4];
        load(d_y, group, slopes);
        load(y, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) slopes[lane] = values[lane] <= 0.0f ? 0.0f : slopes[lane];
        merge(d_x, group, slopes, accumulate);
    }, d_x, d_y, y);
}

// y ← 1 / (1 + e⁻ˣ), or tanh x. y may be x.
extern "C" __global__ void curve_forward(const float* x, float* y, u32 elements, bool hyperbolic) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane)
            values[lane] = hyperbolic ? tanhf(values[lane]) : 1.0f / (1.0f + expf(-values[lane]));
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y · y · (1 − y), or d_y · (1 − y²), or adds that. d_x may be d_y.
extern "C" __global__ void curve_backward(
    const float* d_y, const float* y, float* d_x, u32 elements, bool hyperbolic, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float slopes[4], values[4];
        load(d_y, group, slopes);
        load(y, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float at = values[lane];
            slopes[lane] = slopes[lane] * (hyperbolic ? 1.0f - at * at : at * (1.0f - at));
        }
        merge(d_x, group, slopes, accumulate);
    }, d_x, d_y, y);
}

// Row r of `to`, at to_first + r · to_stride, gets or has added row r of `from`: a concatenation and its gradient, one launch
// an input, and what a copy between buffers packs or unpacks.
extern "C" __global__ void move_rows(
    const float* from, u64 from_first, u64 from_stride, float* to, u64 to_first, u64 to_stride, u32 rows, u32 length,
    bool accumulate) {
    const bool fours = length % 4 == 0 && (rows == 1 || (from_stride % 4 == 0 && to_stride % 4 == 0)) &&
                       offset_of(from + from_first) == 0 && offset_of(to + to_first) == 0;
    const u32 width = fours ? 4 : 1, in_row = length / width;
    const u64 all = u64(rows) * in_row;
    for (u64 index = thread_of_grid(); index < all; index += threads_of_grid()) {
        const u64 row = index / in_row, place = (index - row * in_row) * width;
        const float* source = from + from_first + row * from_stride + place;
        float* target = to + to_first + row * to_stride + place;
        if (fours) {
            float values[4];
            const Group group{0, 0, 4, true};
            load(source, group, values);
            merge(target, group, values, accumulate);
        } else {
            merge(*target, *source, accumulate);
        }
    }
}

// a ← a + b: what a reduction does with a message.
extern "C" __global__ void add_into(float* a, const float* b, u64 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(b, group, values);
        merge(a, group, values, true);
    }, a, b);
}

// y ← x rounded to bf16, halves to even.
extern "C" __global__ void to_bf16(const float* x, u16* y, u64 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
        store(y, group, values);
    }, y, x);
}

// y ← x, exactly, or adds that.
extern "C" __global__ void from_bf16(const u16* x, float* y, u64 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
        merge(y, group, values, accumulate);
    }, y, x);
}
