// Sums over the channels of a sample in fp32: means of norms and of gradients. One block per sample.

// means ← the mean of each sample's norms plus ε. One block per sample.
KERNEL(response_means)(const float* norms, float* means, u32 samples, u32 channels, float epsilon) {
    if (blockIdx.x >= samples) return;
    SHARED(double, scratch);
    float sum = 0.0f;
    for (u32 channel = threadIdx.x; channel < channels; channel += BLOCK) sum += norms[u64(blockIdx.x) * channels + channel];
    const double all = block_sum(sum, scratch);
    if (threadIdx.x == 0) means[blockIdx.x] = float(all) / float(channels) + epsilon;
}

// shares ← the mean of gradients · g / m over a sample's channels. One block per sample.
KERNEL(response_shares)(
    const float* gradients, const float* norms, const float* means, float* shares, u32 samples, u32 channels) {
    if (blockIdx.x >= samples) return;
    SHARED(double, scratch);
    float sum = 0.0f;
    for (u32 channel = threadIdx.x; channel < channels; channel += BLOCK) {
        const u64 at = u64(blockIdx.x) * channels + channel;
        sum += gradients[at] * (norms[at] / means[blockIdx.x]);
    }
    const double all = block_sum(sum, scratch);
    if (threadIdx.x == 0) shares[blockIdx.x] = float(all) / float(channels);
}
