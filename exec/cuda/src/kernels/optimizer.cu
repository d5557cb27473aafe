// Steps on parameters that lie in one piece: momentum SGD, and formulas on any buffers, element by element.
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

// A formula as models::BoundFormula has it: its buffers are the first operands, intermediate results the others. A term is
// to | plus << 4 | times << 8 | decays << 12, with NONE for a plus that is not there.
constexpr u32 BUFFERS = 4, OPERANDS = 8, NONE = 15;

struct Terms {
    u32 count, read, written;
    u32 codes[8];
    float factors[8];
};

// The operand of this number; all are in registers, so that one of them is chosen and none is addressed.
__device__ inline void pick(const float (&operands)[OPERANDS][4], u32 number, float (&into)[4]) {
#pragma unroll
    for (u32 each = 0; each < OPERANDS; ++each) {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) into[lane] = each == number ? operands[each][lane] : into[lane];
    }
}

// One multiply-add after the other: to ← plus + factor·times, rounded twice, or the product alone; `mask` may be null where
// weight decay is in none.
KERNEL(evaluate_formula)(
    float* a, float* b, float* c, float* d, const u32* mask, u64 first, u64 elements, Terms terms) {
    each_group(elements, [&](const Group& group) {
        float* const buffers[BUFFERS] = {a, b, c, d};
        float operands[OPERANDS][4] = {}, decays[4] = {};
#pragma unroll
        for (u32 each = 0; each < BUFFERS; ++each) {
            if (terms.read >> each & 1) load(buffers[each], group, operands[each]);
        }
        if (mask) decays_of(mask, first, group, 1.0f, decays);
        for (u32 term = 0; term < terms.count; ++term) {
            const u32 code = terms.codes[term], to = code & 15, plus = code >> 4 & 15;
            float added[4] = {}, times[4] = {};
            pick(operands, plus, added);
            pick(operands, code >> 8 & 15, times);
#pragma unroll
            for (u32 lane = 0; lane < 4; ++lane) {
                const bool spared = (code >> 12 & 1) && decays[lane] == 0.0f;
                const float product = (spared ? 0.0f : terms.factors[term]) * times[lane];
                const float value = plus == NONE ? product : added[lane] + product;
#pragma unroll
                for (u32 each = 0; each < OPERANDS; ++each) {
                    operands[each][lane] = each == to ? value : operands[each][lane];
                }
            }
        }
#pragma unroll
        for (u32 each = 0; each < BUFFERS; ++each) {
            if (terms.written >> each & 1) store(buffers[each], group, operands[each]);
        }
    }, a, b, c, d);
}
