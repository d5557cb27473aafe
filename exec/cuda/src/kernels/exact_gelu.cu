// GELU by the error function.

// (1 + erf(x/√2)) / 2.
__device__ inline float gelu_share(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }

// y ← x/2 · (1 + erf(x/√2)). y may alias x.
KERNEL(exact_gelu_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return x * gelu_share(x); });
}

// d_x ← d_y times the derivative at x, or adds that. d_x may alias d_y.
KERNEL(exact_gelu_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, x, d_x, elements, accumulate, [](float x) {
        return gelu_share(x) + x * 0.3989423f * expf(-0.5f * x * x);
    });
}
