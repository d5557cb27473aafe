// Local response normalisation across channels (Krizhevsky, Sutskever, Hinton 2012, section 3.3): with s = k + α·Σ x²
// over the window of channels around x's own, y = x·s^−β and d_x = d_y·s^−β − 2αβ·x·Σ d_y·y/s, the second sum over the
// same window. Neighbouring threads handle neighbouring places, so repeated reads of a window hit the cache.

// The layer's parameters and the tensor's shape; mirrors the host's struct of this name. The window is `half` channels
// on each side.
struct Response {
    u32 channels, plane, half;
    float alpha, beta, k;
};

// s^−β, by two square roots for AlexNet's β.
__device__ inline float inverse_power(float s, float beta) {
    if (beta == 0.75f) {
        const float root = sqrtf(s);
        return 1.0f / (root * sqrtf(root));
    }
    return powf(s, -beta);
}

// Σ term(values) over the window of channels around that of `index`, the lowest first.
template <class R, class Term>
__device__ inline float over_window(const Response& of, const R* values, u64 index, Term term) {
    const u32 channel = u32(index) / of.plane % of.channels;
    const u32 below = channel < of.half ? channel : of.half;
    const u32 above = of.channels - 1 - channel < of.half ? of.channels - 1 - channel : of.half;
    float total = 0.0f;
    for (u64 at = index - u64(below) * of.plane; at <= index + u64(above) * of.plane; at += of.plane)
        total += term(load(values + at));
    return total;
}

__device__ inline float response_scale(const Response& of, const Real* x, u64 index) {
    return of.k + of.alpha * over_window(of, x, index, [](float value) { return value * value; });
}

// y ← x·s^−β.
KERNEL(local_response_forward)(const Real* x, Real* y, u32 elements, Response of) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid())
        store(y + index, load(x + index) * inverse_power(response_scale(of, x, index), of.beta));
}

// ratios ← d_y·y/s, the terms of the gradient's window sum.
KERNEL(local_response_ratios)(
    const Real* d_y, const Real* x, const Real* y, float* ratios, u32 elements, Response of) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid())
        ratios[index] = load(d_y + index) * load(y + index) / response_scale(of, x, index);
}

// d_x ← d_y·s^−β − 2αβ·x·Σ ratios, or adds that.
KERNEL(local_response_backward)(
    const Real* d_y, const Real* x, const float* ratios, Real* d_x, u32 elements, Response of, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const float power = inverse_power(response_scale(of, x, index), of.beta);
        const float sum = over_window(of, ratios, index, [](float ratio) { return ratio; });
        const float rest = 2.0f * of.alpha * of.beta * load(x + index) * sum;
        merge(d_x + index, load(d_y + index) * power - rest, accumulate);
    }
}
