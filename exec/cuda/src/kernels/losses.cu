// Cross-entropies against labels, one warp per sample: of a softmax, or of independent logistic units (Krizhevsky 2014,
// section 5).
//
// A label's rank is the number of classes ahead of it: those with a larger score, or an equal one and a lower number.
// It is 0 for a correct answer and below 5 for a top-5 one. No number compares larger than NaN, but NaN is not an
// answer: if the first score or the label's is NaN, the rank is the number of classes.

// The sample of the warp; warps stride by the grid.
template <class Body>
__device__ inline void each_sample(u32 samples, Body body) {
    for (u64 sample = thread_of_grid() / WARP; sample < samples; sample += threads_of_grid() / WARP)
        body(u32(sample), threadIdx.x % WARP);
}

__device__ inline u32 rank_of(const Real* row, u32 classes, u32 label, u32 lane) {
    const float own = load(row + label);
    u32 ahead = 0;
    for (u32 at = lane; at < classes; at += WARP) {
        const float other = load(row + at);
        ahead += other > own || (other == own && at < label) ? 1 : 0;
    }
    ahead = warp_sum(ahead);
    return isnan(own) || isnan(load(row)) ? classes : ahead;
}

// p ← eˣ / Σ eˣ, losses ← ln Σ eˣ − x(label) in nats, all shifted by the largest x so that no power overflows.
KERNEL(softmax_forward)(
    const Real* logits, const u32* labels, float* probabilities, double* losses, u32* ranks, u32 samples, u32 classes) {
    each_sample(samples, [&](u32 sample, u32 lane) {
        const Real* row = logits + u64(sample) * classes;
        float* own = probabilities + u64(sample) * classes;
        const u32 label = labels[sample];
        float largest = load(row);
        for (u32 at = lane; at < classes; at += WARP) {
            const float other = load(row + at);
            largest = other > largest ? other : largest;
        }
        for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
            const float other = __shfl_xor_sync(~0u, largest, distance);
            largest = other > largest ? other : largest;
        }
        double total = 0.0;
        for (u32 at = lane; at < classes; at += WARP) {
            const float power = expf(load(row + at) - largest);
            total += power;
            own[at] = power;
        }
        total = warp_sum(total);
        const float inverse = float(1.0 / total);
        for (u32 at = lane; at < classes; at += WARP) own[at] = own[at] * inverse;
        const u32 rank = rank_of(row, classes, label, lane);
        if (lane == 0) {
            losses[sample] = log(total) - double(load(row + label) - largest);
            ranks[sample] = rank;
        }
    });
}

// p ← 1 / (1 + e⁻ˣ), losses ← Σ ln(1 + eˣ) − x(label), where ln(1 + eˣ) = max(x, 0) + ln(1 + e^−|x|) does not overflow.
KERNEL(logistic_forward)(
    const Real* logits, const u32* labels, float* probabilities, double* losses, u32* ranks, u32 samples, u32 classes) {
    each_sample(samples, [&](u32 sample, u32 lane) {
        const Real* row = logits + u64(sample) * classes;
        float* own = probabilities + u64(sample) * classes;
        const u32 label = labels[sample];
        double total = 0.0;
        for (u32 at = lane; at < classes; at += WARP) {
            const double x = load(row + at), power = exp(-fabs(x)), small = power / (1.0 + power);
            total += (x < 0.0 ? 0.0 : x) + log1p(power);
            own[at] = float(x < 0.0 ? small : 1.0 - small);
        }
        total = warp_sum(total);
        const u32 rank = rank_of(row, classes, label, lane);
        if (lane == 0) {
            losses[sample] = total - double(load(row + label));
            ranks[sample] = rank;
        }
    });
}

// d_logits ← p·scale, (p − 1)·scale at the label, or adds that; scale is 1 / samples of the global batch.
KERNEL(loss_backward)(
    const float* probabilities, const u32* labels, Real* d_logits, u32 samples, u32 classes, float scale,
    bool accumulate) {
    each_group(u64(samples) * classes, [&](const Group& group) {
        float values[4];
        load(probabilities, group, values);
        Channel at(samples, classes, group.first + group.from);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
            const u32 label = labels[at.channel], here = classes - at.left;
            values[lane] = (here == label ? values[lane] - 1.0f : values[lane]) * scale;
            at.step();
        }
        merge(d_logits, group, values, accumulate);
    }, d_logits, probabilities);
}
