// Pooling over windows and over whole planes. Backward passes gather: a thread has one place of the input and adds what the
// windows over it send, in their order.

// The places from..to of an axis.
struct Span {
    u32 from, to;

    __device__ u32 count() const { return to - from; }
};

// The places of one axis that window `at` covers inside the image.
__device__ inline Span covered(u32 at, u32 kernel, u32 stride, u32 padding, u32 size) {
    const u32 start = at * stride, stop = start + kernel;
    u32 to = stop > padding ? stop - padding : 0;
    to = to < size ? to : size;
    const u32 from = start > padding ? start - padding : 0;
    return Span{from < to ? from : to, to};
}

// The windows of one axis that cover place `at`.
__device__ inline Span covering(u32 at, u32 kernel, u32 stride, u32 padding, u32 windows) {
    const u32 shifted = at + padding, last = shifted / stride + 1;
    const u32 from = shifted + 1 > kernel ? (shifted + 1 - kernel + stride - 1) / stride : 0;
    return Span{from, last < windows ? last : windows};
}

// The windows on a plane; as the host's struct of this name.
struct Window {
    u32 input_height, input_width, output_height, output_width;
    u32 kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;

    // What the windows of an output's row or column cover.
    __device__ Span under_row(u32 row) const {
        return covered(row, kernel_height, stride_height, padding_height, input_height);
    }
    __device__ Span under_column(u32 column) const {
        return covered(column, kernel_width, stride_width, padding_width, input_width);
    }

    // Which rows or columns of windows cover an input's row or column.
    __device__ Span over_row(u32 row) const {
        return covering(row, kernel_height, stride_height, padding_height, output_height);
    }
    __device__ Span over_column(u32 column) const {
        return covering(column, kernel_width, stride_width, padding_width, output_width);
    }
};

// Where element `index` of [images, height, width] lies.
struct Place {
    u32 image, within, row, column;

    __device__ Place(u64 index, u32 height, u32 width) {
        const u32 plane = height * width;
        image = u32(index) / plane, within = u32(index) - image * plane;
        row = within / width, column = within - row * width;
    }
};

// Calls `body` with the elements of [images, window's outputs] and where they lie.
template <class Body>
__device__ inline void each_output(u64 images, const Window& window, Body body) {
    const u64 all = images * window.output_height * window.output_width;
    for (u64 index = thread_of_grid(); index < all; index += threads_of_grid())
        body(index, Place(index, window.output_height, window.output_width));
}

// Calls `body` with the elements of [images, window's inputs] and where they lie.
template <class Body>
__device__ inline void each_input(u64 images, const Window& window, Body body) {
    const u64 all = images * window.input_height * window.input_width;
    for (u64 index = thread_of_grid(); index < all; index += threads_of_grid())
        body(index, Place(index, window.input_height, window.input_width));
}

// y ← the largest x + bias of each window, rectified or not, and `best` its place in the plane, the first of equals; null biases
// are 0. What is outside the image never wins.
KERNEL(max_pool_forward)(
    const Real* x, const float* biases, Real* y, u32* best, u32 samples, u32 channels, Window window, bool rectified) {
    each_output(u64(samples) * channels, window, [&](u64 index, const Place& at) {
        const Span rows = window.under_row(at.row), columns = window.under_column(at.column);
        const float bias = biases ? biases[at.image % channels] : 0.0f;
        const Real* from = x + u64(at.image) * window.input_height * window.input_width;
        float largest = __uint_as_float(0xff800000u);
        u32 found = 0;
        bool empty = true;
        for (u32 r = rows.from; r < rows.to; ++r) {
            for (u32 c = columns.from; c < columns.to; ++c) {
                const u32 place = r * window.input_width + c;
                const float own = load(from + place), value = biases ? own + bias : own;
                if (empty || value > largest) largest = value, found = place, empty = false;
            }
        }
        store(y + index, rectified ? relu(largest) : largest);
        best[index] = found;
    });
}

// d_x ← Σ d_y of the windows whose largest is at this place, with a ReLU of those whose y is above 0, or adds that.
KERNEL(max_pool_backward)(
    const Real* d_y, const Real* y, const u32* best, Real* d_x, u32 planes, Window window, bool rectified,
    bool accumulate) {
    each_input(planes, window, [&](u64 index, const Place& at) {
        const Span rows = window.over_row(at.row), columns = window.over_column(at.column);
        const u64 first = u64(at.image) * window.output_height * window.output_width;
        float sum = 0.0f;
        for (u32 r = rows.from; r < rows.to; ++r) {
            for (u32 c = columns.from; c < columns.to; ++c) {
                const u64 from = first + r * window.output_width + c;
                if (best[from] == at.within && !(rectified && load(y + from) <= 0.0f)) sum += load(d_y + from);
            }
        }
        merge(d_x + index, sum, accumulate);
    });
}

// y ← the mean over each window's places inside the image.
KERNEL(mean_pool_forward)(const Real* x, Real* y, u32 planes, Window window) {
    each_output(planes, window, [&](u64 index, const Place& at) {
        const Span rows = window.under_row(at.row), columns = window.under_column(at.column);
        const Real* from = x + u64(at.image) * window.input_height * window.input_width;
        float total = 0.0f;
        for (u32 r = rows.from; r < rows.to; ++r) {
            float of_row = 0.0f;
            for (u32 c = columns.from; c < columns.to; ++c) of_row += load(from + r * window.input_width + c);
            total += of_row;
        }
        const u32 count = rows.count() * columns.count();
        store(y + index, total / float(count > 0 ? count : 1));
    });
}

// d_x ← Σ d_y / places of the windows over this place, or adds that.
KERNEL(mean_pool_backward)(
    const Real* d_y, Real* d_x, u32 planes, Window window, bool accumulate) {
    each_input(planes, window, [&](u64 index, const Place& at) {
        const Span rows = window.over_row(at.row), columns = window.over_column(at.column);
        const u64 first = u64(at.image) * window.output_height * window.output_width;
        float sum = 0.0f;
        for (u32 r = rows.from; r < rows.to; ++r) {
            const u32 high = window.under_row(r).count();
            for (u32 c = columns.from; c < columns.to; ++c) {
                const u32 count = high * window.under_column(c).count();
                sum += load(d_y + first + r * window.output_width + c) / float(count);
            }
        }
        merge(d_x + index, sum, accumulate);
    });
}

// y ← the mean of each plane; a warp a plane.
KERNEL(global_pool_forward)(const Real* x, Real* y, u32 planes, u32 plane) {
    const u32 lane = threadIdx.x % WARP;
    for (u64 image = thread_of_grid() / WARP; image < planes; image += threads_of_grid() / WARP) {
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

// d_x ← d_y / plane, or adds that.
KERNEL(global_pool_backward)(const Real* d_y, Real* d_x, u32 planes, u32 plane, bool accumulate) {
    each_group(u64(planes) * plane, [&](const Group& group) {
        float slopes[4] = {};
        Channel at(planes, plane, group.first + group.from);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
            slopes[lane] = load(d_y + at.channel) / float(plane);
            at.step();
        }
        merge(d_x, group, slopes, accumulate);
    }, d_x);
}
