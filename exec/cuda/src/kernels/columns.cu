// Sums over the columns of [rows, channels]: the sums of channels.cu and batch_norm.cu for tensors with channels last
// and for the rows of dense layers. The same kernels finish them.
//
// A block handles a tile of neighbouring channels and a part of the rows. Threads lie side by side along the channels,
// four channels to a thread, and one behind the other along the rows; each sums its rows, then halves of the threads
// are added pairwise.

// A block's share of [rows, channels], and a thread's part of it.
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

    // Number of threads along the rows.
    __device__ u32 rows() const { return BLOCK / lanes; }

    __device__ u32 channel(u32 at) const { return u32(group.first) + at; }

    // Calls `fetch` with the thread's groups in the rows begin..end, `use` with the groups and the fetched values, and
    // `fold` after every 64 rows and the last. Four groups are fetched before the first is used, so that loads overlap.
    template <class Fetch, class Use, class Fold>
    __device__ void each(u32 begin, u32 end, Fetch fetch, Use use, Fold fold) const {
        if (group.whole) sweep<true>(begin, end, fetch, use, fold);
        else if (group.to > 0) sweep<false>(begin, end, fetch, use, fold);
    }

    template <bool WHOLE, class Fetch, class Use, class Fold>
    __device__ void sweep(u32 begin, u32 end, Fetch& fetch, Use& use, Fold& fold) const {
        const u64 next = rows();
        const auto at = [&](u64 row) {
            return Group{(long long)(row * channels) + group.first, 0, WHOLE ? 4 : group.to, WHOLE};
        };
        for (u64 from = u64(begin) + row; from < end; from += 64 * next) {
            const u64 to = from + 64 * next < end ? from + 64 * next : end;
            u64 row = from;
            for (; row + 3 * next < to; row += 4 * next) {
                decltype(fetch(group)) fetched[4];
#pragma unroll
                for (u32 each = 0; each < 4; ++each) fetched[each] = fetch(at(row + each * next));
#pragma unroll
                for (u32 each = 0; each < 4; ++each) use(fetched[each], at(row + each * next));
            }
            for (; row < to; row += next) {
                auto fetched = fetch(at(row));
                use(fetched, at(row));
            }
            fold();
        }
    }
};

// Σ over the block's threads of two numbers for each channel of its tile; `finish` is called with them and with the
// place of the channel's part in `partials`. `scratch` holds eight numbers for each thread.
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

// channel_gradients of [rows, channels].
KERNEL(column_gradients)(
    const Real* d_y, const Real* x, const Real* y, const float* means, const float* inverses, const float* gammas,
    const float* betas, Real* masked, double* partials, u32 channels, Parts parts, bool rectified) {
    struct Fetched {
        float gradients[4], values[4], outputs[4];
    };
    SHARED(double, scratch);
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
            Fetched fetched = {};
            load(d_y, group, fetched.gradients);
            if (x) load(x, group, fetched.values);
            if (rectified && y) load(y, group, fetched.outputs);
            return fetched;
        },
        [&](Fetched& fetched, const Group& group) {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                const float off = fetched.values[at] - mean[at];
                const float output = from_input ? off * scale[at] + shift[at] : fetched.outputs[at];
                if (rectified && output <= 0.0f) fetched.gradients[at] = 0.0f;
                products[at] += fetched.gradients[at] * off;
                sum[at] += fetched.gradients[at];
            }
            if (masked) store(masked, group, fetched.gradients);
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

// batch_norm_moments of [rows, channels]; the pivots are the elements of the part's first row.
KERNEL(column_moments)(const Real* x, double* partials, u32 channels, Parts parts) {
    struct Fetched {
        float values[4];
    };
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
            Fetched fetched;
            load(x, group, fetched.values);
            return fetched;
        },
        [&](const Fetched& fetched, const Group&) {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                const float off = fetched.values[at] - pivots[at];
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
