// Convolutions in plain loops, summed in double; images are [samples, channels, height, width].

#pragma once
#include <cstddef>

namespace pretend {

struct ConvolutionSizes {
    long samples, channels, height, width;
    long filters, out_height, out_width;
    long kernel_height, kernel_width;
    long stride_height, stride_width, padding_height, padding_width, dilation_height, dilation_width;
    long groups;

    size_t inputs() const { return size_t(samples * channels * height * width); }
    size_t outputs() const { return size_t(samples * filters * out_height * out_width); }
    size_t weights() const { return size_t(filters * (channels / groups) * kernel_height * kernel_width); }
};

// Each fills its last argument, which holds zeros.
void convolve_forward(const ConvolutionSizes& of, const float* x, const float* w, double* y);
void convolve_backward_data(const ConvolutionSizes& of, const float* w, const float* d_y, double* d_x);
void convolve_backward_filter(const ConvolutionSizes& of, const float* x, const float* d_y, double* d_w);

}  // namespace pretend
