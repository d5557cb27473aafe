// Dropout (Srivastava et al. 2014) with the same random numbers on every device: element i of a sample uses word offset
// + i of the ChaCha8 stream whose key is the seed, the purpose, the sample's place in the run, and the layer.

// Selects a layer's random numbers in a run; mirrors the host's struct of this name.
struct Draws {
    u64 seed, purpose, layer, offset;
};

__device__ inline u32 rotated(u32 value, u32 by) { return value << by | value >> (32 - by); }

__device__ inline void quarter_round(u32& a, u32& b, u32& c, u32& d) {
    a += b, d = rotated(d ^ a, 16);
    c += d, b = rotated(b ^ c, 12);
    a += b, d = rotated(d ^ a, 8);
    c += d, b = rotated(b ^ c, 7);
}

// Block `counter` of the stream, sixteen words (Bernstein 2008, with eight rounds; the nonce is 0).
__device__ inline void chacha8(const Draws& draws, u64 place, u64 counter, u32 (&words)[16]) {
    const u64 key[4] = {draws.seed, draws.purpose, place, draws.layer};
    u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
#pragma unroll
    for (u32 half = 0; half < 8; ++half) start[4 + half] = u32(key[half / 2] >> (half % 2 * 32));
    start[12] = u32(counter), start[13] = u32(counter >> 32), start[14] = 0, start[15] = 0;
#pragma unroll
    for (u32 word = 0; word < 16; ++word) words[word] = start[word];
#pragma unroll
    for (u32 round = 0; round < 4; ++round) {
#pragma unroll
        for (u32 column = 0; column < 4; ++column)
            quarter_round(words[column], words[4 + column], words[8 + column], words[12 + column]);
#pragma unroll
        for (u32 column = 0; column < 4; ++column)
            quarter_round(
                words[column], words[4 + (column + 1) % 4], words[8 + (column + 2) % 4], words[12 + (column + 3) % 4]);
    }
#pragma unroll
    for (u32 word = 0; word < 16; ++word) words[word] += start[word];
}

// Calls `body` with the four groups of each sixteen elements that one block of the stream decides, the index of the
// sixteen among all, and the group's index among the four. The groups must be aligned alike in all `pointers`.
template <class Begin, class Body, class End, class... P>
__device__ inline void each_sixteen(
    u32 samples, u32 size, u64 offset, Begin begin, Body body, End end, const P*... pointers) {
    const u64 first_block = offset / 16;
    const u32 blocks = u32((offset + size + 15) / 16 - first_block);
    for (u64 index = thread_of_grid(); index < u64(samples) * blocks; index += threads_of_grid()) {
        const u32 sample = u32(index / blocks), block = u32(index % blocks);
        begin(index, sample, first_block + block);
#pragma unroll
        for (u32 four = 0; four < 4; ++four) {
            // The place of the sample's element at lane 0, which may precede its first element.
            const long long place = (long long)(16 * (first_block + block) + 4 * four - offset);
            const u32 from = place < 0 ? (place < -4 ? 4 : u32(-place)) : 0;
            const long long left = (long long)(size)-place;
            const u32 to = left < 0 ? 0 : left < 4 ? u32(left) : 4;
            if (from >= to) continue;
            const long long first = (long long)(u64(sample) * size) + place;
            const bool aligned = ((offset_of(pointers + first) == 0) && ...);
            body(Group{first, from, to, aligned && from == 0 && to == 4}, four);
        }
        end(index);
    }
}

// Drops an element if its word is below `below` = rate · 2³², else y ← factor·x, factor = 1 / (1 − rate). `kept`
// receives a bit for each of the sixteen. y may alias x.
KERNEL(dropout_forward)(
    const Real* x, const u64* places, Real* y, u16* kept, u32 samples, u32 size, Draws draws, u32 below,
    float factor) {
    u32 words[16], bits = 0;
    each_sixteen(
        samples, size, draws.offset,
        [&](u64, u32 sample, u64 block) {
            chacha8(draws, places[sample], block, words);
            bits = 0;
        },
        [&](const Group& group, u32 four) {
            float values[4];
            load(x, group, values);
#pragma unroll
            for (u32 lane = 0; lane < 4; ++lane) {
                const bool keep = words[4 * four + lane] >= below;
                bits |= u32(keep) << (4 * four + lane);
                values[lane] = keep ? factor * values[lane] : 0.0f;
            }
            store(y, group, values);
        },
        [&](u64 index) { kept[index] = u16(bits); }, x, y);
}

// d_x ← factor·d_y for kept elements, else 0, or adds that. d_x may alias d_y.
KERNEL(dropout_backward)(
    const Real* d_y, const u16* kept, Real* d_x, u32 samples, u32 size, u64 offset, float factor, bool accumulate) {
    u32 bits = 0;
    each_sixteen(
        samples, size, offset, [&](u64 index, u32, u64) { bits = kept[index]; },
        [&](const Group& group, u32 four) {
            float gradients[4];
            load(d_y, group, gradients);
#pragma unroll
            for (u32 lane = 0; lane < 4; ++lane)
                gradients[lane] = (bits >> (4 * four + lane) & 1) != 0 ? factor * gradients[lane] : 0.0f;
            merge(d_x, group, gradients, accumulate);
        },
        [](u64) {}, d_y, d_x);
}
