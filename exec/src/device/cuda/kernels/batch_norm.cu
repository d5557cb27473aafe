// Batch normalisation (Ioffe & Szegedy 2015, Algorithm 1 and the gradients of section 3) of [samples, channels, plane], alone or
// with an addition and a ReLU behind it. Its backward pass begins with channel_slopes and channel_slopes_finish.

// Per channel and part of it the mean of its elements and Σ (x − mean)², in one pass around the part's first element, which is
// near the others: of shifted sums s₁ and s₂ of n elements mean = pivot + s₁/n and Σ (x − mean)² = s₂ − s₁²/n.
extern "C" __global__ void batch_norm_moments(
    const float* x, double* partials, u32 channels, u32 plane, Parts parts) {
    SHARED(double, scratch);
    const u32 channel = blockIdx.x / parts.parts, part = blockIdx.x % parts.parts;
    const u32 begin = parts.begin(part), end = parts.end(part);
    const float pivot = x[(u64(begin / plane) * channels + channel) * plane + begin % plane];
    float sum = 0.0f, squares = 0.0f;
    each_of_channel(channels, plane, channel, begin, end, in_fours(plane, x), [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
            const float off = values[lane] - pivot;
            sum += off;
            squares += off * off;
        }
    });
    const double all = block_sum(sum, scratch), all_squares = block_sum(squares, scratch);
    if (threadIdx.x == 0) {
        const double here = end - begin;
        partials[2 * u64(blockIdx.x)] = pivot + all / here;
        partials[2 * u64(blockIdx.x) + 1] = all_squares - all * all / here;
    }
}

// Means and 1 / √(variance + ε) of the batch, from the parts' moments: mean = Σ nᵢ·mᵢ / n and n·variance = Σ qᵢ + Σ nᵢ·(mᵢ −
// mean)². The running values become keep · old + (1 − keep) · batch, the variance the unbiased one. A warp a channel.
extern "C" __global__ void batch_norm_statistics(
    const double* partials, float* means, float* inverses, float* running_means, float* running_variances, u32 channels,
    Parts parts, float epsilon, float keep) {
    const u32 channel = u32(thread_of_grid() / WARP), lane = threadIdx.x % WARP;
    if (channel >= channels) return;
    const double* own = partials + 2 * u64(channel) * parts.parts;
    double total = 0.0;
    for (u32 part = lane; part < parts.parts; part += WARP) {
        total += own[2 * part] * (parts.end(part) - parts.begin(part));
    }
    const double mean = warp_sum(total) / parts.count;
    double squares = 0.0;
    for (u32 part = lane; part < parts.parts; part += WARP) {
        const double off = own[2 * part] - mean;
        squares += own[2 * part + 1] + off * off * (parts.end(part) - parts.begin(part));
    }
    squares = warp_sum(squares);
    if (lane > 0) return;
    const double variance = squares / parts.count;
    const double unbiased = parts.count > 1 ? squares / (parts.count - 1.0) : variance;
    means[channel] = float(mean);
    inverses[channel] = float(1.0 / sqrt(variance + double(epsilon)));
    running_means[channel] = keep * running_means[channel] + (1.0f - keep) * float(mean);
    running_variances[channel] = keep * running_variances[channel] + (1.0f - keep) * float(unbiased);
}

// For inference: 1 / √(variance + ε) of the running variances.
extern "C" __global__ void batch_norm_inverses(
    const float* running_variances, float* inverses, u32 channels, float epsilon) {
    const u64 channel = thread_of_grid();
    if (channel >= channels) return;
    inverses[channel] = float(1.0 / sqrt(double(running_variances[channel]) + double(epsilon)));
}

// y ← (x − mean)·(γ·inverse) + β, plus the addend if there is one, rectified or not. y may be x or the addend.
extern "C" __global__ void batch_norm_forward(
    const float* x, const float* means, const float* inverses, const float* gammas, const float* betas,
    const float* addend, float* y, u32 samples, u32 channels, u32 plane, bool rectified) {
    each_group(u64(samples) * channels * plane, [&](const Group& group) {
        float values[4], others[4] = {};
        load(x, group, values);
        if (addend) load(addend, group, others);
        Channel at(channels, plane, group.first + group.from);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
            const u32 channel = at.channel;
            const float scale = gammas[channel] * inverses[channel];
            float value = (values[lane] - means[channel]) * scale + betas[channel];
            if (addend) value = value + others[lane];
            values[lane] = rectified ? relu(value) : value;
            at.step();
        }
        store(y, group, values);
    }, y, x, addend);
}

// d_x ← (d − level − (x − mean)·along)·(γ·inverse), or adds that, d as channel_slopes has it; the addend's gradient, where it
// has one, is d itself. `along` and `level` are those of channel_slopes_finish. d_x or d_addend may be d_y.
extern "C" __global__ void batch_norm_backward(
    const float* d_y, const float* x, const float* y, const float* means, const float* inverses, const float* gammas,
    const float* betas, const float* along, const float* level, float* d_x, float* d_addend, u32 samples, u32 channels,
    u32 plane, bool rectified, bool accumulate, bool accumulate_addend) {
    each_group(u64(samples) * channels * plane, [&](const Group& group) {
        float slopes[4], values[4], outputs[4], before[4];
        load(d_y, group, slopes);
        load(x, group, values);
        if (rectified && y) load(y, group, outputs);
        Channel at(channels, plane, group.first + group.from);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
            const u32 channel = at.channel;
            const float scale = gammas[channel] * inverses[channel], off = values[lane] - means[channel];
            if (rectified && (y ? outputs[lane] : off * scale + betas[channel]) <= 0.0f) slopes[lane] = 0.0f;
            before[lane] = (slopes[lane] - level[channel] - off * along[channel]) * scale;
            at.step();
        }
        if (d_addend) merge(d_addend, group, slopes, accumulate_addend);
        merge(d_x, group, before, accumulate);
    }, d_x, d_y, x, y, d_addend);
}
