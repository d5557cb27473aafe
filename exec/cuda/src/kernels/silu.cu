// SiLU.

// y ← x / (1 + e⁻ˣ). y may alias x.
KERNEL(silu_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return x / (1.0f + expf(-x)); });
}

// d_x ← d_y · σ · (1 + x · (1 − σ)) with σ = 1 / (1 + e⁻ˣ), or adds that. d_x may alias d_y.
KERNEL(silu_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, x, d_x, elements, accumulate, [](float x) {
        const float share = 1.0f / (1.0f + expf(-x));
        return share * (1.0f + x * (1.0f - share));
    });
}
