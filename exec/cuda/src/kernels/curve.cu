// Sigmoid and tanh.

// y ← 1 / (1 + e⁻ˣ). y may alias x.
KERNEL(sigmoid_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return 1.0f / (1.0f + expf(-x)); });
}

// d_x ← d_y · y · (1 − y), or adds that. d_x may alias d_y.
KERNEL(sigmoid_backward)(const Real* d_y, const Real* y, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, y, d_x, elements, accumulate, [](float y) { return y * (1.0f - y); });
}

// y ← tanh x. y may alias x.
KERNEL(tanh_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return tanhf(x); });
}

// d_x ← d_y · (1 − y²), or adds that. d_x may alias d_y.
KERNEL(tanh_backward)(const Real* d_y, const Real* y, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, y, d_x, elements, accumulate, [](float y) { return 1.0f - y * y; });
}
