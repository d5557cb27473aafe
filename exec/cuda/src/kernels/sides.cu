// Layers that move, repeat or mix places of images: products of two images, selections of channels, borders, resizing,
// blurring. One thread handles one element.

// An image's sides; with `last` channels vary fastest. Mirrors the host's struct of this name.
struct Sides {
    u32 channels, height, width, last;

    __device__ u64 size() const { return u64(channels) * height * width; }
    __device__ u64 at(u32 channel, u32 row, u32 column) const {
        return last ? (u64(row) * width + column) * channels + channel : (u64(channel) * height + row) * width + column;
    }
};

// The place of element `index` of [samples, image].
struct SidePlace {
    u32 sample, channel, row, column;

    __device__ SidePlace(u64 index, const Sides& sides) {
        sample = u32(index / sides.size());
        u64 rest = index % sides.size();
        if (sides.last) {
            channel = u32(rest % sides.channels), rest /= sides.channels;
            column = u32(rest % sides.width), row = u32(rest / sides.width);
        } else {
            column = u32(rest % sides.width), rest /= sides.width;
            row = u32(rest % sides.height), channel = u32(rest / sides.height);
        }
    }
};

// The element of the second factor, some of whose sides are 1, at a place of the first.
__device__ inline u64 repeated(const SidePlace& place, const Sides& sides) {
    return place.sample * sides.size() + sides.at(
        sides.channels == 1 ? 0 : place.channel, sides.height == 1 ? 0 : place.row, sides.width == 1 ? 0 : place.column);
}

// y ← a · b, b repeated.
KERNEL(product_forward)(const Real* a, const Real* b, Real* y, u32 elements, Sides first, Sides second) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid())
        store(y + index, load(a + index) * load(b + repeated(SidePlace(index, first), second)));
}

// d_a ← d_y · b, b repeated, or adds that.
KERNEL(product_backward_first)(
    const Real* d_y, const Real* b, Real* d_a, u32 elements, Sides first, Sides second, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid())
        merge(d_a + index, load(d_y + index) * load(b + repeated(SidePlace(index, first), second)), accumulate);
}

// d_b ← Σ d_y · a over the places where b is repeated, or adds that; `elements` are b's.
KERNEL(product_backward_second)(
    const Real* d_y, const Real* a, Real* d_b, u32 elements, Sides first, Sides second, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, second);
        const u32 channels = second.channels == 1 ? first.channels : 1;
        const u32 rows = second.height == 1 ? first.height : 1, columns = second.width == 1 ? first.width : 1;
        float sum = 0.0f;
        for (u32 channel = at.channel; channel < at.channel + channels; ++channel)
            for (u32 row = at.row; row < at.row + rows; ++row)
                for (u32 column = at.column; column < at.column + columns; ++column) {
                    const u64 place = at.sample * first.size() + first.at(channel, row, column);
                    sum += load(d_y + place) * load(a + place);
                }
        merge(d_b + index, sum, accumulate);
    }
}

// Which place of the input an output place is, and back. Mirrors the host's struct of this name.
struct Moves {
    u32 first, channels, groups, above, left;

    __device__ u32 source(u32 channel) const { return first + channel % groups * (channels / groups) + channel / groups; }
    __device__ u32 target(u32 channel) const {
        const u32 at = channel - first, each = channels / groups;
        return at % each * groups + at / each;
    }
};

// y ← the input's element at each place, 0 outside it.
KERNEL(moved_forward)(const Real* x, Real* y, u32 elements, Sides input, Sides output, Moves moves) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, output);
        const u32 row = at.row - moves.above, column = at.column - moves.left;
        const bool inside = row < input.height && column < input.width;
        const u64 from = at.sample * input.size() + input.at(moves.source(at.channel), row, column);
        store(y + index, inside ? load(x + from) : 0.0f);
    }
}

// d_x ← d_y of the place that takes it, 0 where none does, or adds that.
KERNEL(moved_backward)(
    const Real* d_y, Real* d_x, u32 elements, Sides input, Sides output, Moves moves, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, input);
        const bool taken = at.channel >= moves.first && at.channel < moves.first + moves.channels;
        const u64 from = taken
            ? at.sample * output.size() + output.at(moves.target(at.channel), at.row + moves.above, at.column + moves.left)
            : 0;
        merge(d_x + index, taken ? load(d_y + from) : 0.0f, accumulate);
    }
}

// An output row or column on the input's side: reflected at the edge, which is not repeated. `before` is the border's width.
__device__ inline u32 reflected(u32 place, u32 before, u32 side) {
    const u32 at = place < before ? before - place : place - before;
    return at < side ? at : 2 * side - 2 - at;
}

// Calls `body` with the output rows, or columns, that are the input's row `at`: itself, and its reflections in the border.
template <class Body>
__device__ inline void each_reflection(u32 at, u32 before, u32 side, u32 wide, Body body) {
    body(at + before);
    if (at > 0 && at <= before) body(before - at);
    const u32 behind = before + 2 * side - 2 - at;
    if (at + 1 < side && behind < wide) body(behind);
}

// y ← the image with its reflection around it.
KERNEL(reflected_forward)(const Real* x, Real* y, u32 elements, Sides input, Sides output, u32 above, u32 left) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, output);
        const u32 row = reflected(at.row, above, input.height), column = reflected(at.column, left, input.width);
        store(y + index, load(x + at.sample * input.size() + input.at(at.channel, row, column)));
    }
}

// d_x ← Σ d_y of all places that show it, or adds that.
KERNEL(reflected_backward)(
    const Real* d_y, Real* d_x, u32 elements, Sides input, Sides output, u32 above, u32 left, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, input);
        float sum = 0.0f;
        each_reflection(at.row, above, input.height, output.height, [&](u32 row) {
            each_reflection(at.column, left, input.width, output.width, [&](u32 column) {
                sum += load(d_y + at.sample * output.size() + output.at(at.channel, row, column));
            });
        });
        merge(d_x + index, sum, accumulate);
    }
}

// y ← the input's nearest place: ⌊place · input side / output side⌋.
KERNEL(resize_forward)(const Real* x, Real* y, u32 elements, Sides input, Sides output) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, output);
        const u32 row = u32(u64(at.row) * input.height / output.height);
        const u32 column = u32(u64(at.column) * input.width / output.width);
        store(y + index, load(x + at.sample * input.size() + input.at(at.channel, row, column)));
    }
}

// The first output row, or column, that is the input's row `at` or a later one.
__device__ inline u32 first_target(u32 at, u32 input, u32 output) {
    return u32((u64(at) * output + input - 1) / input);
}

// d_x ← Σ d_y of all places that took it, or adds that.
KERNEL(resize_backward)(const Real* d_y, Real* d_x, u32 elements, Sides input, Sides output, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, input);
        const u32 below = first_target(at.row + 1, input.height, output.height);
        const u32 right = first_target(at.column + 1, input.width, output.width);
        float sum = 0.0f;
        for (u32 row = first_target(at.row, input.height, output.height); row < below; ++row)
            for (u32 column = first_target(at.column, input.width, output.width); column < right; ++column)
                sum += load(d_y + at.sample * output.size() + output.at(at.channel, row, column));
        merge(d_x + index, sum, accumulate);
    }
}

// A blurring filter. Mirrors the host's struct of this name.
struct Blur {
    u32 taps, stride_down, stride_along, above, left;

    // The binomial coefficient of a tap divided by the sum of all.
    __device__ float tap(u32 at) const {
        float number = 1.0f;
        for (u32 i = 0; i < at; ++i) number = number * float(taps - 1 - i) / float(i + 1);
        return number / float(1u << (taps - 1));
    }
};

// y ← Σ tap · tap · x over the window.
KERNEL(blur_forward)(const Real* x, Real* y, u32 elements, Sides input, Sides output, Blur blur) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, output);
        float sum = 0.0f;
        for (u32 i = 0; i < blur.taps; ++i) {
            const u32 row = at.row * blur.stride_down + i - blur.above;
            if (row >= input.height) continue;
            float line = 0.0f;
            for (u32 j = 0; j < blur.taps; ++j) {
                const u32 column = at.column * blur.stride_along + j - blur.left;
                if (column < input.width)
                    line += blur.tap(j) * load(x + at.sample * input.size() + input.at(at.channel, row, column));
            }
            sum += blur.tap(i) * line;
        }
        store(y + index, sum);
    }
}

// d_x ← Σ tap · tap · d_y over the windows that it lies in, or adds that.
KERNEL(blur_backward)(const Real* d_y, Real* d_x, u32 elements, Sides input, Sides output, Blur blur, bool accumulate) {
    for (u64 index = thread_of_grid(); index < elements; index += threads_of_grid()) {
        const SidePlace at(index, input);
        float sum = 0.0f;
        for (u32 i = 0; i < blur.taps; ++i) {
            const u32 down = at.row + blur.above - i, row = down / blur.stride_down;
            if (at.row + blur.above < i || down % blur.stride_down != 0 || row >= output.height) continue;
            float line = 0.0f;
            for (u32 j = 0; j < blur.taps; ++j) {
                const u32 along = at.column + blur.left - j, column = along / blur.stride_along;
                if (at.column + blur.left < j || along % blur.stride_along != 0 || column >= output.width) continue;
                line += blur.tap(j) * load(d_y + at.sample * output.size() + output.at(at.channel, row, column));
            }
            sum += blur.tap(i) * line;
        }
        merge(d_x + index, sum, accumulate);
    }
}
