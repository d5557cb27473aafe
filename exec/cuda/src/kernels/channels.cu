// Factors and biases of channels: bias and scale layers, and the sums over a channel for their gradients and for batch
// normalisation.

// y ← f·x + s with f and s of the element's channel, rectified or not, or adds that; null factors are 1, null biases
// 0. Serves as bias, bias with ReLU, scale layer, and its gradient with respect to x. y may alias x.
KERNEL(channel_affine)(
    const Real* x, const float* factors, const float* biases, Real* y, u32 samples, u32 channels, u32 plane,
    bool rectified, bool accumulate) {
    OfChannels<2> own(channels, plane, factors, biases);
    const auto fetch = [&](const Group& group) { return Four(x, group); };
    each_group_ahead(u64(samples) * channels * plane, fetch, [&](Four& values, const Group& group) {
        own.load_for(group);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            float value = values.of[lane];
            if (factors) value = own.of[0][lane] * value;
            if (biases) value = value + own.of[1][lane];
            values.of[lane] = rectified ? relu(value) : value;
        }
        merge(y, group, values.of, accumulate);
    }, y, x);
}

// For each part of a channel p₀ = Σ d·(x − mean) and p₁ = Σ d, where d is d_y, or with a ReLU d_y where its output is
// above 0. That output is y, or, if y is null, recomputed from x as in batch normalisation: (x − mean)·(γ·inverse) + β.
// Null x: no p₀; null means are 0. `masked` receives d.
//
// One block per part: float sums within threads, double sums of those.
KERNEL(channel_gradients)(
    const Real* d_y, const Real* x, const Real* y, const float* means, const float* inverses, const float* gammas,
    const float* betas, Real* masked, double* partials, u32 channels, u32 plane, Parts parts, bool rectified) {
    SHARED(double, scratch);
    const u32 channel = blockIdx.x / parts.parts, part = blockIdx.x % parts.parts;
    const float mean = means ? means[channel] : 0.0f;
    const bool from_input = rectified && !y;
    const float scale = from_input ? gammas[channel] * inverses[channel] : 0.0f;
    const float shift = from_input ? betas[channel] : 0.0f;
    float products = 0.0f, sum = 0.0f;
    each_of_channel(channels, plane, channel, parts.begin(part), parts.end(part), in_fours(plane, d_y, x, y, masked), [&](const Group& group) {
        float gradients[4], values[4] = {}, outputs[4];
        load(d_y, group, gradients);
        if (x) load(x, group, values);
        if (rectified && y) load(y, group, outputs);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
            const float off = values[lane] - mean;
            if (rectified && (from_input ? off * scale + shift : outputs[lane]) <= 0.0f) gradients[lane] = 0.0f;
            products += gradients[lane] * off;
            sum += gradients[lane];
        }
        if (masked) store(masked, group, gradients);
    });
    const double all_products = block_sum(products, scratch), all = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        partials[2 * u64(blockIdx.x)] = all_products;
        partials[2 * u64(blockIdx.x) + 1] = all;
    }
}
