// Batch normalisation (Ioffe & Szegedy 2015, Algorithm 1 and the gradients of section 3) of [samples, channels, plane],
// alone or followed by an addition and a ReLU. Its backward pass begins with channel_gradients and channel_gradients_finish.

// For each part of a channel the mean of its elements and Σ (x − mean)², in one pass. Sums are shifted by the part's
// first element, which is near the others: of shifted sums s₁ and s₂ of n elements mean = pivot + s₁/n and Σ (x −
// mean)² = s₂ − s₁²/n.
KERNEL(batch_norm_moments)(
    const Real* x, double* partials, u32 channels, u32 plane, Parts parts) {
    SHARED(double, scratch);
    const u32 channel = blockIdx.x / parts.parts, part = blockIdx.x % parts.parts;
    const u32 begin = parts.begin(part), end = parts.end(part);
    const float pivot = load(x + (u64(begin / plane) * channels + channel) * plane + begin % plane);
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

__device__ inline void scales(const float (&inverses)[4], const float (&gammas)[4], float (&into)[4]) {
#pragma unroll
    for (u32 lane = 0; lane < 4; ++lane) into[lane] = gammas[lane] * inverses[lane];
}

// y ← (x − mean)·(γ·inverse) + β, plus the addend if there is one, rectified or not. y may alias x or the addend.
KERNEL(batch_norm_forward)(
    const Real* x, const float* means, const float* inverses, const float* gammas, const float* betas,
    const Real* addend, Real* y, u32 samples, u32 channels, u32 plane, bool rectified) {
    OfChannels<4> own(channels, plane, means, inverses, gammas, betas);
    const auto &mean = own.of[0], &beta = own.of[3];
    float scale[4] = {};
    struct Fetched {
        Four x, addend;
    };
    const auto fetch = [&](const Group& group) { return Fetched{Four(x, group), Four(addend, group)}; };
    each_group_ahead(u64(samples) * channels * plane, fetch, [&](Fetched& fetched, const Group& group) {
        if (own.load_for(group)) scales(own.of[1], own.of[2], scale);
        float values[4];
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            float value = (fetched.x.of[lane] - mean[lane]) * scale[lane] + beta[lane];
            if (addend) value = value + fetched.addend.of[lane];
            values[lane] = rectified ? relu(value) : value;
        }
        store(y, group, values);
    }, y, x, addend);
}

// d_x ← (d − level − (x − mean)·along)·(γ·inverse), or adds that, with d as in channel_gradients; the addend's gradient,
// if any, is d itself. `along` and `level` are those of channel_gradients_finish. d_x or d_addend may alias d_y.
KERNEL(batch_norm_backward)(
    const Real* d_y, const Real* x, const Real* y, const float* means, const float* inverses, const float* gammas,
    const float* betas, const float* along, const float* level, Real* d_x, Real* d_addend, u32 samples, u32 channels,
    u32 plane, bool rectified, bool accumulate, bool accumulate_addend) {
    OfChannels<6> own(channels, plane, means, inverses, gammas, level, along, rectified && !y ? betas : nullptr);
    const auto &mean = own.of[0], &flat = own.of[3], &steep = own.of[4], &beta = own.of[5];
    float scale[4] = {};
    struct Fetched {
        Four gradients, x, y;
    };
    const Real* outputs = rectified ? y : nullptr;
    const auto fetch = [&](const Group& group) {
        return Fetched{Four(d_y, group), Four(x, group), Four(outputs, group)};
    };
    each_group_ahead(u64(samples) * channels * plane, fetch, [&](Fetched& fetched, const Group& group) {
        if (own.load_for(group)) scales(own.of[1], own.of[2], scale);
        auto& gradients = fetched.gradients.of;
        float before[4];
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float off = fetched.x.of[lane] - mean[lane];
            const float output = outputs ? fetched.y.of[lane] : off * scale[lane] + beta[lane];
            if (rectified && output <= 0.0f) gradients[lane] = 0.0f;
            before[lane] = (gradients[lane] - flat[lane] - off * steep[lane]) * scale[lane];
        }
        if (d_addend) merge(d_addend, group, gradients, accumulate_addend);
        merge(d_x, group, before, accumulate);
    }, d_x, d_y, x, y, d_addend);
}
