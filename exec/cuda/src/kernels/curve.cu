// Sigmoid and tanh.

// y ← 1 / (1 + e⁻ˣ). y may be x.
KERNEL(sigmoid_forward)(const Real* x, Real* y, u32 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = 1.0f / (1.0f + expf(-values[lane]));
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y · y · (1 − y), or adds that. d_x may be d_y.
KERNEL(sigmoid_backward)(const Real* d_y, const Real* y, Real* d_x, u32 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float slopes[4], values[4];
        load(d_y, group, slopes);
        load(y, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) slopes[lane] = slopes[lane] * (values[lane] * (1.0f - values[lane]));
        merge(d_x, group, slopes, accumulate);
    }, d_x, d_y, y);
}

// y ← tanh x. y may be x.
KERNEL(tanh_forward)(const Real* x, Real* y, u32 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = tanhf(values[lane]);
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y · (1 − y²), or adds that. d_x may be d_y.
KERNEL(tanh_backward)(const Real* d_y, const Real* y, Real* d_x, u32 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float slopes[4], values[4];
        load(d_y, group, slopes);
        load(y, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) slopes[lane] = slopes[lane] * (1.0f - values[lane] * values[lane]);
        merge(d_x, group, slopes, accumulate);
    }, d_x, d_y, y);
}
