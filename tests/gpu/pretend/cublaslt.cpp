// cuBLASLt: products with what follows them, as work of a stream.

#include <algorithm>
#include <cstring>

#include "memory.hpp"
#include "numbers.hpp"
#include "product.hpp"
#include "workspace.hpp"

namespace pretend {

namespace {

enum cublasStatus_t : int {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    // One that came after this cuBLASLt's callers were written.
    CUBLAS_STATUS_OF_TOMORROW = 98,
};

struct CublasRefusal {
    cublasStatus_t status;
};

enum : int { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum : int { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum : int { TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8, BIAS_DATA_TYPE = 26 };
enum : int { MAX_WORKSPACE_BYTES = 1, MIN_ALIGNMENT_A_BYTES = 5, MIN_ALIGNMENT_D_BYTES = 8 };
enum : uint32_t { EPILOGUE_DEFAULT = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4, EPILOGUE_RELU_BIAS = 6 };

struct Product {
    int compute;
    int32_t transposed_a = 0, transposed_b = 0;
    uint32_t epilogue = EPILOGUE_DEFAULT;
    uint64_t bias = 0;
    // As D where it is negative.
    int32_t bias_type = -1;
};

struct Layout {
    Number number;
    uint64_t rows, columns;
    int64_t leading;

    size_t bytes() const { return size_of(number) * (size_t(leading) * (columns - 1) + rows); }
};

struct Preference {
    uint64_t workspace_bytes = 0;
    // Of A, B, C and D.
    uint32_t alignment[4] = {256, 256, 256, 256};
};

// What an algorithm is for: 64 bytes that the caller keeps.
struct Algorithm {
    uint64_t rows, columns, depth, workspace_bytes;
    uint32_t alignment[4];
    uint64_t forms, reserved;
};
static_assert(sizeof(Algorithm) == 64);

struct Heuristic {
    Algorithm algorithm;
    size_t workspace_bytes;
    cublasStatus_t state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

struct Handle {
    Context& context;
};

#define REGISTRY(name, type)                   \
    Handles<type>& name() {                    \
        static auto& all = *new Handles<type>; \
        return all;                            \
    }
REGISTRY(handles, Handle)
REGISTRY(products, Product)
REGISTRY(layouts, Layout)
REGISTRY(preferences, Preference)
#undef REGISTRY

void need(bool holds, cublasStatus_t otherwise = CUBLAS_STATUS_INVALID_VALUE) {
    if (!holds) throw CublasRefusal{otherwise};
}

template <class Body>
cublasStatus_t cublas_call(Body body) {
    std::lock_guard hold(world().lock);
    if (world().fails("cublaslt")) return CUBLAS_STATUS_OF_TOMORROW;
    try {
        body();
        return CUBLAS_STATUS_SUCCESS;
    } catch (const CublasRefusal& refusal) {
        return refusal.status;
    } catch (const Refusal& refusal) {
        return refusal.code == CUDA_ERROR_INVALID_HANDLE ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

template <class T>
T value_of(const void* from, size_t bytes) {
    need(from && bytes == sizeof(T));
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

struct Sizes {
    size_t rows, columns, depth;
};

// Throws where the matrices do not fit together.
Sizes sizes_of(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const Sizes sizes{d.rows, d.columns, product.transposed_a ? a.rows : a.columns};
    need((product.transposed_a ? a.columns : a.rows) == sizes.rows);
    need((product.transposed_b ? b.columns : b.rows) == sizes.depth);
    need((product.transposed_b ? b.rows : b.columns) == sizes.columns);
    need(c.rows == d.rows && c.columns == d.columns && c.leading == d.leading);
    need(a.number == b.number && c.number == d.number, CUBLAS_STATUS_NOT_SUPPORTED);
    // bf16 comes of bf16 alone, and its biases are bf16: those of this caller never are.
    need(d.number == Number::F32 || a.number == Number::Bf16, CUBLAS_STATUS_NOT_SUPPORTED);
    const bool biased = (product.epilogue & EPILOGUE_BIAS) != 0;
    need(!biased || (d.number == Number::F32 && product.bias_type != CUDA_R_16BF), CUBLAS_STATUS_NOT_SUPPORTED);
    return sizes;
}

uint64_t forms_of(const Product& product, const Layout& a, const Layout& d) {
    return uint64_t(product.transposed_a) | uint64_t(product.transposed_b) << 1 | uint64_t(product.epilogue) << 8 |
           uint64_t(a.number == Number::Bf16) << 16 | uint64_t(d.number == Number::Bf16) << 17 | uint64_t(product.compute) << 24;
}

// Densely, column by column, transposed where wanted.
std::vector<float> dense(const Context& context, CUdeviceptr at, const Layout& of, bool transposed, bool tf32, const char* what) {
    const size_t span = of.bytes() / size_of(of.number);
    const std::vector<float> all = read(range(context, at, of.bytes(), what), span, of.number, tf32);
    std::vector<float> into(of.rows * of.columns);
    for (size_t column = 0; column < of.columns; ++column)
        for (size_t row = 0; row < of.rows; ++row)
            into[transposed ? row * of.columns + column : column * of.rows + row] = all[column * size_t(of.leading) + row];
    return into;
}

struct Task {
    Product product;
    Layout a, b, d;
    Sizes sizes;
    float alpha, beta;
    CUdeviceptr a_at, b_at, c_at, d_at;
};

void compute(const Context& context, const Task& task) {
    const Product& product = task.product;
    // No manual says so, and a GPU reads it in sixteens of bytes.
    if ((product.epilogue & EPILOGUE_BIAS) != 0 && product.bias % 16 != 0)
        throw Violation{"a product's bias is misaligned", CUDA_ERROR_MISALIGNED_ADDRESS};
    const bool tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && world().settings.major >= 8;
    const std::vector<float> a = dense(context, task.a_at, task.a, product.transposed_a != 0, tf32, "a product's A");
    const std::vector<float> b = dense(context, task.b_at, task.b, product.transposed_b != 0, tf32, "a product's B");
    const auto [rows, columns, depth] = task.sizes;
    std::vector<double> sums(rows * columns);
    multiply(rows, columns, depth, a.data(), b.data(), sums.data());
    const char* c = task.beta != 0 ? range(context, task.c_at, task.d.bytes(), "a product's C") : nullptr;
    char* d = range(context, task.d_at, task.d.bytes(), "a product's D");
    const char* bias = (product.epilogue & EPILOGUE_BIAS) != 0 ? range(context, product.bias, 4 * rows, "a product's bias") : nullptr;
    for (size_t column = 0; column < columns; ++column) {
        for (size_t row = 0; row < rows; ++row) {
            const size_t at = column * size_t(task.d.leading) + row;
            double value = double(task.alpha) * sums[column * rows + row];
            if (c) value = double(float(value)) + double(task.beta) * read_one(c, at, task.d.number);
            if (bias) value = double(float(value)) + read_one(bias, row, Number::F32);
            // max(x, 0) as the hardware has it, which drops NaNs.
            if ((product.epilogue & EPILOGUE_RELU) != 0 && !(value > 0)) value = 0;
            write_one(d, at, float(value), task.d.number);
        }
    }
}

}  // namespace

PRETEND_API size_t cublasLtGetVersion() { return 139999; }

PRETEND_API const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_OF_TOMORROW: break;
    }
    return "CUBLAS_STATUS unknown";
}

PRETEND_API cublasStatus_t cublasLtCreate(void** handle) {
    return cublas_call([&] {
        need(world().initialised, CUBLAS_STATUS_NOT_INITIALIZED);
        *handle = handles().add(std::make_shared<Handle>(Handle{current()}));
    });
}
PRETEND_API cublasStatus_t cublasLtDestroy(void* handle) {
    return cublas_call([&] { handles().take(handle); });
}

PRETEND_API cublasStatus_t cublasLtMatmulDescCreate(void** handle, int compute, int scale) {
    return cublas_call([&] {
        const bool known = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                           compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        need(known && scale == CUDA_R_32F, CUBLAS_STATUS_NOT_SUPPORTED);
        *handle = products().add(std::make_shared<Product>(Product{compute}));
    });
}
PRETEND_API cublasStatus_t cublasLtMatmulDescDestroy(void* handle) {
    return cublas_call([&] { products().take(handle); });
}
PRETEND_API cublasStatus_t cublasLtMatmulDescSetAttribute(void* handle, int attribute, const void* from, size_t bytes) {
    return cublas_call([&] {
        Product& own = *products().get(handle);
        const auto operation = [&] {
            const auto value = value_of<int32_t>(from, bytes);
            need(value == 0 || value == 1, CUBLAS_STATUS_NOT_SUPPORTED);
            return value;
        };
        switch (attribute) {
            case TRANSA: own.transposed_a = operation(); break;
            case TRANSB: own.transposed_b = operation(); break;
            case EPILOGUE:
                own.epilogue = value_of<uint32_t>(from, bytes);
                need(own.epilogue == EPILOGUE_DEFAULT || own.epilogue == EPILOGUE_RELU || own.epilogue == EPILOGUE_BIAS ||
                         own.epilogue == EPILOGUE_RELU_BIAS,
                     CUBLAS_STATUS_NOT_SUPPORTED);
                break;
            case BIAS_POINTER: own.bias = value_of<uint64_t>(from, bytes); break;
            case BIAS_DATA_TYPE: own.bias_type = value_of<int32_t>(from, bytes); break;
            default: need(false, CUBLAS_STATUS_NOT_SUPPORTED);
        }
    });
}

PRETEND_API cublasStatus_t cublasLtMatrixLayoutCreate(void** handle, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    return cublas_call([&] {
        need(type == CUDA_R_32F || type == CUDA_R_16BF, CUBLAS_STATUS_NOT_SUPPORTED);
        need(rows > 0 && columns > 0 && leading >= int64_t(rows));
        const Number number = type == CUDA_R_32F ? Number::F32 : Number::Bf16;
        *handle = layouts().add(std::make_shared<Layout>(Layout{number, rows, columns, leading}));
    });
}
PRETEND_API cublasStatus_t cublasLtMatrixLayoutDestroy(void* handle) {
    return cublas_call([&] { layouts().take(handle); });
}

PRETEND_API cublasStatus_t cublasLtMatmulPreferenceCreate(void** handle) {
    return cublas_call([&] { *handle = preferences().add(std::make_shared<Preference>()); });
}
PRETEND_API cublasStatus_t cublasLtMatmulPreferenceDestroy(void* handle) {
    return cublas_call([&] { preferences().take(handle); });
}
PRETEND_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(void* handle, int attribute, const void* from, size_t bytes) {
    return cublas_call([&] {
        Preference& own = *preferences().get(handle);
        if (attribute == MAX_WORKSPACE_BYTES) {
            own.workspace_bytes = value_of<uint64_t>(from, bytes);
        } else {
            need(attribute >= MIN_ALIGNMENT_A_BYTES && attribute <= MIN_ALIGNMENT_D_BYTES, CUBLAS_STATUS_NOT_SUPPORTED);
            own.alignment[attribute - MIN_ALIGNMENT_A_BYTES] = value_of<uint32_t>(from, bytes);
        }
    });
}

// One that fails where the depth is odd, one with scratch where there is work enough and room for it, and one without.
PRETEND_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    void* handle, void* of, void* a, void* b, void* c, void* d, void* preference, int wanted, Heuristic* into, int* count) {
    return cublas_call([&] {
        handles().get(handle);
        const Product product = *products().get(of);
        const Layout left = *layouts().get(a);
        const Layout made = *layouts().get(d);
        const Sizes sizes = sizes_of(product, left, *layouts().get(b), *layouts().get(c), made);
        const Preference own = *preferences().get(preference);
        need(wanted > 0 && into && count);
        *count = 0;
        const auto give = [&](uint64_t workspace_bytes, cublasStatus_t state) {
            if (*count == wanted) return;
            Heuristic& result = into[(*count)++];
            result = {};
            result.algorithm = {sizes.rows, sizes.columns, sizes.depth, workspace_bytes, {}, forms_of(product, left, made), 0};
            std::copy(std::begin(own.alignment), std::end(own.alignment), result.algorithm.alignment);
            result.workspace_bytes = workspace_bytes, result.state = state, result.waves = 1;
        };
        const uint64_t scratch = 4 * (sizes.rows + sizes.columns);
        if (sizes.depth % 2 == 1) give(0, CUBLAS_STATUS_OF_TOMORROW);
        if (sizes.rows * sizes.columns * sizes.depth > 10000 && scratch <= own.workspace_bytes) give(scratch, CUBLAS_STATUS_SUCCESS);
        give(0, CUBLAS_STATUS_SUCCESS);
    });
}

PRETEND_API cublasStatus_t cublasLtMatmul(
    void* handle, void* of, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout, const void* beta,
    const void* c, void* c_layout, void* d, void* d_layout, const Algorithm* algorithm, void* scratch, size_t scratch_bytes,
    CUstream on) {
    return cublas_call([&] {
        const auto own = handles().get(handle);
        Context& context = current();
        need(&own->context == &context);
        const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
        Task task{*products().get(of), *layouts().get(a_layout), *layouts().get(b_layout), *layouts().get(d_layout), {},
                  *static_cast<const float*>(alpha), *static_cast<const float*>(beta), address(a), address(b), address(c),
                  address(d)};
        task.sizes = sizes_of(task.product, task.a, task.b, *layouts().get(c_layout), task.d);
        uint64_t wanted = 0;
        if (algorithm) {
            need(algorithm->rows == task.sizes.rows && algorithm->columns == task.sizes.columns &&
                 algorithm->depth == task.sizes.depth && algorithm->forms == forms_of(task.product, task.a, task.d));
            const CUdeviceptr all[] = {task.a_at, task.b_at, task.c_at, task.d_at};
            for (int at = 0; at < 4; ++at) need(algorithm->alignment[at] > 0 && all[at] % algorithm->alignment[at] == 0);
            wanted = algorithm->workspace_bytes;
        }
        need(scratch_bytes >= wanted && (wanted == 0 || scratch));
        need((task.product.epilogue & EPILOGUE_BIAS) == 0 || task.product.bias != 0);
        const auto stream = stream_of(context, on);
        Context* at = &context;
        enqueue(*stream, with_workspace(context, address(scratch), wanted, [at, task] { compute(*at, task); }));
    });
}

}  // namespace pretend
