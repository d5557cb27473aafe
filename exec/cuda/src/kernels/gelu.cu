// GELU by its tanh approximation.

// tanh(√(2/π) · (x + 0.044715·x³)).
__device__ inline float gelu_bend(float x) { return tanhf(0.7978846f * (x + 0.044715f * x * x * x)); }

// y ← x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))). y may alias x.
KERNEL(gelu_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return 0.5f * x * (1.0f + gelu_bend(x)); });
}

// d_x ← d_y times the derivative at x, or adds that. d_x may alias d_y.
KERNEL(gelu_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, x, d_x, elements, accumulate, [](float x) {
        const float bent = gelu_bend(x), inner = 0.7978846f * (1.0f + 3.0f * 0.044715f * x * x);
        return 0.5f * (1.0f + bent) + 0.5f * x * (1.0f - bent * bent) * inner;
    });
}
