// Squares.

// y ← x². y may alias x.
KERNEL(square_forward)(const Real* x, Real* y, u32 elements) {
    each_value(x, y, elements, [](float x) { return x * x; });
}

// d_x ← d_y · 2x, or adds that. d_x may alias d_y.
KERNEL(square_backward)(const Real* d_y, const Real* x, Real* d_x, u32 elements, bool accumulate) {
    each_derivative(d_y, x, d_x, elements, accumulate, [](float x) { return 2.0f * x; });
}
