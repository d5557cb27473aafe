// Sums over the columns of [rows, channels]: what channels.cu and batch_norm.cu sum over planes, for tensors with channels last
// and for the rows of dense layers. What finishes those sums finishes these.
//
// A block has a tile of neighbouring channels and a part of the rows. Threads lie side by side along the channels, four to a
// thread, and one behind the other along the rows; each sums its rows, and then halves of them are added to each other.

// A block's share of [rows, channels], and a thread's of that.
struct Tile {
    u32 channels, part, lanes, lane, row;
    Group group;

    __device__ Tile(u32 channels, bool fours) : channels(channels), lanes(1) {
        while (lanes < 8 && 4 * lanes < channels) lanes *= 2;
        const u32 tiles = (channels + 4 * lanes - 1) / (4 * lanes), tile = blockIdx.x % tiles;
        part = blockIdx.x / tiles, lane = threadIdx.x % lanes, row = threadIdx.x / lanes;
        const u32 first = 4 * (tile * lanes + lane), left = first < channels ? channels - first : 0;
        group = Group{first, 0, left < 4 ? left : 4, fours && left >= 4};
    }

    // Of threads one behind the other.
    __device__ u32 rows() const { return BLOCK / lanes; }

    __device__ u32 channel(u32 at) const { return u32(group.first) + at; }

    // Calls `body` with the thread's groups of four in the rows begin..end, and `fold` behind every 64 of them and the last.
    template <class Body, class Fold>
    __device__ void each(u32 begin, u32 end, Body body, Fold fold) const {
        if (group.to == 0) return;
        const u64 step = u64(rows()) * 64;
        for (u64 from = u64(begin) + row; from < end; from += step) {
            const u64 to = from + step < end ? from + step : end;
#pragma unroll 4
            for (u64 at = from; at < to; at += rows())
                body(Group{(long long)(at * channels) + group.first, 0, group.to, group.whole});
            fold();
        }
    }
};

// Σ over the block's threads of two numbers for each channel of its tile; `finish` is called with them and where the channel's
// part of `partials` lies. `scratch` holds eight numbers for each thread.
template <class Finish>
__device__ inline void sum_of_threads(
    const Tile& tile, const double (&first)[4], const double (&second)[4], double* scratch, double* partials,
    const Parts& parts, Finish finish) {
    double* own = scratch + threadIdx.x;
#pragma unroll
    for (u32 at = 0; at < 4; ++at) own[at * BLOCK] = first[at], own[(4 + at) * BLOCK] = second[at];
    for (u32 half = tile.rows() / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tile.row >= half) continue;
#pragma unroll
        for (u32 at = 0; at < 8; ++at) own[at * BLOCK] += own[at * BLOCK + half * tile.lanes];
    }
    if (tile.row > 0) return;
    for (u32 at = 0; at < tile.group.to; ++at) {
        double* into = partials + 2 * (u64(tile.channel(at)) * parts.parts + tile.part);
        finish(at, own[at * BLOCK], own[(4 + at) * BLOCK], into);
    }
}

// As channel_slopes, with the gradient masked or not.
template <bool MASKED>
__device__ inline void slopes_of_columns(
    const Real* d_y, const Real* x, const Real* y, const float* means, const float* inverses, const float* gammas,
    const float* betas, Real* masked, double* partials, u32 channels, Parts parts, bool rectified, double* scratch) {
    const Tile tile(channels, in_fours(channels, d_y, x, y, masked));
    const bool from_input = rectified && !y;
    float mean[4] = {}, scale[4] = {}, shift[4] = {};
    for (u32 at = 0; at < tile.group.to; ++at) {
        const u32 channel = tile.channel(at);
        if (means) mean[at] = means[channel];
        if (from_input) scale[at] = gammas[channel] * inverses[channel], shift[at] = betas[channel];
    }
    double all_products[4] = {}, all[4] = {};
    float products[4] = {}, sum[4] = {};
    tile.each(
        parts.begin(tile.part), parts.end(tile.part),
        [&](const Group& group) {
            float slopes[4], values[4] = {}, outputs[4] = {};
            load(d_y, group, slopes);
            if (x) load(x, group, values);
            if (rectified && y) load(y, group, outputs);
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                const float off = values[at] - mean[at];
                if (rectified && (from_input ? off * scale[at] + shift[at] : outputs[at]) <= 0.0f) slopes[at] = 0.0f;
                products[at] += slopes[at] * off;
                sum[at] += slopes[at];
            }
            if (MASKED) store(masked, group, slopes);
        },
        [&] {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                all_products[at] += products[at], all[at] += sum[at];
                products[at] = 0.0f, sum[at] = 0.0f;
            }
        });
    sum_of_threads(tile, all_products, all, scratch, partials, parts, [](u32, double first, double second, double* into) {
        into[0] = first, into[1] = second;
    });
}

// channel_slopes of [rows, channels].
KERNEL(column_slopes)(
    const Real* d_y, const Real* x, const Real* y, const float* means, const float* inverses, const float* gammas,
    const float* betas, Real* masked, double* partials, u32 channels, Parts parts, bool rectified) {
    SHARED(double, scratch);
    // Without a store between them loads need not wait for each other.
    if (masked)
        slopes_of_columns<true>(
            d_y, x, y, means, inverses, gammas, betas, masked, partials, channels, parts, rectified, scratch);
    else
        slopes_of_columns<false>(
            d_y, x, y, means, inverses, gammas, betas, masked, partials, channels, parts, rectified, scratch);
}

// batch_norm_moments of [rows, channels]; the pivots are the elements of the part's first row.
KERNEL(column_moments)(const Real* x, double* partials, u32 channels, Parts parts) {
    SHARED(double, scratch);
    const Tile tile(channels, in_fours(channels, x));
    const u32 begin = parts.begin(tile.part), end = parts.end(tile.part);
    float pivots[4] = {};
    for (u32 at = 0; at < tile.group.to; ++at) pivots[at] = load(x + u64(begin) * channels + tile.channel(at));
    double all[4] = {}, all_squares[4] = {};
    float sum[4] = {}, squares[4] = {};
    tile.each(
        begin, end,
        [&](const Group& group) {
            float values[4];
            load(x, group, values);
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                const float off = values[at] - pivots[at];
                sum[at] += off;
                squares[at] += off * off;
            }
        },
        [&] {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                all[at] += sum[at], all_squares[at] += squares[at];
                sum[at] = 0.0f, squares[at] = 0.0f;
            }
        });
    const double here = end - begin;
    sum_of_threads(tile, all, all_squares, scratch, partials, parts, [&](u32 at, double first, double second, double* into) {
        into[0] = pivots[at] + first / here, into[1] = second - first * first / here;
    });
}
