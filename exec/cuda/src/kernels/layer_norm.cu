// Layer normalisation of each place of [samples, channels, plane] over its channels; with channels last a plane has one
// place. A thread handles a place, a block the parameters of a channel.

// The first element of place `index`.
__device__ inline u64 first_of(u64 index, u32 channels, u32 plane) {
    return index / plane * channels * plane + index % plane;
}

// y ← γ · (x − mean) · inverse + β; keeps the mean and the inverse deviation of each place.
KERNEL(layer_norm_forward)(
    const Real* x, const float* gammas, const float* betas, Real* y, float* kept, u32 places, u32 channels, u32 plane,
    float epsilon) {
    for (u64 index = thread_of_grid(); index < places; index += threads_of_grid()) {
        const u64 first = first_of(index, channels, plane);
        float mean = 0.0f, squares = 0.0f;
        for (u32 c = 0; c < channels; ++c) mean += load(x + first + u64(c) * plane);
        mean /= float(channels);
        for (u32 c = 0; c < channels; ++c) {
            const float off = load(x + first + u64(c) * plane) - mean;
            squares += off * off;
        }
        const float inverse = 1.0f / sqrtf(squares / float(channels) + epsilon);
        kept[2 * index] = mean, kept[2 * index + 1] = inverse;
        for (u32 c = 0; c < channels; ++c) {
            const u64 at = first + u64(c) * plane;
            store(y + at, gammas[c] * (load(x + at) - mean) * inverse + betas[c]);
        }
    }
}

// With n = (x − mean) · inverse and g = γ · d_y: d_x ← inverse · (g − mean(g) − n · mean(g · n)), or adds that.
KERNEL(layer_norm_backward)(
    const Real* d_y, const Real* x, const float* gammas, const float* kept, Real* d_x, u32 places, u32 channels, u32 plane,
    bool accumulate) {
    for (u64 index = thread_of_grid(); index < places; index += threads_of_grid()) {
        const u64 first = first_of(index, channels, plane);
        const float mean = kept[2 * index], inverse = kept[2 * index + 1];
        float gradients = 0.0f, products = 0.0f;
        for (u32 c = 0; c < channels; ++c) {
            const u64 at = first + u64(c) * plane;
            const float gradient = gammas[c] * load(d_y + at);
            gradients += gradient;
            products += gradient * (load(x + at) - mean) * inverse;
        }
        gradients /= float(channels), products /= float(channels);
        for (u32 c = 0; c < channels; ++c) {
            const u64 at = first + u64(c) * plane;
            const float normal = (load(x + at) - mean) * inverse;
            merge(d_x + at, inverse * (gammas[c] * load(d_y + at) - gradients - normal * products), accumulate);
        }
    }
}

// dγ ← Σ d_y · n and dβ ← Σ d_y over all places, or adds that; one block per channel.
KERNEL(layer_norm_parameters)(
    const Real* d_y, const Real* x, const float* kept, float* d_gammas, float* d_betas, u32 places, u32 channels, u32 plane,
    bool accumulate) {
    SHARED(double, scratch);
    const u32 channel = blockIdx.x;
    float products = 0.0f, sum = 0.0f;
    for (u32 index = threadIdx.x; index < places; index += BLOCK) {
        const u64 at = first_of(index, channels, plane) + u64(channel) * plane;
        const float gradient = load(d_y + at);
        products += gradient * (load(x + at) - kept[2 * u64(index)]) * kept[2 * u64(index) + 1];
        sum += gradient;
    }
    const double all_products = block_sum(products, scratch), all = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        merge(d_gammas + channel, float(all_products), accumulate);
        merge(d_betas + channel, float(all), accumulate);
    }
}
