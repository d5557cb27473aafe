// Sums of two buffers: of gradients and messages.

// a ← a + b: what a reduction does with a message.
KERNEL(add_into)(float* a, const float* b, u64 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(b, group, values);
        merge(a, group, values, true);
    }, a, b);
}
