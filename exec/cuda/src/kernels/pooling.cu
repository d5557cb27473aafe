// Pooling over windows and over whole planes of [images, height, width, inner]: with channels first an image is a
// channel of a sample and `inner` is 1, with channels last an image is a sample and `inner` its channels. Backward
// passes gather: a thread handles one place of the input and adds the contributions of the windows over it, in their
// order.
//
// A thread handles four neighbours of `inner` where alignment allows, else one.

// The places from..to along an axis.
struct Span {
    u32 from, to;

    __device__ u32 count() const { return to - from; }
};

// The places along one axis that window `at` covers inside the image.
__device__ inline Span covered(u32 at, u32 kernel, u32 stride, u32 padding, u32 size) {
    const u32 start = at * stride, stop = start + kernel;
    u32 to = stop > padding ? stop - padding : 0;
    to = to < size ? to : size;
    const u32 from = start > padding ? start - padding : 0;
    return Span{from < to ? from : to, to};
}

// How many places along one axis window `at` covers inside the padded image.
__device__ inline u32 padded(u32 at, u32 kernel, u32 stride, u32 padding, u32 size) {
    const u32 start = at * stride, stop = start + kernel, end = size + 2 * padding;
    return (stop < end ? stop : end) - start;
}

// The windows along one axis that cover place `at`.
__device__ inline Span covering(u32 at, u32 kernel, u32 stride, u32 padding, u32 windows) {
    const u32 shifted = at + padding, last = shifted / stride + 1;
    const u32 from = shifted + 1 > kernel ? (shifted + 1 - kernel + stride - 1) / stride : 0;
    return Span{from, last < windows ? last : windows};
}

// The windows on a plane; mirrors the host's struct of this name.
struct Window {
    u32 input_height, input_width, output_height, output_width;
    u32 kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width, inner, counted;

    // The input rows or columns that the windows of an output row or column cover.
    __device__ Span under_row(u32 row) const {
        return covered(row, kernel_height, stride_height, padding_height, input_height);
    }
    __device__ Span under_column(u32 column) const {
        return covered(column, kernel_width, stride_width, padding_width, input_width);
    }

    // The places of such windows that a mean divides by: also those of the padding, or not.
    __device__ u32 counted_row(u32 row) const {
        return counted ? padded(row, kernel_height, stride_height, padding_height, input_height) : under_row(row).count();
    }
    __device__ u32 counted_column(u32 column) const {
        return counted ? padded(column, kernel_width, stride_width, padding_width, input_width) : under_column(column).count();
    }

    // The rows or columns of windows that cover an input row or column.
    __device__ Span over_row(u32 row) const {
        return covering(row, kernel_height, stride_height, padding_height, output_height);
    }
    __device__ Span over_column(u32 column) const {
        return covering(column, kernel_width, stride_width, padding_width, output_width);
    }

    // Elements of an image, and the index in it of the element at a row and column.
    __device__ u64 inputs() const { return u64(input_height) * input_width * inner; }
    __device__ u64 outputs() const { return u64(output_height) * output_width * inner; }
    __device__ u64 input(u32 row, u32 column) const { return (u64(row) * input_width + column) * inner; }
    __device__ u64 output(u32 row, u32 column) const { return (u64(row) * output_width + column) * inner; }
};

// The position of element `index` of [images, height, width, inner].
struct Place {
    u32 image, within, row, column, inner;

    __device__ Place(u64 index, u32 height, u32 width, u32 of) {
        const u32 plane = height * width, place = of == 1 ? u32(index) : u32(index) / of;
        inner = u32(index) - place * of;
        image = place / plane, within = place - image * plane;
        row = within / width, column = within - row * width;
    }
};

// Calls `body` with every W-th element of [images, window's outputs] and its position.
template <u32 W, class Body>
__device__ inline void each_output(u32 images, const Window& window, Body body) {
    const u64 all = images * window.outputs() / W;
    for (u64 index = thread_of_grid(); index < all; index += threads_of_grid())
        body(W * index, Place(W * index, window.output_height, window.output_width, window.inner));
}

// Calls `body` with every W-th element of [images, window's inputs] and its position.
template <u32 W, class Body>
__device__ inline void each_input(u32 images, const Window& window, Body body) {
    const u64 all = images * window.inputs() / W;
    for (u64 index = thread_of_grid(); index < all; index += threads_of_grid())
        body(W * index, Place(W * index, window.input_height, window.input_width, window.inner));
}

// W contiguous neighbours, accessed as vectors.
template <u32 W, class R>
__device__ inline void load_all(const R* from, float (&into)[W]) {
    if constexpr (W == 4) load(from, Group{0, 0, 4, true}, into);
    else into[0] = load(from);
}

template <u32 W, class R>
__device__ inline void merge_all(R* into, float (&values)[W], bool accumulate) {
    if constexpr (W == 4) merge(into, Group{0, 0, 4, true}, values, accumulate);
    else merge(into, values[0], accumulate);
}

template <u32 W>
__device__ inline void load_places(const u32* from, u32 (&into)[W]) {
    if constexpr (W == 4) {
        const uint4 all = *reinterpret_cast<const uint4*>(from);
        into[0] = all.x, into[1] = all.y, into[2] = all.z, into[3] = all.w;
    } else {
        into[0] = *from;
    }
}

template <u32 W>
__device__ inline void store_places(u32* into, const u32 (&places)[W]) {
    if constexpr (W == 4) *reinterpret_cast<uint4*>(into) = make_uint4(places[0], places[1], places[2], places[3]);
    else *into = places[0];
}

template <u32 W>
__device__ inline void largest_of_windows(
    const Real* x, const float* biases, Real* y, u32* best, u32 images, u32 channels, const Window& window,
    bool rectified) {
    each_output<W>(images, window, [&](u64 index, const Place& at) {
        const Span rows = window.under_row(at.row), columns = window.under_column(at.column);
        const Real* from = x + at.image * window.inputs() + at.inner;
        float bias[W] = {}, largest[W], values[W];
        u32 found[W] = {};
#pragma unroll
        for (u32 lane = 0; lane < W; ++lane) {
            if (biases) bias[lane] = biases[(at.image * window.inner + at.inner + lane) % channels];
            largest[lane] = __uint_as_float(0xff800000u);
        }
        bool empty = true;
        for (u32 r = rows.from; r < rows.to; ++r) {
            for (u32 c = columns.from; c < columns.to; ++c) {
                load_all<W>(from + window.input(r, c), values);
#pragma unroll
                for (u32 lane = 0; lane < W; ++lane) {
                    const float value = biases ? values[lane] + bias[lane] : values[lane];
                    if (empty || value > largest[lane]) largest[lane] = value, found[lane] = r * window.input_width + c;
                }
                empty = false;
            }
        }
#pragma unroll
        for (u32 lane = 0; lane < W; ++lane) largest[lane] = rectified ? relu(largest[lane]) : largest[lane];
        merge_all<W>(y + index, largest, false);
        store_places<W>(best + index, found);
    });
}

// y ← the largest x + bias of each window, rectified or not, and `best` its place in the plane, the first of equals;
// null biases are 0. Places outside the image are never selected. Channels are counted through images and `inner`.
KERNEL(max_pool_forward)(
    const Real* x, const float* biases, Real* y, u32* best, u32 images, u32 channels, Window window, bool rectified) {
    if (in_fours(window.inner, x, y, best))
        largest_of_windows<4>(x, biases, y, best, images, channels, window, rectified);
    else
        largest_of_windows<1>(x, biases, y, best, images, channels, window, rectified);
}

template <u32 W>
__device__ inline void gradients_of_largest(
    const Real* d_y, const Real* y, const u32* best, Real* d_x, u32 images, const Window& window, bool rectified,
    bool accumulate) {
    each_input<W>(images, window, [&](u64 index, const Place& at) {
        const Span rows = window.over_row(at.row), columns = window.over_column(at.column);
        const u64 first = at.image * window.outputs() + at.inner;
        float sums[W] = {}, gradients[W], outputs[W] = {};
        u32 places[W];
        for (u32 r = rows.from; r < rows.to; ++r) {
            for (u32 c = columns.from; c < columns.to; ++c) {
                const u64 from = first + window.output(r, c);
                load_places<W>(best + from, places);
                load_all<W>(d_y + from, gradients);
                if (rectified) load_all<W>(y + from, outputs);
#pragma unroll
                for (u32 lane = 0; lane < W; ++lane)
                    if (places[lane] == at.within && !(rectified && outputs[lane] <= 0.0f)) sums[lane] += gradients[lane];
            }
        }
        merge_all<W>(d_x + index, sums, accumulate);
    });
}

// d_x ← Σ d_y of the windows whose maximum is at this place (with a ReLU, those with y above 0), or adds that.
KERNEL(max_pool_backward)(
    const Real* d_y, const Real* y, const u32* best, Real* d_x, u32 images, Window window, bool rectified,
    bool accumulate) {
    if (in_fours(window.inner, d_y, y, best, d_x))
        gradients_of_largest<4>(d_y, y, best, d_x, images, window, rectified, accumulate);
    else
        gradients_of_largest<1>(d_y, y, best, d_x, images, window, rectified, accumulate);
}

template <u32 W>
__device__ inline void means_of_windows(const Real* x, Real* y, u32 images, const Window& window) {
    each_output<W>(images, window, [&](u64 index, const Place& at) {
        const Span rows = window.under_row(at.row), columns = window.under_column(at.column);
        const Real* from = x + at.image * window.inputs() + at.inner;
        float totals[W] = {}, values[W];
        for (u32 r = rows.from; r < rows.to; ++r) {
            float of_row[W] = {};
            for (u32 c = columns.from; c < columns.to; ++c) {
                load_all<W>(from + window.input(r, c), values);
#pragma unroll
                for (u32 lane = 0; lane < W; ++lane) of_row[lane] += values[lane];
            }
#pragma unroll
            for (u32 lane = 0; lane < W; ++lane) totals[lane] += of_row[lane];
        }
        const u32 count = window.counted_row(at.row) * window.counted_column(at.column);
#pragma unroll
        for (u32 lane = 0; lane < W; ++lane) totals[lane] = totals[lane] / float(count > 0 ? count : 1);
        merge_all<W>(y + index, totals, false);
    });
}

// y ← the mean over each window's places inside the image, or inside the padded one.
KERNEL(mean_pool_forward)(const Real* x, Real* y, u32 images, Window window) {
    if (in_fours(window.inner, x, y)) means_of_windows<4>(x, y, images, window);
    else means_of_windows<1>(x, y, images, window);
}

template <u32 W>
__device__ inline void gradients_of_means(const Real* d_y, Real* d_x, u32 images, const Window& window, bool accumulate) {
    each_input<W>(images, window, [&](u64 index, const Place& at) {
        const Span rows = window.over_row(at.row), columns = window.over_column(at.column);
        const Real* from = d_y + at.image * window.outputs() + at.inner;
        float sums[W] = {}, gradients[W];
        for (u32 r = rows.from; r < rows.to; ++r) {
            const u32 high = window.counted_row(r);
            for (u32 c = columns.from; c < columns.to; ++c) {
                const u32 count = high * window.counted_column(c);
                load_all<W>(from + window.output(r, c), gradients);
#pragma unroll
                for (u32 lane = 0; lane < W; ++lane) sums[lane] += gradients[lane] / float(count);
            }
        }
        merge_all<W>(d_x + index, sums, accumulate);
    });
}

// d_x ← Σ d_y / places of the windows over this place, or adds that.
KERNEL(mean_pool_backward)(const Real* d_y, Real* d_x, u32 images, Window window, bool accumulate) {
    if (in_fours(window.inner, d_y, d_x)) gradients_of_means<4>(d_y, d_x, images, window, accumulate);
    else gradients_of_means<1>(d_y, d_x, images, window, accumulate);
}
