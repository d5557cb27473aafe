// GELU by its tanh approximation.

// tanh(√(2/π) · (x + 0.044715·x³)).
__device__ inline float gelu_bend(float x) { return tanhf(0.7978846f * (x + 0.044715f * x * x * x)); }

// y ← x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))). y may be x.
KERNEL(gelu_forward)(const Real* x, Real* y, u32 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = 0.5f * values[lane] * (1.0f + gelu_bend(values[lane]));
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y times the slope at x, or adds that. d_x may be d_y.
KERNEL(gelu_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float slopes[4], values[4];
        load(d_y, group, slopes);
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float at = values[lane], bent = gelu_bend(at);
            const float inner = 0.7978846f * (1.0f + 3.0f * 0.044715f * at * at);
            slopes[lane] *= 0.5f * (1.0f + bent) + 0.5f * at * (1.0f - bent * bent) * inner;
        }
        merge(d_x, group, slopes, accumulate);
    }, d_x, d_y, x);
}
