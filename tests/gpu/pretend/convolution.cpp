#include "convolution.hpp"

#include <algorithm>

namespace pretend {

namespace {

// Where an output's row or column begins to see the input, and where it ends to.
struct Seen {
    long from, to;
};

Seen seen(long outputs, long size, long stride, long offset) {
    // offset + stride·o lies in 0..size.
    const long from = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const long to = size - offset <= 0 ? 0 : (size - offset + stride - 1) / stride;
    return {std::min(from, outputs), std::max(std::min(to, outputs), std::min(from, outputs))};
}

// Calls `row(input row, output row, columns, column offset)` for each row of a tap of the kernel.
template <class Row>
inline __attribute__((always_inline)) void each_row(const ConvolutionSizes& of, long tap_row, long tap_column, Row row) {
    const long down = tap_row * of.dilation_height - of.padding_height;
    const long right = tap_column * of.dilation_width - of.padding_width;
    const Seen rows = seen(of.out_height, of.height, of.stride_height, down);
    const Seen columns = seen(of.out_width, of.width, of.stride_width, right);
    for (long at = rows.from; at < rows.to; ++at) row(at * of.stride_height + down, at, columns, right);
}

// Calls `body(sample, input channel, output channel, weight's index)` for each pair of channels of a group.
template <class Body>
inline __attribute__((always_inline)) void each_pair(const ConvolutionSizes& of, Body body) {
    const long inputs = of.channels / of.groups, outputs = of.filters / of.groups;
    for (long sample = 0; sample < of.samples; ++sample)
        for (long filter = 0; filter < of.filters; ++filter)
            for (long own = 0; own < inputs; ++own)
                body(sample, filter / outputs * inputs + own, filter, filter * inputs + own);
}

}  // namespace

// Columns that are summed apart.
constexpr long WIDTH = 16;

#define FASTER __attribute__((target_clones("avx2", "default")))

FASTER void convolve_forward(const ConvolutionSizes& of, const float* x, const float* w, double* y) {
    each_pair(of, [&](long sample, long channel, long filter, long pair) {
        const float* from = x + (sample * of.channels + channel) * of.height * of.width;
        double* into = y + (sample * of.filters + filter) * of.out_height * of.out_width;
        for (long r = 0; r < of.kernel_height; ++r) {
            for (long s = 0; s < of.kernel_width; ++s) {
                const double weight = w[(pair * of.kernel_height + r) * of.kernel_width + s];
                each_row(of, r, s, [&](long in_row, long out_row, Seen columns, long right) {
                    const float* source = from + in_row * of.width + right;
                    double* target = into + out_row * of.out_width;
                    if (of.stride_width == 1)
                        for (long at = columns.from; at < columns.to; ++at) target[at] += weight * source[at];
                    else
                        for (long at = columns.from; at < columns.to; ++at) target[at] += weight * source[at * of.stride_width];
                });
            }
        }
    });
}

FASTER void convolve_backward_data(const ConvolutionSizes& of, const float* w, const float* d_y, double* d_x) {
    each_pair(of, [&](long sample, long channel, long filter, long pair) {
        double* into = d_x + (sample * of.channels + channel) * of.height * of.width;
        const float* from = d_y + (sample * of.filters + filter) * of.out_height * of.out_width;
        for (long r = 0; r < of.kernel_height; ++r) {
            for (long s = 0; s < of.kernel_width; ++s) {
                const double weight = w[(pair * of.kernel_height + r) * of.kernel_width + s];
                each_row(of, r, s, [&](long in_row, long out_row, Seen columns, long right) {
                    double* target = into + in_row * of.width + right;
                    const float* source = from + out_row * of.out_width;
                    if (of.stride_width == 1)
                        for (long at = columns.from; at < columns.to; ++at) target[at] += weight * source[at];
                    else
                        for (long at = columns.from; at < columns.to; ++at) target[at * of.stride_width] += weight * source[at];
                });
            }
        }
    });
}

FASTER void convolve_backward_filter(const ConvolutionSizes& of, const float* x, const float* d_y, double* d_w) {
    each_pair(of, [&](long sample, long channel, long filter, long pair) {
        const float* from = x + (sample * of.channels + channel) * of.height * of.width;
        const float* slopes = d_y + (sample * of.filters + filter) * of.out_height * of.out_width;
        for (long r = 0; r < of.kernel_height; ++r) {
            for (long s = 0; s < of.kernel_width; ++s) {
                // A sum for each of so many columns, so that they need not wait for each other.
                double sums[WIDTH] = {};
                each_row(of, r, s, [&](long in_row, long out_row, Seen columns, long right) {
                    const float* source = from + in_row * of.width + right;
                    const float* slope = slopes + out_row * of.out_width;
                    for (long first = columns.from; first < columns.to; first += WIDTH) {
                        const long count = std::min(columns.to - first, WIDTH);
                        for (long at = 0; at < count; ++at)
                            sums[at] += double(slope[first + at]) * source[(first + at) * of.stride_width];
                    }
                });
                double total = 0;
                for (const double sum : sums) total += sum;
                d_w[(pair * of.kernel_height + r) * of.kernel_width + s] += total;
            }
        }
    });
}

}  // namespace pretend
