// Makes samples from decoded pictures: a window is resampled and normalised, the result scaled, shifted and mirrored.

// What is done with a picture; sizes and places are pixels, (rows, columns) each.
struct Record {
    u32 first;  // word of its first byte
    u32 height, width, channels;
    u32 top, left, rows, columns;  // the window of the picture
    u32 scaled;  // whether a window of the result is scaled to its size
    u32 inner_top, inner_left, inner_rows, inner_columns;
    u32 padding, down, right;  // zeros around the image, and the corner of it that is taken
    u32 mirrored;
};

// The two pixels that a pixel's centre falls between, and the weight of the second.
struct Between {
    u32 low, high;
    float share;

    __device__ Between(u32 at, u32 count, u32 first, u32 size) {
        const double last = double(first) + double(size) - 1.0;
        double place = double(first) + (double(at) + 0.5) * double(size) / double(count) - 0.5;
        place = place < double(first) ? double(first) : place > last ? last : place;
        low = u32(place);
        high = low + 1 < first + size - 1 ? low + 1 : first + size - 1;
        share = float(place - double(low));
    }
};

__device__ inline float mix(float one, float other, float share) { return one + (other - one) * share; }

// A batch: by channel the mean, then by channel 1 / deviation; the records; the pictures' bytes, each from a whole word.
struct Pictures {
    const u32* words;
    u32 samples, channels, height, width;

    __device__ Record record(u32 sample) const {
        Record of;
        u32* fields = &of.first;
        const u32* from = words + 2 * channels + u64(sample) * (sizeof(Record) / 4);
        for (u32 field = 0; field < sizeof(Record) / 4; ++field) fields[field] = from[field];
        return of;
    }

    __device__ float pixel(const Record& of, u32 row, u32 column, u32 channel) const {
        const u32 plane = channel < of.channels ? channel : of.channels - 1;
        const u64 byte = (u64(row) * of.width + column) * of.channels + plane;
        return float((words[of.first + byte / 4] >> (8 * (byte % 4))) & 255u);
    }

    // The resampled and normalised picture.
    __device__ float plain(const Record& of, u32 row, u32 column, u32 channel) const {
        const Between y(row, height, of.top, of.rows), x(column, width, of.left, of.columns);
        const float upper = mix(pixel(of, y.low, x.low, channel), pixel(of, y.low, x.high, channel), x.share);
        const float lower = mix(pixel(of, y.high, x.low, channel), pixel(of, y.high, x.high, channel), x.share);
        const float mean = __uint_as_float(words[channel]), scale = __uint_as_float(words[channels + channel]);
        return (mix(upper, lower, y.share) - mean) * scale;
    }

    // The same, scaled.
    __device__ float scaled(const Record& of, u32 row, u32 column, u32 channel) const {
        if (!of.scaled) return plain(of, row, column, channel);
        const Between y(row, height, of.inner_top, of.inner_rows), x(column, width, of.inner_left, of.inner_columns);
        const float upper = mix(plain(of, y.low, x.low, channel), plain(of, y.low, x.high, channel), x.share);
        const float lower = mix(plain(of, y.high, x.low, channel), plain(of, y.high, x.high, channel), x.share);
        return mix(upper, lower, y.share);
    }
};

// `images`, [samples, channels, height, width], from the pictures in `words`.
KERNEL(transform_pictures)(const u32* words, float* images, u32 samples, u32 channels, u32 height, u32 width) {
    const Pictures all{words, samples, channels, height, width};
    const u64 plane = u64(height) * width, count = plane * samples;
    for (u64 index = thread_of_grid(); index < count; index += threads_of_grid()) {
        const u32 sample = u32(index / plane), place = u32(index % plane);
        const Record of = all.record(sample);
        u32 row = place / width, column = place % width;
        if (of.mirrored) column = width - 1 - column;
        // Places before the image wrap round and are outside, too.
        row = row + of.down - of.padding, column = column + of.right - of.padding;
        const bool inside = row < height && column < width;
        for (u32 channel = 0; channel < channels; ++channel) {
            images[(u64(sample) * channels + channel) * plane + place] = inside ? all.scaled(of, row, column, channel) : 0.0f;
        }
    }
}
