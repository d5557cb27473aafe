// Additions and ReLUs.

// y ← a + b, or relu(a + b). y may alias a or b.
KERNEL(add)(const Real* a, const Real* b, Real* y, u32 elements, bool rectified) {
    each_group(elements, [&](const Group& group) {
        float left[4], right[4];
        load(a, group, left);
        load(b, group, right);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            const float sum = left[lane] + right[lane];
            left[lane] = rectified ? relu(sum) : sum;
        }
        store(y, group, left);
    }, y, a, b);
}

// y ← relu(x). y may alias x.
KERNEL(relu_forward)(const Real* x, Real* y, u32 elements) {
    const auto fetch = [&](const Group& group) { return Four(x, group); };
    each_group_ahead(elements, fetch, [&](Four& values, const Group& group) {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values.of[lane] = relu(values.of[lane]);
        store(y, group, values.of);
    }, y, x);
}

// d_x ← d_y where y > 0, else 0, or adds that; likewise d_other, if it is not null: the gradients of both inputs of an
// addition. d_x or d_other may alias d_y.
KERNEL(relu_backward)(
    const Real* d_y, const Real* y, Real* d_x, Real* d_other, u32 elements, bool accumulate, bool accumulate_other) {
    each_group(elements, [&](const Group& group) {
        float gradients[4], values[4];
        load(d_y, group, gradients);
        load(y, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = gradients[lane] = values[lane] <= 0.0f ? 0.0f : gradients[lane];
        merge(d_x, group, gradients, accumulate);
        if (d_other) merge(d_other, group, values, accumulate_other);
    }, d_x, d_y, y, d_other);
}
