// Finishes the sums over parts of channels, and the losses of a batch: a few numbers, independent of the activations'
// scalar.

// Sums the parts of a channel: inverse · Σ p₀ (null inverses are 1) is written or added to d_factors, Σ p₁ to
// d_biases. `along` receives inverse² · Σ p₀ / count and `level` Σ p₁ / count, for batch normalisation's gradient.
// One warp per channel.
KERNEL(channel_gradients_finish)(
    const double* partials, const float* inverses, float* d_factors, float* d_biases, float* along, float* level,
    u32 channels, Parts parts, bool accumulate) {
    const u32 channel = u32(thread_of_grid() / WARP), lane = threadIdx.x % WARP;
    if (channel >= channels) return;
    double products = 0.0, sum = 0.0;
    for (u32 part = lane; part < parts.parts; part += WARP) {
        const u64 at = 2 * (u64(channel) * parts.parts + part);
        products += partials[at];
        sum += partials[at + 1];
    }
    products = warp_sum(products), sum = warp_sum(sum);
    if (lane > 0) return;
    const float inverse = inverses ? inverses[channel] : 1.0f;
    products *= inverse;
    if (d_factors) merge(d_factors + channel, float(products), accumulate);
    if (d_biases) merge(d_biases + channel, float(sum), accumulate);
    if (along) along[channel] = float(products / parts.count) * inverse;
    if (level) level[channel] = float(sum / parts.count);
}

// Means and 1 / √(variance + ε) of the batch, from the parts' moments: mean = Σ nᵢ·mᵢ / n and n·variance = Σ qᵢ + Σ
// nᵢ·(mᵢ − mean)². The running values become keep · old + (1 − keep) · batch, with the unbiased variance. One warp per
// channel.
KERNEL(batch_norm_statistics)(
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
KERNEL(batch_norm_inverses)(const float* running_variances, float* inverses, u32 channels, float epsilon) {
    const u64 channel = thread_of_grid();
    if (channel >= channels) return;
    inverses[channel] = float(1.0 / sqrt(double(running_variances[channel]) + double(epsilon)));
}

// Σ losses and the numbers of labels whose rank is below 1 and below 5: totals[0], counts[0], counts[1]. One block.
KERNEL(loss_totals)(const double* losses, const u32* ranks, double* totals, u32* counts, u32 samples) {
    SHARED(double, scratch);
    double sum = 0.0;
    u32 first = 0, five = 0;
    for (u32 at = threadIdx.x; at < samples; at += BLOCK) {
        sum += losses[at];
        first += ranks[at] < 1 ? 1 : 0;
        five += ranks[at] < 5 ? 1 : 0;
    }
    const double all = block_sum(sum, scratch), all_first = block_sum(first, scratch), all_five = block_sum(five, scratch);
    if (threadIdx.x == 0) totals[0] = all, counts[0] = u32(all_first), counts[1] = u32(all_five);
}
