// Products of matrices in plain loops, summed in double; matrices lie column by column.

#pragma once
#include <cstddef>

namespace pretend {

// sums[rows, columns] ← A·B, A[rows, depth] and B[depth, columns] lying densely; `sums` holds zeros.
void multiply(size_t rows, size_t columns, size_t depth, const float* a, const float* b, double* sums);

}  // namespace pretend
