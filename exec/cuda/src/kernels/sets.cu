// Layers that sum over sets of a sample's elements: softmax over channels, normalisation over groups of channels, and by
// channels' norms. Images are [samples, channels, plane], with `last` [samples, plane, channels].

__device__ inline u64 element(u32 sample, u32 channel, u32 place, u32 channels, u32 plane, bool last) {
    return last ? (u64(sample) * plane + place) * channels + channel : (u64(sample) * channels + channel) * plane + place;
}

// Calls `body` with a channel and the index of each element of `count` channels from `first` of a sample; for a block.
template <class Body>
__device__ inline void each_of_set(
    u32 sample, u32 first, u32 count, u32 channels, u32 plane, bool last, Body body) {
    for (u32 at = threadIdx.x; at < count * plane; at += BLOCK) {
        const u32 channel = first + (last ? at % count : at / plane), place = last ? at / count : at % plane;
        body(channel, element(sample, channel, place, channels, plane, last));
    }
}

// y ← e^(x − max) / Σ e^(x − max) over `parts` channels, channels / parts apart; a thread for each set.
KERNEL(softmax_sets_forward)(const Real* x, Real* y, u32 samples, u32 parts, u32 channels, u32 plane, bool last) {
    const u32 apart = channels / parts;
    for (u64 index = thread_of_grid(); index < u64(samples) * apart * plane; index += threads_of_grid()) {
        const u32 sample = u32(index / (u64(apart) * plane)), rest = u32(index % (u64(apart) * plane));
        const u32 first = last ? rest % apart : rest / plane, place = last ? rest / apart : rest % plane;
        float most = load(x + element(sample, first, place, channels, plane, last)), sum = 0.0f;
        for (u32 part = 1; part < parts; ++part)
            most = fmaxf(most, load(x + element(sample, first + part * apart, place, channels, plane, last)));
        for (u32 part = 0; part < parts; ++part)
            sum += expf(load(x + element(sample, first + part * apart, place, channels, plane, last)) - most);
        for (u32 part = 0; part < parts; ++part) {
            const u64 at = element(sample, first + part * apart, place, channels, plane, last);
            store(y + at, expf(load(x + at) - most) / sum);
        }
    }
}

// d_x ← y · (d_y − Σ d_y · y), or adds that; a thread for each set.
KERNEL(softmax_sets_backward)(
    const Real* d_y, const Real* y, Real* d_x, u32 samples, u32 parts, u32 channels, u32 plane, bool last,
    bool accumulate) {
    const u32 apart = channels / parts;
    for (u64 index = thread_of_grid(); index < u64(samples) * apart * plane; index += threads_of_grid()) {
        const u32 sample = u32(index / (u64(apart) * plane)), rest = u32(index % (u64(apart) * plane));
        const u32 first = last ? rest % apart : rest / plane, place = last ? rest / apart : rest % plane;
        float sum = 0.0f;
        for (u32 part = 0; part < parts; ++part) {
            const u64 at = element(sample, first + part * apart, place, channels, plane, last);
            sum += load(d_y + at) * load(y + at);
        }
        for (u32 part = 0; part < parts; ++part) {
            const u64 at = element(sample, first + part * apart, place, channels, plane, last);
            merge(d_x + at, load(y + at) * (load(d_y + at) - sum), accumulate);
        }
    }
}

// y ← γ · (x − mean) · inverse + β over each group of a sample; keeps the mean and the inverse deviation. One block per group.
KERNEL(group_norm_forward)(
    const Real* x, const float* gammas, const float* betas, Real* y, float* kept, u32 sets, u32 groups, u32 channels,
    u32 plane, bool last, float epsilon) {
    if (blockIdx.x >= sets) return;
    SHARED(double, scratch);
    const u32 sample = blockIdx.x / groups, count = channels / groups, first = blockIdx.x % groups * count;
    float sum = 0.0f, squares = 0.0f;
    each_of_set(sample, first, count, channels, plane, last, [&](u32, u64 at) { sum += load(x + at); });
    const float mean = float(block_sum(sum, scratch) / (double(count) * plane));
    each_of_set(sample, first, count, channels, plane, last, [&](u32, u64 at) {
        squares += (load(x + at) - mean) * (load(x + at) - mean);
    });
    const float variance = float(block_sum(squares, scratch) / (double(count) * plane));
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    if (threadIdx.x == 0) kept[2 * u64(blockIdx.x)] = mean, kept[2 * u64(blockIdx.x) + 1] = inverse;
    each_of_set(sample, first, count, channels, plane, last, [&](u32 channel, u64 at) {
        store(y + at, gammas[channel] * (load(x + at) - mean) * inverse + betas[channel]);
    });
}

// With n = (x − mean) · inverse and g = γ · d_y: d_x ← inverse · (g − mean(g) − n · mean(g · n)), or adds that. One block per
// group.
KERNEL(group_norm_backward)(
    const Real* d_y, const Real* x, const float* gammas, const float* kept, Real* d_x, u32 sets, u32 groups, u32 channels,
    u32 plane, bool last, bool accumulate) {
    if (blockIdx.x >= sets) return;
    SHARED(double, scratch);
    const u32 sample = blockIdx.x / groups, count = channels / groups, first = blockIdx.x % groups * count;
    const float mean = kept[2 * u64(blockIdx.x)], inverse = kept[2 * u64(blockIdx.x) + 1];
    float gradients = 0.0f, products = 0.0f;
    each_of_set(sample, first, count, channels, plane, last, [&](u32 channel, u64 at) {
        const float gradient = gammas[channel] * load(d_y + at);
        gradients += gradient;
        products += gradient * (load(x + at) - mean) * inverse;
    });
    const double size = double(count) * plane;
    const float all = float(block_sum(gradients, scratch) / size), all_products = float(block_sum(products, scratch) / size);
    each_of_set(sample, first, count, channels, plane, last, [&](u32 channel, u64 at) {
        const float normal = (load(x + at) - mean) * inverse;
        merge(d_x + at, inverse * (gammas[channel] * load(d_y + at) - all - normal * all_products), accumulate);
    });
}

// dγ ← Σ d_y · n and dβ ← Σ d_y over all samples and places, or adds that. One block per channel.
KERNEL(group_norm_parameters)(
    const Real* d_y, const Real* x, const float* kept, float* d_gammas, float* d_betas, u32 samples, u32 groups,
    u32 channels, u32 plane, bool last, bool accumulate) {
    SHARED(double, scratch);
    const u32 channel = blockIdx.x;
    float products = 0.0f, sum = 0.0f;
    for (u32 sample = 0; sample < samples; ++sample) {
        const float* of = kept + 2 * (u64(sample) * groups + channel / (channels / groups));
        each_of_set(sample, channel, 1, channels, plane, last, [&](u32, u64 at) {
            products += load(d_y + at) * ((load(x + at) - of[0]) * of[1]);
            sum += load(d_y + at);
        });
    }
    const double all_products = block_sum(products, scratch), all = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        merge(d_gammas + channel, float(all_products), accumulate);
        merge(d_betas + channel, float(all), accumulate);
    }
}

// norms ← the root of the sum of squares of each channel of a sample. One block per channel and sample.
KERNEL(response_norms)(const Real* x, float* norms, u32 sets, u32 channels, u32 plane, bool last) {
    if (blockIdx.x >= sets) return;
    SHARED(double, scratch);
    float squares = 0.0f;
    each_of_set(blockIdx.x / channels, blockIdx.x % channels, 1, channels, plane, last, [&](u32, u64 at) {
        squares += load(x + at) * load(x + at);
    });
    const double all = block_sum(squares, scratch);
    if (threadIdx.x == 0) norms[blockIdx.x] = sqrtf(float(all));
}

// y ← γ · x · g / m + β + x with the channel's norm g and the sample's mean m. One block per channel and sample.
KERNEL(response_forward)(
    const Real* x, const float* gammas, const float* betas, const float* norms, const float* means, Real* y, u32 sets,
    u32 channels, u32 plane, bool last) {
    if (blockIdx.x >= sets) return;
    const u32 sample = blockIdx.x / channels, channel = blockIdx.x % channels;
    const float factor = gammas[channel] * (norms[blockIdx.x] / means[sample]), beta = betas[channel];
    each_of_set(sample, channel, 1, channels, plane, last, [&](u32, u64 at) {
        store(y + at, factor * load(x + at) + beta + load(x + at));
    });
}

// gradients ← γ · Σ d_y · x of each channel of a sample. One block per channel and sample.
KERNEL(response_gradients)(
    const Real* d_y, const Real* x, const float* gammas, float* gradients, u32 sets, u32 channels, u32 plane, bool last) {
    if (blockIdx.x >= sets) return;
    SHARED(double, scratch);
    float products = 0.0f;
    each_of_set(blockIdx.x / channels, blockIdx.x % channels, 1, channels, plane, last, [&](u32, u64 at) {
        products += load(d_y + at) * load(x + at);
    });
    const double all = block_sum(products, scratch);
    if (threadIdx.x == 0) gradients[blockIdx.x] = gammas[blockIdx.x % channels] * float(all);
}

// d_x ← d_y · (1 + γ · g / m) + x / g · (gradient − share) / m, the second term only where g is not 0, or adds that. One block
// per channel and sample.
KERNEL(response_backward)(
    const Real* d_y, const Real* x, const float* gammas, const float* norms, const float* means, const float* gradients,
    const float* shares, Real* d_x, u32 sets, u32 channels, u32 plane, bool last, bool accumulate) {
    if (blockIdx.x >= sets) return;
    const u32 sample = blockIdx.x / channels, channel = blockIdx.x % channels;
    const float norm = norms[blockIdx.x], mean = means[sample];
    const float factor = 1.0f + gammas[channel] * (norm / mean);
    const float pull = norm > 0.0f ? (gradients[blockIdx.x] - shares[sample]) / mean / norm : 0.0f;
    each_of_set(sample, channel, 1, channels, plane, last, [&](u32, u64 at) {
        merge(d_x + at, factor * load(d_y + at) + pull * load(x + at), accumulate);
    });
}

// dγ ← Σ g / m · d_y · x and dβ ← Σ d_y over all samples and places, or adds that. One block per channel.
KERNEL(response_parameters)(
    const Real* d_y, const Real* x, const float* norms, const float* means, float* d_gammas, float* d_betas, u32 samples,
    u32 channels, u32 plane, bool last, bool accumulate) {
    SHARED(double, scratch);
    const u32 channel = blockIdx.x;
    float products = 0.0f, sum = 0.0f;
    for (u32 sample = 0; sample < samples; ++sample) {
        const float normal = norms[u64(sample) * channels + channel] / means[sample];
        each_of_set(sample, channel, 1, channels, plane, last, [&](u32, u64 at) {
            products += normal * (load(d_y + at) * load(x + at));
            sum += load(d_y + at);
        });
    }
    const double all_products = block_sum(products, scratch), all = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        merge(d_gammas + channel, float(all_products), accumulate);
        merge(d_betas + channel, float(all), accumulate);
    }
}
