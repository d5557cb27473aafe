// Steps on parameters that lie in one piece: momentum SGD, and the rules of model averaging (Koliousis et al. 2019, Algorithm 1).
// One launch does a whole range, whatever layers it has in it: a bit for each parameter says whether its weight decays.

// The λ of a group's elements; `first` is the number of element 0 among the mask's bits.
__device__ inline void decays_of(const u32* mask, u64 first, const Group& group, float decay, float (&decays)[4]) {
    const u64 start = first + group.first;
    // Four bits of one word, or one by one where they lie in two or some are of no element.
    const u32 word = group.whole && start % 32 <= 28 ? mask[start / 32] >> (start % 32) : 0;
#pragma unroll
    for (u32 lane = 0; lane < 4; ++lane) {
        const u64 at = start + lane;
        const u32 bit = group.whole && start % 32 <= 28 ? word >> lane
                        : group.has(lane)               ? mask[at / 32] >> (at % 32)
                                                        : 0;
        decays[lane] = (bit & 1) != 0 ? decay : 0.0f;
    }
}

// Momentum SGD as models::SgdStep has it: v ← keep·v + (part·g + λ·w), w ← w − η·v (Goyal et al. 2017, Eq. 9), or, absorbed,
// v ← keep·v + η·(part·g + λ·w), w ← w − v (Eq. 10). With `nesterov` the weights take the slope + m·v in place of v.
KERNEL(sgd_step)(
    float* weights, float* velocity, const float* gradient, const u32* mask, u64 first, u64 elements,
    float rate, float part, float keep, float momentum, float weight_decay, bool absorbed, bool nesterov) {
    each_group(elements, [&](const Group& group) {
        float w[4], v[4], g[4], decays[4];
        load(weights, group, w);
        load(velocity, group, v);
        load(gradient, group, g);
        decays_of(mask, first, group, weight_decay, decays);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float plain = part * g[lane] + decays[lane] * w[lane], slope = absorbed ? rate * plain : plain;
            v[lane] = keep * v[lane] + slope;
            const float step = nesterov ? slope + momentum * v[lane] : v[lane];
            w[lane] = w[lane] - (absorbed ? step : rate * step);
        }
        store(velocity, group, v);
        store(weights, group, w);
    }, weights, velocity, gradient);
}

// A learner's step between two synchronisations: w ← w − γ·(g + λ·w).
KERNEL(descend)(
    float* weights, const float* gradient, const u32* mask, u64 first, u64 elements, float rate, float weight_decay) {
    each_group(elements, [&](const Group& group) {
        float w[4], g[4], decays[4];
        load(weights, group, w);
        load(gradient, group, g);
        decays_of(mask, first, group, weight_decay, decays);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) w[lane] = w[lane] - rate * (g[lane] + decays[lane] * w[lane]);
        store(weights, group, w);
    }, weights, gradient);
}

// Local synchronisation: c ← α·(w − z), w ← (w − γ·(g + λ·w)) − c, all from the old w; with null gradients w ← w − c.
KERNEL(correct)(
    float* weights, const float* gradient, const float* average, float* difference, const u32* mask, u64 first,
    u64 elements, float rate, float weight_decay, float alpha) {
    each_group(elements, [&](const Group& group) {
        float w[4], g[4], z[4], c[4], decays[4];
        load(weights, group, w);
        load(average, group, z);
        if (gradient) {
            load(gradient, group, g);
            decays_of(mask, first, group, weight_decay, decays);
        }
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            c[lane] = alpha * (w[lane] - z[lane]);
            if (gradient) w[lane] = w[lane] - rate * (g[lane] + decays[lane] * w[lane]);
            w[lane] = w[lane] - c[lane];
        }
        store(difference, group, c);
        store(weights, group, w);
    }, weights, gradient, average, difference);
}

// A reference model moves: C ← α'·(r − z), r ← (r + s) − C, all from the old r; `difference` holds s before and C afterwards.
KERNEL(move_reference)(
    float* reference, const float* average, float* difference, u64 elements, float alpha) {
    each_group(elements, [&](const Group& group) {
        float r[4], z[4], c[4];
        load(reference, group, r);
        load(average, group, z);
        load(difference, group, c);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float own = alpha * (r[lane] - z[lane]);
            r[lane] = (r[lane] + c[lane]) - own;
            c[lane] = own;
        }
        store(reference, group, r);
        store(difference, group, c);
    }, reference, average, difference);
}

// Global synchronisation: z ← (z + Σc) + μ·(z − z_prev), z_prev ← z as it was; `plain`: z ← z + Σc, for EA-SGD.
KERNEL(move_average)(
    float* average, const float* sum, float* previous, u64 elements, float momentum, bool plain) {
    each_group(elements, [&](const Group& group) {
        float z[4], c[4], before[4];
        load(average, group, z);
        load(sum, group, c);
        load(previous, group, before);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float old = z[lane], moved = old + c[lane];
            z[lane] = plain ? moved : moved + momentum * (old - before[lane]);
            before[lane] = old;
        }
        store(average, group, z);
        store(previous, group, before);
    }, average, sum, previous);
}
