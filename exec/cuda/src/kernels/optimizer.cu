// Evaluates formulas on any buffers, element by element, such as the optimizer's update of contiguous parameters. One
// launch covers a whole range with all its layers: a bit for each parameter says whether weight decay applies.

// The λ of a group's elements; `first` is the index of element 0 in the mask.
__device__ inline void decays_of(const u32* mask, u64 first, const Group& group, float decay, float (&decays)[4]) {
    const u64 start = first + group.first;
    // Four bits of one word, or bit by bit where they span two words or some belong to no element.
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

// A formula as in models::BoundFormula: its buffers are the first operands, intermediate results the others. A term is
// to | left << 4 | right << 8 | decays << 12 | arithmetic << 13, with 15 for a missing left operand.
constexpr u32 BUFFERS = 6, OPERANDS = 12;

enum Arithmetic : u32 { MULTIPLY_ADD, MULTIPLY, DIVIDE, SQUARE_ROOT, SHIFT };

struct Terms {
    u32 count, read, written;
    u32 codes[16];
    float factors[16];
};

// Applies `act` to the operand of this number, if there is one. The number is the same for all threads; operands are in
// registers, which cannot be indexed.
template <typename Act>
__device__ inline void on_operand(float (&operands)[OPERANDS][4], u32 number, Act act) {
    switch (number) {
    case 0: act(operands[0]); break;
    case 1: act(operands[1]); break;
    case 2: act(operands[2]); break;
    case 3: act(operands[3]); break;
    case 4: act(operands[4]); break;
    case 5: act(operands[5]); break;
    case 6: act(operands[6]); break;
    case 7: act(operands[7]); break;
    case 8: act(operands[8]); break;
    case 9: act(operands[9]); break;
    case 10: act(operands[10]); break;
    case 11: act(operands[11]); break;
    }
}

// right alone becomes the result of a term: its product or sum with the factor, or its square root.
__device__ inline float of_right(u32 arithmetic, float factor, float right) {
    switch (arithmetic) {
    case MULTIPLY_ADD: return factor * right;
    case SQUARE_ROOT: return sqrtf(right);
    case SHIFT: return right + factor;
    default: return right;
    }
}

// The same with left: each operation rounds by itself, as in IEEE 754.
__device__ inline float with_left(u32 arithmetic, float left, float value) {
    switch (arithmetic) {
    case MULTIPLY: return left * value;
    case DIVIDE: return left / value;
    default: return left + value;
    }
}

// One term after the other: to ← left + factor·right, rounded twice, or one of the other operations; `mask` may be null
// if no term has weight decay.
KERNEL(evaluate_formula)(
    float* a, float* b, float* c, float* d, float* e, float* f, const u32* mask, u64 first, u64 elements, Terms terms) {
    each_group(elements, [&](const Group& group) {
        float* const buffers[BUFFERS] = {a, b, c, d, e, f};
        float operands[OPERANDS][4] = {}, decays[4] = {};
#pragma unroll
        for (u32 each = 0; each < BUFFERS; ++each) {
            if (terms.read >> each & 1) load(buffers[each], group, operands[each]);
        }
        if (mask) decays_of(mask, first, group, 1.0f, decays);
        for (u32 term = 0; term < terms.count; ++term) {
            const u32 code = terms.codes[term], to = code & 15, left = code >> 4 & 15, arithmetic = code >> 13 & 7;
            float values[4] = {};
            on_operand(operands, code >> 8 & 15, [&](const float (&right)[4]) {
#pragma unroll
                for (u32 lane = 0; lane < 4; ++lane) {
                    const bool spared = (code >> 12 & 1) && decays[lane] == 0.0f;
                    values[lane] = of_right(arithmetic, spared ? 0.0f : terms.factors[term], right[lane]);
                }
            });
            on_operand(operands, left, [&](const float (&other)[4]) {
#pragma unroll
                for (u32 lane = 0; lane < 4; ++lane) values[lane] = with_left(arithmetic, other[lane], values[lane]);
            });
            on_operand(operands, to, [&](float (&written)[4]) {
#pragma unroll
                for (u32 lane = 0; lane < 4; ++lane) written[lane] = values[lane];
            });
        }
#pragma unroll
        for (u32 each = 0; each < BUFFERS; ++each) {
            if (terms.written >> each & 1) store(buffers[each], group, operands[each]);
        }
    }, a, b, c, d, e, f);
}
