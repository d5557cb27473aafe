// Sums two buffers: gradients and messages.

// a ← a + b, as a reduction adds a message.
KERNEL(add_into)(float* a, const float* b, u64 elements) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(b, group, values);
        merge(a, group, values, true);
    }, a, b);
}
