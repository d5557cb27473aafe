// What moves activations from one place to another, from one scalar to the same or to another.

// Row r of `to`, at to_first + r · to_stride, gets or has added row r of `from`: a concatenation and its gradient, one launch
// an input, and what a copy between buffers packs or unpacks.
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
