// Sigmoid and tanh.

// y ← 1 / (1 + e⁻ˣ), or tanh x. y may be x.
KERNEL(curve_forward)(const Real* x, Real* y, u32 elements, bool hyperbolic) {
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
KERNEL(curve_backward)(
    const Real* d_y, const Real* y, Real* d_x, u32 elements, bool hyperbolic, bool accumulate) {
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
