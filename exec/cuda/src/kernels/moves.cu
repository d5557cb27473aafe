// Moves activations from one place to another, also between different scalars.

// Row r of `to`, at to_first + r · to_stride, is replaced by row r of `from`, or has it added: a concatenation and its
// gradient, one launch per input, and the packing and unpacking of copies between buffers.
KERNEL(move_rows)(
    const From* from, u64 from_first, u64 from_stride, To* to, u64 to_first, u64 to_stride, u32 rows, u32 length,
    bool accumulate) {
    const bool fours = length % 4 == 0 && (rows == 1 || (from_stride % 4 == 0 && to_stride % 4 == 0)) &&
                       offset_of(from + from_first) == 0 && offset_of(to + to_first) == 0;
    const u32 width = fours ? 4 : 1, in_row = length / width;
    const u64 all = u64(rows) * in_row;
    for (u64 index = thread_of_grid(); index < all; index += threads_of_grid()) {
        const u64 row = index / in_row, place = (index - row * in_row) * width;
        const From* source = from + from_first + row * from_stride + place;
        To* target = to + to_first + row * to_stride + place;
        if (fours) {
            float values[4];
            const Group group{0, 0, 4, true};
            load(source, group, values);
            merge(target, group, values, accumulate);
        } else {
            merge(target, load(source), accumulate);
        }
    }
}

// The most elements of a tile.
constexpr u32 TILE = 1024;

// Size of a tile along an axis of `size`, if the other axis has `across`: 32, or more if that one is shorter.
__device__ inline u32 along(u32 size, u32 across) {
    const u32 most = across < 32 ? TILE / across : 32;
    return size < most ? size : most;
}

// Calls `body` with the thread's places in [rows, columns], columns varying fastest.
template <class Body>
__device__ inline void each_place(u32 rows, u32 columns, Body body) {
    const u32 over = BLOCK / columns, rest = BLOCK % columns;
    u32 row = threadIdx.x / columns, column = threadIdx.x % columns;
    while (row < rows) {
        body(row, column);
        row += over, column += rest;
        if (column >= columns) column -= columns, ++row;
    }
}

// `to`, [samples, columns, rows], is replaced by `from`, [samples, rows, columns], or has it added. A block transposes
// a tile in shared memory, so that both sides are accessed contiguously.
KERNEL(permute)(const From* from, To* to, u32 samples, u32 rows, u32 columns, bool accumulate) {
    SHARED(float, tile);
    const u32 high = along(rows, columns), wide = along(columns, rows);
    // An odd row stride puts the elements of a column into different banks.
    const u32 stride = wide | 1;
    const u32 down = (rows + high - 1) / high, across = (columns + wide - 1) / wide;
    for (u64 index = blockIdx.x; index < u64(samples) * down * across; index += gridDim.x) {
        const u32 sample = u32(index / (u64(down) * across)), place = u32(index % (u64(down) * across));
        const u32 row = place / across * high, column = place % across * wide;
        const u32 height = rows - row < high ? rows - row : high, width = columns - column < wide ? columns - column : wide;
        const u64 first = u64(sample) * rows * columns;
        each_place(height, width, [&](u32 r, u32 c) {
            tile[r * stride + c] = load(from + first + u64(row + r) * columns + column + c);
        });
        __syncthreads();
        each_place(width, height, [&](u32 c, u32 r) {
            merge(to + first + u64(column + c) * rows + row + r, tile[r * stride + c], accumulate);
        });
        __syncthreads();
    }
}
