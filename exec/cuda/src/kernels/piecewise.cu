// Activations of straight or parabolic pieces.

// y ← min(max(x, 0), 6). y may alias x.
KERNEL(relu6_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return x <= 0.0f ? 0.0f : x >= 6.0f ? 6.0f : x; });
}

// d_x ← d_y where 0 < y < 6, else 0, or adds that. d_x may alias d_y.
KERNEL(relu6_backward)(const Real* d_y, const Real* y, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, y, d_x, elements, accumulate, [](float y) { return y > 0.0f && y < 6.0f ? 1.0f : 0.0f; });
}

// min(max(x/6 + 1/2, 0), 1).
__device__ inline float gate(float x) {
    const float line = x * (1.0f / 6.0f) + 0.5f;
    return line <= 0.0f ? 0.0f : line >= 1.0f ? 1.0f : line;
}

// y ← min(max(x/6 + 1/2, 0), 1). y may alias x.
KERNEL(hard_sigmoid_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return gate(x); });
}

// d_x ← d_y / 6 where 0 < y < 1, else 0, or adds that. d_x may alias d_y.
KERNEL(hard_sigmoid_backward)(const Real* d_y, const Real* y, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, y, d_x, elements, accumulate, [](float y) { return y > 0.0f && y < 1.0f ? 1.0f / 6.0f : 0.0f; });
}

// y ← x · min(max(x/6 + 1/2, 0), 1). y may alias x.
KERNEL(hard_swish_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return x * gate(x); });
}

// d_x ← d_y · (x/3 + 1/2) between −3 and 3, 0 below and d_y above, or adds that. d_x may alias d_y.
KERNEL(hard_swish_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, x, d_x, elements, accumulate, [](float x) {
        return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x * (1.0f / 3.0f) + 0.5f;
    });
}
