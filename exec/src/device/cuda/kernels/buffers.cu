// Sums of two buffers, and fp32 to bf16 and back: of weights, gradients and messages.

// a ← a + b: what a reduction does with a message.
KERNEL(add_into)(float* a, const float* b, u64 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(b, group, values);
        merge(a, group, values, true);
    }, a, b);
}

// y ← x rounded to bf16, halves to even.
KERNEL(to_bf16)(const float* x, u16* y, u64 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
        store(y, group, values);
    }, y, x);
}

// y ← x, exactly, or adds that.
KERNEL(from_bf16)(const u16* x, float* y, u64 elements, bool accumulate) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
        merge(y, group, values, accumulate);
    }, y, x);
}
