// SiLU.

// y ← x / (1 + e⁻ˣ). y may be x.
KERNEL(silu_forward)(const Real* x, Real* y, u32 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] /= 1.0f + expf(-values[lane]);
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y · σ · (1 + x · (1 − σ)) with σ = 1 / (1 + e⁻ˣ), or adds that. d_x may be d_y.
KERNEL(silu_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float slopes[4], values[4];
        load(d_y, group, slopes);
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float at = values[lane], share = 1.0f / (1.0f + expf(-at));
            slopes[lane] *= share * (1.0f + at * (1.0f - share));
        }
        merge(d_x, group, slopes, accumulate);
    }, d_x, d_y, x);
}
