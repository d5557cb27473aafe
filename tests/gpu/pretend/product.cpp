#include "product.hpp"

namespace pretend {

__attribute__((target_clones("avx2", "default"))) void multiply(
    size_t rows, size_t columns, size_t depth, const float* a, const float* b, double* sums) {
    for (size_t column = 0; column < columns; ++column) {
        double* into = sums + column * rows;
        for (size_t inner = 0; inner < depth; ++inner) {
            const double factor = b[column * depth + inner];
            const float* from = a + inner * rows;
            for (size_t row = 0; row < rows; ++row) into[row] += factor * from[row];
        }
    }
}

}  // namespace pretend
