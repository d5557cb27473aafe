// Pooling over whole planes of [images, plane, inner]; `inner` as in pooling.cu.

// y ← the mean of each contiguous plane; one warp per plane.
__device__ inline void means_of_planes(const Real* x, Real* y, u32 images, u32 plane) {
    const u32 lane = threadIdx.x % WARP;
    for (u64 image = thread_of_grid() / WARP; image < images; image += threads_of_grid() / WARP) {
        const Real* from = x + image * plane;
        float sum = 0.0f;
        if (in_fours(plane, x)) {
            for (u32 at = 4 * lane; at < plane; at += 4 * WARP) {
                float values[4];
                load(from, Group{at, 0, 4, true}, values);
                sum += (values[0] + values[1]) + (values[2] + values[3]);
            }
        } else {
            for (u32 at = lane; at < plane; at += WARP) sum += load(from + at);
        }
        sum = warp_sum(sum);
        if (lane == 0) store(y + image, sum / float(plane));
    }
}

// y ← the mean of each of many interleaved planes; a thread handles `width` neighbours of `inner`.
__device__ inline void means_of_inner(const Real* x, Real* y, u32 images, u32 plane, u32 inner, u32 width) {
    const Group group{0, 0, width, width == 4};
    for (u64 at = thread_of_grid() * width; at < u64(images) * inner; at += threads_of_grid() * width) {
        const u32 image = u32(at) / inner, within = u32(at) - image * inner;
        const Real* from = x + u64(image) * plane * inner + within;
        float sums[4] = {};
#pragma unroll 4
        for (u32 place = 0; place < plane; ++place) {
            float values[4];
            load(from + u64(place) * inner, group, values);
#pragma unroll
            for (u32 lane = 0; lane < 4; ++lane) sums[lane] += values[lane];
        }
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) sums[lane] = sums[lane] / float(plane);
        store(y + at, group, sums);
    }
}

// y ← the mean of each plane.
KERNEL(global_pool_forward)(const Real* x, Real* y, u32 images, u32 plane, u32 inner) {
    if (inner == 1) means_of_planes(x, y, images, plane);
    else means_of_inner(x, y, images, plane, inner, in_fours(inner, x, y) ? 4 : 1);
}

// d_x ← d_y / plane, or adds that.
KERNEL(global_pool_backward)(const Real* d_y, Real* d_x, u32 images, u32 plane, u32 inner, bool accumulate) {
    const bool fours = in_fours(inner, d_y, d_x);
    each_group(u64(images) * plane * inner, [&](const Group& group) {
        float gradients[4] = {};
        // The channel of the image, whose planes are `plane` · `inner` long.
        Channel at(images, plane * inner, group.first + group.from);
        if (fours) {
            load(d_y + u64(at.channel) * inner + (plane * inner - at.left) % inner, Group{0, 0, 4, true}, gradients);
#pragma unroll
            for (u32 lane = 0; lane < 4; ++lane) gradients[lane] = gradients[lane] / float(plane);
        } else {
#pragma unroll
            for (u32 lane = 0; lane < 4; ++lane) {
                if (!group.has(lane)) continue;
                const u32 within = inner == 1 ? 0 : (plane * inner - at.left) % inner;
                gradients[lane] = load(d_y + u64(at.channel) * inner + within) / float(plane);
                at.step();
            }
        }
        merge(d_x, group, gradients, accumulate);
    }, d_x);
}
