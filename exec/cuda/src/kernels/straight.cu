// Straight lines with constants: a factor and shift, and the leaky ReLU.

// y ← above · x + shift where x > 0, below · x + shift elsewhere. y may alias x.
KERNEL(straight_forward)(const Real* x, Real* y, u32 elements, float above, float below, float shift) {
    each_value(x, y, elements, [=](float x) { return (x > 0.0f ? above : below) * x + shift; });
}

// d_x ← above · d_y where y > 0, below · d_y elsewhere, or adds that; null y: everywhere above. d_x may alias d_y.
KERNEL(straight_backward)(
    const Real* d_y, const Real* y, Real* d_x, u32 elements, float above, float below, bool accumulate) {
    const Real* at = y ? y : d_y;
    const float other = y ? below : above;
    each_derivative(d_y, at, d_x, elements, accumulate, [=](float y) { return y > 0.0f ? above : other; });
}
